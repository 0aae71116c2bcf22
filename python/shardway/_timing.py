"""Calls that the ranks of a group time together."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

MANY_BYTES = 1 << 20
INTERRUPTED = 128 + signal.SIGINT

_LEAST_ROUNDS = 6
_KNOWN_WELL = 0.03
_REPETITIONS_OF_SMALL = 8
_REPETITIONS_OF_LARGE = 2

Call = Callable[[torch.Tensor], object]


class TimedCall:
    """A call on an input that this rank writes before each repetition."""

    def __init__(self, call: Call, elements: int, size: int, group: dist.ProcessGroup | None = None) -> None:
        self.call = call
        self.group = group
        self.repetitions = _REPETITIONS_OF_LARGE if size >= MANY_BYTES else _REPETITIONS_OF_SMALL
        self.input = torch.ones(elements)
        self.us: list[float] = []

    def time(self) -> float:
        """What it takes the slowest rank, in microseconds."""
        self.input.fill_(1.0)
        dist.barrier(self.group)
        begin = time.perf_counter_ns()
        self.call(self.input)
        own = torch.tensor([time.perf_counter_ns() - begin])
        dist.all_reduce(own, dist.ReduceOp.MAX, self.group)
        return int(own) / 1e3

    def repeat(self) -> None:
        self.time()  # it finds in the caches what another call has left: it does not count
        self.us += [self.time() for _ in range(self.repetitions)]

    def median(self) -> float:
        return statistics.median(self.us)

    def spread(self) -> float:
        """From the lower quartile to the upper one, as a share of the median."""
        ordered = sorted(self.us)
        last = len(ordered) - 1
        return (ordered[last * 3 // 4] - ordered[last // 4]) / self.median()

    def retest_error(self) -> float:
        """By how much the medians of odd and even repetitions differ, as a share."""
        even, odd = statistics.median(self.us[::2]), statistics.median(self.us[1::2])
        return 2 * abs(even - odd) / (even + odd)


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
        is_known = (
            number == 0
            and rounds >= _LEAST_ROUNDS
            and statistics.median(each.retest_error() for each in calls) <= _KNOWN_WELL
        )
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
                return
            each.repeat()
        rounds += 1
