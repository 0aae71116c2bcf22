"""The ranks of a run as processes, watched from outside: one that dies or stands still is named with what it did."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import multiprocessing.connection
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from tests.support.programs import end_all, has_ended

PR_SET_PDEATHSIG = 1
TEXT_BYTES = 2000
GRACE_S = 5.0  # for the others, once one rank has failed
START_LIMIT_S = 120.0
END_LIMIT_S = 10.0  # for the process of a rank that has said what it found
ORPHAN_LIMIT_S = 3.0  # for children of a rank that was killed
PROGRAM = Path(sys.executable).with_name("shardway")


@dataclass(frozen=True)
class Run:
    ranks: int
    seed: int
    seconds: float
    rounds: int | None
    kinds: list[str]
    round_limit_s: float
    port: int  # of the store


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Outcome:
    rounds: Counter[str] = field(default_factory=Counter)
    usage: list[str] = field(default_factory=list)  # by rank
    findings: list[str] = field(default_factory=list)  # each begins with what it is: wrong, crash, hang, grown, …
    counts: Counter[str] = field(default_factory=Counter)  # calls by op, of all ranks together
    bytes: int = 0
    told_s: dict[str, list[float]] = field(default_factory=dict)  # from a death to the errors, by transport
    shrunk_s: list[float] = field(default_factory=list)  # what each shrinking of a group took
    is_cut_short: bool = False  # by a failure of this rank: the others cannot go on


class Status:
    """What a rank does, in memory that its parent sees."""

    def __init__(self, stacks: Path) -> None:
        self.stacks = stacks  # where SIGUSR1 writes those of the rank and of its children
        self._memory = mmap.mmap(-1, 16 + TEXT_BYTES)

    def say(self, what: str) -> None:
        text = what.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        self._memory[16:] = text

    def begin(self, what: str) -> None:
        self.say(what)
        self._memory[:16] = f"{time.monotonic():.3f}".encode().ljust(16, b"\0")

    @property
    def what(self) -> str:
        return self._memory[16:].rstrip(b"\0").decode(errors="replace")

    @property
    def began(self) -> float:
        return float(self._memory[:16].rstrip(b"\0") or 0)


@dataclass
class Member:
    rank: int
    pid: int
    status: Status
    answer: Connection


class Minder:
    """What happens to a crew from outside: by itself, nothing."""

    pause_s = 0.5  # between two looks

    def look(self, crew: Sequence[Member]) -> None:
        """Called again and again while the crew is at work."""

    def was_killed(self, rank: int) -> bool:
        """Whether the end of its process is meant."""
        return False


Body = Callable[[int, Run, Status], Outcome]


def run_crew(run: Run, body: Body, minder: Minder | None = None) -> Outcome:
    """Calls `body` in every rank, and adds up what they found."""
    with tempfile.TemporaryDirectory() as folder:
        crew = [_start(run, rank, body, Path(folder)) for rank in range(run.ranks)]
        try:
            outcome = _watch(run, crew, minder or Minder())
            if not any(finding.startswith(("hang", "failure")) for finding in outcome.findings):
                outcome.findings += _still_there(crew)
            return outcome
        finally:
            for member in crew:
                end_all(member.pid)


def _start(run: Run, rank: int, body: Body, folder: Path) -> Member:
    ours, theirs = Pipe(duplex=False)
    status = Status(folder / f"stacks-{rank}")
    status.begin("starting")
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return Member(rank, pid, status, ours)
    code = 1
    try:
        ours.close()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.setpgid(0, 0)  # what a rank starts goes with it
        stacks = status.stacks.open("w")
        faulthandler.enable(file=stacks)
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
        torch.set_num_threads(1)
        theirs.send(body(rank, run, status))
        code = 0
    except BaseException:
        theirs.send(Outcome(findings=[f"failure on rank {rank}:\n{traceback.format_exc()}"], is_cut_short=True))
    finally:
        theirs.close()
        sys.stdout.flush()
        os._exit(code)


def _watch(run: Run, crew: list[Member], minder: Minder) -> Outcome:
    outcome = Outcome(usage=["no figures"] * run.ranks)
    waiting = {member.answer: member for member in crew}
    failed_at: float | None = None
    while waiting:
        minder.look(list(waiting.values()))
        for connection in multiprocessing.connection.wait(list(waiting), timeout=minder.pause_s):
            member = waiting.pop(connection)  # type: ignore[arg-type]
            failed = _take(outcome, member, minder)
            failed_at = failed_at or (time.monotonic() if failed else None)
        now = time.monotonic()
        if failed_at and now - failed_at > GRACE_S:
            outcome.findings += [f"failure: rank {m.rank} is still in {m.status.what}" for m in waiting.values()]
            break
        if any(now - member.status.began > _limit(run, member) for member in waiting.values()):
            outcome.findings.append(_hang(list(waiting.values())))
            break
    return outcome


def _limit(run: Run, member: Member) -> float:
    return START_LIMIT_S if member.status.what == "starting" else run.round_limit_s


def _take(outcome: Outcome, member: Member, minder: Minder) -> bool:
    """Whether the rank failed so that the others cannot go on."""
    try:
        theirs: Any = member.answer.recv()
    except EOFError:
        code = _exit_code(member)
        if code == -signal.SIGKILL and minder.was_killed(member.rank):
            return False
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        outcome.findings.append(f"crash of rank {member.rank}: {how}, {member.status.what}\n{_stacks(member)}")
        return True
    outcome.findings += theirs.findings
    outcome.usage[member.rank] = theirs.usage[0] if theirs.usage else "no figures"
    outcome.rounds = max(outcome.rounds, theirs.rounds, key=Counter.total)
    outcome.counts += theirs.counts
    outcome.bytes += theirs.bytes
    for transport, seconds in theirs.told_s.items():
        outcome.told_s.setdefault(transport, []).extend(seconds)
    outcome.shrunk_s += theirs.shrunk_s
    return bool(theirs.is_cut_short)


def _hang(waiting: list[Member]) -> str:
    for member in waiting:
        os.kill(member.pid, signal.SIGUSR1)
    time.sleep(1.0)
    lines = []
    for member in waiting:
        since = time.monotonic() - member.status.began
        lines.append(f"rank {member.rank}: {member.status.what}, for {since:.0f} s\n{_stacks(member)}")
    return "hang: " + "\n".join(lines) + _status_of(waiting[0].pid)


def _status_of(pid: int) -> str:
    if not PROGRAM.exists():
        return ""
    command = [str(PROGRAM), "status", "--pid", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout


def _stacks(member: Member) -> str:
    return member.status.stacks.read_text() if member.status.stacks.exists() else ""


def _exit_code(member: Member) -> int:
    """Of a process that is about to end, or has; it stays to be waited for."""
    ended = os.waitid(os.P_PID, member.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _still_there(crew: list[Member]) -> list[str]:
    """Processes that have nothing more to do and do not end, and what the ranks have started and left running."""
    deadline = time.monotonic() + END_LIMIT_S
    while time.monotonic() < deadline and not all(has_ended(member.pid) for member in crew):
        time.sleep(0.002)
    late = [member for member in crew if not has_ended(member.pid)]
    if late:
        return [_hang(late)]
    deadline = time.monotonic() + ORPHAN_LIMIT_S
    while (left := _left_by(crew)) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"left: a process that rank {rank} started outlives it" for rank in left.values()]


def _left_by(crew: list[Member]) -> dict[int, int]:
    """Processes that ranks have started, and the rank of each."""
    ranks = {member.pid: member.rank for member in crew}
    return {pid: ranks[group] for pid, group in _groups_of_processes() if group in ranks and pid not in ranks}


def _groups_of_processes() -> Iterator[tuple[int, int]]:
    """Every process that has not ended, and the group that it is in."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, _, group = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            yield int(name), int(group)
