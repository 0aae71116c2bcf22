"""One rank of the Python part of bench/before.py, of the commit whose package PYTHONPATH names.

It waits asleep for tasks on a pipe and answers with stamps on another, as the programs of ranks in C++ do. A task is
`BENCH OP SIZE CALLS`: what to call, on how much, and how often. `python -m bench.before_rank PATH RANK RANKS`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from bench import backend_contenders, ragged_contenders, redistribute_contenders
from bench.forked_ranks import on_gloo, settle
from bench.timing import WARM_UP_US, WARM_UPS, Contender, Meeting

TIMEOUT_S = 600.0
WARM_UPS_AT_MOST = 50


class Cases:
    """The contenders of this rank, by task; the last one is kept, for its turns come one soon after the other."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._makers: dict[str, Callable[[str, str], Contender]] = {
            "ragged": self._ragged,
            "redistribute": self._redistribute,
            "backend": self._backend,
            "group": self._group,
        }
        self.of = functools.lru_cache(maxsize=1)(self._of)

    def _of(self, bench: str, op: str, size: str) -> Contender:
        gc.collect()
        return self._makers[bench](op, size)

    def _ragged(self, op: str, size: str) -> Contender:
        batch = ragged_contenders.Batch(self._rank, self._ranks, int(size))
        return _ours(ragged_contenders.contenders(batch, ragged_contenders.OPS[int(op)]))

    def _redistribute(self, op: str, size: str) -> Contender:
        rows, columns = (int(extent) for extent in size.split("x"))
        wanted = redistribute_contenders.OPS[int(op)]
        case = redistribute_contenders.Case(wanted, self._rank, self._ranks, (rows, columns))
        return _ours(redistribute_contenders.contenders(case, self._redistribute_groups))

    def _backend(self, op: str, size: str) -> Contender:
        case = backend_contenders.Case(op, self._rank, self._ranks, int(size))
        return _ours(case.contenders(self._backend_groups))

    def _group(self, op: str, size: str) -> Contender:
        """A group of the backend, from torch's new_group to the end of its first call."""
        x = torch.ones(1)

        def make() -> None:
            group = dist.new_group(backend="shardway")
            dist.all_reduce(x, group=group)
            dist.destroy_process_group(group)

        return Contender("making a group", lambda: None, make)

    @functools.cached_property
    def _redistribute_groups(self) -> redistribute_contenders.Groups:
        return redistribute_contenders.Groups.make(self._ranks)

    @functools.cached_property
    def _backend_groups(self) -> backend_contenders.Groups:
        return backend_contenders.Groups.make()


def _ours(contenders: list[Contender]) -> Contender:
    """The first is shardway's in every benchmark."""
    assert contenders[0].name == "shardway"
    return contenders[0]


def _shared_page(path: Path, bytes_: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, bytes_)
    return mmap.mmap(descriptor, bytes_)


def _turn(meeting: Meeting, rank: int, contender: Contender, calls: int) -> str:
    """A stamp per call; the first ones of a turn do not count."""
    stamps = []
    us, _ = _call(meeting, rank, contender)
    warm_ups = max(WARM_UPS, min(WARM_UPS_AT_MOST, int(WARM_UP_US / us)))
    warm_ups = max(meeting.gather(rank, warm_ups))
    for number in range(warm_ups + calls):
        _, stamp = _call(meeting, rank, contender)
        if number >= warm_ups:
            stamps.append(stamp)
    contender.outputs.clear()
    return " ".join(stamps)


def _call(meeting: Meeting, rank: int, contender: Contender) -> tuple[float, str]:
    contender.rewrite()
    before = resource.getrusage(resource.RUSAGE_THREAD)
    meeting.start_together(rank)
    start = time.perf_counter_ns()
    output = contender.call()
    end = time.perf_counter_ns()
    after = resource.getrusage(resource.RUSAGE_THREAD)
    contender.outputs.append(output)
    meeting.meet(rank)
    faults, interruptions = after.ru_minflt - before.ru_minflt, after.ru_nivcsw - before.ru_nivcsw
    return (end - start) / 1e3, f"{start}:{end}:{faults}:{interruptions}"


def main() -> None:
    path, rank, ranks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    ctypes.CDLL(None).prctl(29, 1)  # PR_SET_TIMERSLACK
    settle(rank)
    torch.set_num_threads(1)
    meeting = Meeting(ranks, _shared_page(path.with_name(f"{path.name}.page"), Meeting.bytes_for(ranks)))
    on_gloo(rank, ranks, store=path.with_name(f"{path.name}.store"), timeout_s=TIMEOUT_S)
    cases = Cases(rank, ranks)
    gc.disable()
    with open(f"{path}.{rank}.in") as tasks, open(f"{path}.{rank}.out", "w", buffering=1) as answers:
        for task in tasks:
            bench, op, size, calls = task.split()
            try:
                print(_turn(meeting, rank, cases.of(bench, op, size), int(calls)), file=answers)
            except Exception as error:
                print(f"error {error!r}".replace("\n", " "), file=answers)
                raise


if __name__ == "__main__":
    main()
