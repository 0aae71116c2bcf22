"""Runs one cell: forks its three ranks, leads them step by step, and writes down what each did."""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.faults import rank as rank_of_cell
from tests.faults.axes import FAULTY, RANKS, Cell
from tests.faults.catalogue import TRAITS
from tests.faults.expectations import PAUSE_S, rule_of
from tests.faults.leftovers import names_in_shared_memory
from tests.faults.observation import Clock, Outcome, Record, Seen
from tests.support.programs import end_all, end_with_parent, has_ended

START_LIMIT_S = 30.0
STEP_LIMIT_S = 8.0  # beyond the timeout: who has not answered by then hangs


@dataclass
class Child:
    rank: int
    pid: int
    link: Connection
    is_gone: bool = False


def run_cell(cell: Cell) -> Record:
    timeout_s = rule_of(cell, TRAITS[cell.call]).timeout_s
    record = Record(cell.name, timeout_s, [Seen(rank) for rank in range(RANKS)])
    before = names_in_shared_memory()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="shardway-faults-") as folder:
        trio = Trio(cell, Path(folder), timeout_s, record)
        try:
            trio.run()
        finally:
            trio.end()
    record.files = sorted(names_in_shared_memory() - before)
    record.wall_s = time.monotonic() - start
    return record


class Trio:
    """The three ranks of a cell, from outside."""

    def __init__(self, cell: Cell, folder: Path, timeout_s: float, record: Record) -> None:
        self._cell = cell
        self._folder = folder
        self._timeout_s = timeout_s
        self._record = record
        self._clock = Clock()
        self._children: list[Child] = []

    def run(self) -> None:
        for rank in range(RANKS):
            self._children.append(self._fork(rank))
        ready = self._answers(range(RANKS), START_LIMIT_S)
        if any(answer != "ready" for answer in ready.values()):
            self._record.trouble = f"before the fault: {ready}"
            return
        self._act()
        living = [seen.rank for seen in self._record.ranks if seen.outcome.how not in ("gone", "silent")]
        limit = RANKS * self._timeout_s + STEP_LIMIT_S
        for name in ("probe", "end"):
            self._say(living)
            for rank, answer in self._answers(living, limit).items():
                setattr(self._record.ranks[rank], name, self._outcome(rank, answer))
        self._say(living)
        self._answers(living, limit)
        self._say(living, living)
        for rank, answer in self._answers(living, limit).items():
            self._record.ranks[rank].again = self._outcome(rank, answer)
        self._say(living)
        for rank, answer in self._answers(living, limit).items():
            self._record.ranks[rank].leftovers = answer if isinstance(answer, list) else [f"no answer: {answer}"]
        self._say(living)
        self._await_ends(living)

    # The fault

    def _act(self) -> None:
        faulty, others = FAULTY, [rank for rank in range(RANKS) if rank != FAULTY]
        limit = self._timeout_s + STEP_LIMIT_S
        fault = self._cell.fault
        self._say(range(RANKS))
        if fault == "resumed":
            self._resume_after(PAUSE_S)
        if fault == "never":
            self._answers([faulty], limit)  # it waits
        self._note(self._answers(others, limit))
        if fault == "never":
            self._say([faulty])
        if fault == "stopped":
            self._resume_after(0)
        self._note(self._answers([faulty], limit))

    def _resume_after(self, pause_s: float) -> None:
        pid = self._children[FAULTY].pid
        deadline = time.monotonic() + STEP_LIMIT_S
        while not _is_stopped(pid) and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(pause_s)
        self._clock.resumed = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _note(self, answers: dict[int, Any]) -> None:
        for rank, answer in answers.items():
            seen = self._record.ranks[rank]
            if isinstance(answer, Seen):
                self._record.ranks[rank] = answer
            else:
                seen.outcome = self._outcome(rank, answer)

    def _outcome(self, rank: int, answer: Any) -> Any:
        if answer == "silent":
            self._record.ranks[rank].stacks = self._stacks(rank)
        return Outcome(answer) if isinstance(answer, str) else answer

    # Messages

    def _say(self, ranks: Iterable[int], word: object = "on") -> None:
        for rank in ranks:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._children[rank].link.send(word)

    def _answers(self, ranks: Iterable[int], limit_s: float) -> dict[int, Any]:
        """What each of the ranks said; "gone" of one whose process ended, "silent" of one that said nothing."""
        waiting = {self._children[rank].link: rank for rank in ranks if not self._children[rank].is_gone}
        found: dict[int, Any] = {rank: "gone" for rank in ranks if self._children[rank].is_gone}
        deadline = time.monotonic() + limit_s
        while waiting and (left := deadline - time.monotonic()) > 0:
            for link in multiprocessing.connection.wait(list(waiting), timeout=left):
                rank = waiting.pop(link)  # type: ignore[arg-type]
                try:
                    found[rank] = link.recv()  # type: ignore[union-attr]
                except (EOFError, ConnectionResetError):
                    found[rank] = "gone"
                    self._children[rank].is_gone = True
        return found | dict.fromkeys(waiting.values(), "silent")

    # Processes

    def _fork(self, rank: int) -> Child:
        ours, theirs = Pipe()
        pid = os.fork()
        if pid:
            theirs.close()
            return Child(rank, pid, ours)
        code = 1
        try:
            ours.close()
            for sibling in self._children:
                sibling.link.close()
            os.setpgid(0, 0)
            end_with_parent()
            rank_of_cell.run(self._cell, rank, self._clock, theirs, self._folder / "store", self._timeout_s)
            code = 0
        except BaseException:
            with suppress(OSError):
                theirs.send(traceback.format_exc())
        finally:
            os._exit(code)

    def _await_ends(self, living: Iterable[int]) -> None:
        """A rank that has nothing more to do ends by itself."""
        deadline = time.monotonic() + STEP_LIMIT_S
        for rank in living:
            child = self._children[rank]
            while not has_ended(child.pid) and time.monotonic() < deadline:
                time.sleep(0.001)
            if has_ended(child.pid):
                status = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
                assert status is not None
                killed = status.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                self._record.ranks[rank].exit_code = -status.si_status if killed else status.si_status

    def _stacks(self, rank: int) -> str:
        with suppress(ProcessLookupError):
            os.kill(self._children[rank].pid, signal.SIGUSR1)
        time.sleep(0.3)
        file = self._folder / f"stacks-{rank}"
        return file.read_text() if file.exists() else ""

    def end(self) -> None:
        for child in self._children:
            child.link.close()
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGCONT)
            end_all(child.pid)


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return True
