"""Runs one function as several ranks of a group, gloo's unless told otherwise: processes forked from this one.

A rank that is settled is pinned to a core and scheduled as SCHED_BATCH: a thread that wakes up does not interrupt the
one that runs. Otherwise gloo is far from its best where ranks have no more than a core each: its own thread interrupts
the main thread just when that holds a lock, and then retries the lock without sleeping until the next scheduler tick.
With 2 ranks on 2 cores, a call of 1 KiB then takes 0.2 or 3.5 ms, by chance, whoever makes it.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29


class RankFailed(RuntimeError):
    """What the ranks that failed had to say."""


class Enter(Protocol):
    """Makes the default group of a rank."""

    def __call__(self, rank: int, size: int, *, store: Path, timeout_s: float) -> None: ...


def on_gloo(rank: int, size: int, *, store: Path, timeout_s: float) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
    )


def run_ranks(
    ranks: int, body: Callable[..., Any], *args: Any, timeout_s: float, settled: bool = True, enter: Enter = on_gloo
) -> list[Any]:
    """Calls `body(rank, ranks, *args)` in `ranks` forked processes and gives what each returned."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryDirectory() as folder:
        group = functools.partial(enter, store=Path(folder) / "store", timeout_s=timeout_s)
        children = [_fork(rank, ranks, group, settled, body, args) for rank in range(ranks)]
        try:
            return _answers([connection for _, connection in children], timeout_s)
        finally:
            _end([pid for pid, _ in children])


def _fork(
    rank: int,
    ranks: int,
    enter: Callable[[int, int], None],
    settled: bool,
    body: Callable[..., Any],
    args: tuple[Any, ...],
) -> tuple[int, Connection]:
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    status = 1
    try:
        ours.close()
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a rank does not outlive the benchmark
        libc.prctl(_PR_SET_TIMERSLACK, 1)  # a sleep ends when asked, not up to 50 µs later
        if settled:
            settle(rank)  # before gloo starts its threads, which inherit it
        torch.set_num_threads(1)
        enter(rank, ranks)
        theirs.send((True, body(rank, ranks, *args)))
        dist.barrier()
        status = 0
    except BaseException:  # the parent reports whatever it was
        theirs.send((False, traceback.format_exc()))
    finally:
        os._exit(status)


def settle(rank: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _answers(connections: list[Connection], timeout_s: float) -> list[Any]:
    deadline = time.monotonic() + timeout_s
    answers: dict[int, Any] = {}
    waiting: dict[Any, int] = {connection: rank for rank, connection in enumerate(connections)}
    while waiting:
        ready = multiprocessing.connection.wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            raise RankFailed(f"no answer from ranks {sorted(waiting.values())} within {timeout_s:.0f} s")
        for connection in ready:
            rank = waiting.pop(connection)
            try:
                fine, answers[rank] = connection.recv()
            except EOFError:
                fine, answers[rank] = False, "the process ended without an answer"
            if not fine:
                raise RankFailed(f"rank {rank}:\n{answers[rank]}")
    return [answers[rank] for rank in range(len(connections))]


def _end(pids: list[int]) -> None:
    """Waits a moment for the ranks to leave by themselves, then ends those that are left."""
    left = set(pids)
    deadline = time.monotonic() + 2.0
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0}
        time.sleep(0.002)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
