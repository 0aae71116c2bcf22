"""Calls that the ranks of a group time together."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from shardway import _C

INTERRUPTED = 128 + signal.SIGINT

Call = Callable[[torch.Tensor], object]


class Summary(NamedTuple):
    us: float  # the median
    spread: float  # from the lower quartile to the upper one, as a share of the median
    retest_error: float  # by how much the medians of odd and even rounds differ, as a share


class TimedCall:
    """A call on an input that this rank writes before each repetition."""

    def __init__(self, call: Call, elements: int, group: dist.ProcessGroup | None = None) -> None:
        self.call = call
        self.group = group
        self.input = torch.ones(elements)
        self.us: list[float] = []  # what it took the slowest rank
        self.own_us: list[float] = []  # what it took this rank since the ranks compared

    def time(self) -> float:
        self.input.fill_(1.0)
        dist.barrier(self.group)
        begin = time.perf_counter_ns()
        self.call(self.input)
        return (time.perf_counter_ns() - begin) / 1e3

    def take_turn(self) -> None:
        self.time()  # it finds in the caches what another call has left: it does not count
        self.own_us += [self.time() for _ in range(_C.REPETITIONS_IN_A_TURN)]

    def summary(self) -> Summary:
        return Summary(*_C.summary_of(self.us))


def compare(calls: Sequence[TimedCall], group: dist.ProcessGroup | None) -> None:
    """Collective: the slowest rank counts. Once for many calls: the message of each would take as long as the call."""
    us = torch.tensor([us for each in calls for us in each.own_us], dtype=torch.float64)
    if us.numel() == 0:
        return
    dist.all_reduce(us, dist.ReduceOp.MAX, group)
    slowest = iter(us.tolist())
    for each in calls:
        each.us += [next(slowest) for _ in each.own_us]
        each.own_us.clear()


class TrialClock:
    """When to stop. Every rank comes to the same answer."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.was_interrupted = False
        self.group: dist.ProcessGroup | None = None  # whose ranks stop together

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        self.was_interrupted = True

    def is_over(self, rounds: int, number: int, calls: Sequence[TimedCall]) -> bool:
        has_time = rounds == 0 or time.monotonic() < self._end
        is_known = number == 0 and _C.is_known_well([each.us for each in calls], rounds)
        state = torch.tensor([int(self.was_interrupted), int(not has_time or is_known)])
        dist.all_reduce(state, dist.ReduceOp.MAX, self.group)
        self.was_interrupted = bool(state[0])
        return bool(state.any())


def measure(calls: Sequence[TimedCall], clock: TrialClock) -> None:
    """Makes all calls in turn, round after round, until the clock says so."""
    for each in calls:
        each.time()  # touches memory: it does not count
    rounds = 0
    while True:
        for number, each in enumerate(calls):
            if clock.is_over(rounds, number, calls):
                return compare(calls, clock.group)
            each.take_turn()
        compare(calls, clock.group)
        rounds += 1
