"""The ranks of a run as processes, watched from outside: one that dies or stands still is named with what it did."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PR_SET_PDEATHSIG = 1
TEXT_BYTES = 2000
GRACE_S = 5.0  # for the others, once one rank has failed
START_LIMIT_S = 120.0


@dataclass(frozen=True)
class Run:
    ranks: int
    seed: int
    seconds: float
    rounds: int | None
    kinds: list[str]
    round_limit_s: float


@dataclass
class Outcome:
    rounds: Counter[str] = field(default_factory=Counter)
    usage: list[str] = field(default_factory=list)  # by rank
    findings: list[str] = field(default_factory=list)  # each begins with what it is: wrong, crash, hang, grown, …
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


Body = Callable[[int, Run, Status], Outcome]


def run_crew(run: Run, body: Body) -> Outcome:
    """Calls `body` in every rank, and adds up what they found."""
    with tempfile.TemporaryDirectory() as folder:
        crew = [_start(run, rank, body, Path(folder)) for rank in range(run.ranks)]
        try:
            return _watch(run, crew)
        finally:
            for member in crew:
                _end(member)


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
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=run.ranks)
        theirs.send(body(rank, run, status))
        code = 0
    except BaseException:
        theirs.send(Outcome(findings=[f"failure on rank {rank}:\n{traceback.format_exc()}"], is_cut_short=True))
    finally:
        theirs.close()
        sys.stdout.flush()
        os._exit(code)


def _watch(run: Run, crew: list[Member]) -> Outcome:
    outcome = Outcome(usage=["no figures"] * run.ranks)
    waiting = {member.answer: member for member in crew}
    failed_at: float | None = None
    while waiting:
        for connection in multiprocessing.connection.wait(list(waiting), timeout=0.5):
            member = waiting.pop(connection)  # type: ignore[arg-type]
            failed = _take(outcome, member)
            failed_at = failed_at or (time.monotonic() if failed else None)
        now = time.monotonic()
        if failed_at and now - failed_at > GRACE_S:
            outcome.findings += [f"failure: rank {m.rank} is still in {m.status.what}" for m in waiting.values()]
            break
        if any(now - member.status.began > _limit(run, member) for member in waiting.values()):
            outcome.findings += _hang(crew)
            break
    return outcome


def _limit(run: Run, member: Member) -> float:
    return START_LIMIT_S if member.status.what == "starting" else run.round_limit_s


def _take(outcome: Outcome, member: Member) -> bool:
    """Whether the rank failed so that the others cannot go on."""
    try:
        theirs: Any = member.answer.recv()
    except EOFError:
        code = os.waitstatus_to_exitcode(os.waitpid(member.pid, 0)[1])
        member.pid = 0
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        outcome.findings.append(f"crash of rank {member.rank}: {how}, {member.status.what}\n{_stacks(member)}")
        return True
    outcome.findings += theirs.findings
    outcome.usage[member.rank] = theirs.usage[0] if theirs.usage else "no figures"
    outcome.rounds = max(outcome.rounds, theirs.rounds, key=Counter.total)
    return bool(theirs.is_cut_short)


def _hang(crew: list[Member]) -> list[str]:
    for member in crew:
        if member.pid:
            os.kill(member.pid, signal.SIGUSR1)
    time.sleep(1.0)
    lines = []
    for member in crew:
        since = time.monotonic() - member.status.began
        lines.append(f"rank {member.rank}: {member.status.what}, for {since:.0f} s\n{_stacks(member)}")
    return ["hang: " + "\n".join(lines)]


def _stacks(member: Member) -> str:
    return member.status.stacks.read_text() if member.status.stacks.exists() else ""


def _end(member: Member) -> None:
    if not member.pid:
        return
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline and not os.waitpid(member.pid, os.WNOHANG)[0]:
        time.sleep(0.01)
    else:
        if time.monotonic() < deadline:
            return
    try:
        os.killpg(member.pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(member.pid, signal.SIGKILL)
    os.waitpid(member.pid, 0)
