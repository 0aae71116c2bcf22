"""Programs of several ranks that wait asleep until it is their turn, and what they measured in it.

Each rank reads tasks from a named pipe and answers on another (bench/ranks/contender.h). So the contenders of a
benchmark, each with its own launcher, all run at the same time and take turns within milliseconds.
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import end_all

TURN_LIMIT_S = 120.0
LEAVE_S = 5.0


class ProgramFailed(RuntimeError):
    """What a rank had to say, or that it said nothing."""


@dataclass(frozen=True)
class Call:
    """One timed call: from the first rank's start to the last rank's end, and page faults on the rank with most."""

    us: float
    faults: int
    is_interrupted: bool  # another program took a rank's core, or, with more ranks than cores, a rank another's


class RankProgram:
    """The ranks of one contender. `commands` start them: one that starts all, or one for each."""

    def __init__(
        self, name: str, ranks: int, folder: Path, commands: list[list[str]], limit_s: float = TURN_LIMIT_S
    ) -> None:
        self.name = name
        self._limit_s = limit_s  # of a turn
        self._path = folder / name
        self._pipes = [(self._pipe(rank, "in"), self._pipe(rank, "out")) for rank in range(ranks)]
        self._answers = [b""] * ranks
        self._log_path = folder / f"{name}.log"
        with self._log_path.open("wb") as log:
            self._processes = [
                subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) for command in commands
            ]

    def _pipe(self, rank: int, direction: str) -> int:
        path = self._path.with_name(f"{self.name}.{rank}.{direction}")
        os.mkfifo(path)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # read and write: opening waits for nobody

    def turn(self, task: str) -> list[Call]:
        """Runs `task` on every rank."""
        for into, _ in self._pipes:
            os.write(into, task.encode() + b"\n")
        by_rank = [[_stamp(word) for word in line.split()] for line in self._read_lines(task)]
        return [_call(stamps) for stamps in zip(*by_rank, strict=True)]

    def _read_lines(self, task: str) -> list[str]:
        deadline = time.monotonic() + self._limit_s
        while not all(answer.endswith(b"\n") for answer in self._answers):
            waiting = [out for (_, out), a in zip(self._pipes, self._answers, strict=True) if not a.endswith(b"\n")]
            ready, _, _ = select.select(waiting, [], [], 0.5)
            for rank, (_, out) in enumerate(self._pipes):
                if out in ready:
                    self._answers[rank] += os.read(out, 1 << 16)
            self._raise_if_failed(task, not ready and time.monotonic() > deadline)
        lines = [answer.decode().strip() for answer in self._answers]
        self._answers = [b""] * len(lines)
        return lines

    def _raise_if_failed(self, task: str, is_late: bool) -> None:
        errors = [f"rank {rank}: {a.decode().strip()}" for rank, a in enumerate(self._answers) if a[:5] == b"error"]
        ended = any(process.poll() is not None for process in self._processes)
        if errors or ended or is_late:
            why = errors or [f"no answer within {self._limit_s:g} s" if is_late else "a rank has ended"]
            log = self._log_path.read_text(errors="replace")[-2000:]
            raise ProgramFailed(f"{self.name}, task '{task}': {'; '.join(why)}\n{log}")

    def close(self, leave_s: float = LEAVE_S) -> None:
        """The ranks leave when their pipes end; those that do not are ended, with all that they started."""
        for into, out in self._pipes:
            os.close(into)
            os.close(out)
        for process in self._processes:
            _end(process, leave_s)


def _end(process: subprocess.Popen[bytes], leave_s: float) -> None:
    """A launcher that is ended alone may leave its ranks running, which then disturb every other contender."""
    if not _leaves(process, leave_s):
        end_all(process.pid)
        process.wait()  # it knows that somebody else has waited


def _leaves(process: subprocess.Popen[bytes], leave_s: float) -> bool:
    try:
        process.wait(leave_s)
    except subprocess.TimeoutExpired:
        return False
    return True


@dataclass(frozen=True)
class _Stamp:
    start_ns: int
    end_ns: int
    faults: int
    interruptions: int


def _stamp(word: str) -> _Stamp:
    return _Stamp(*(int(field) for field in word.split(":")))


def _call(stamps: tuple[_Stamp, ...]) -> Call:
    """What every rank saw of one call."""
    duration_ns = max(stamp.end_ns for stamp in stamps) - min(stamp.start_ns for stamp in stamps)
    faults = max(stamp.faults for stamp in stamps)
    return Call(duration_ns / 1e3, faults, any(stamp.interruptions for stamp in stamps))
