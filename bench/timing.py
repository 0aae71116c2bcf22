"""Times collective calls: contenders take turns, and a call lasts from the first rank's start to the last rank's end.

The clock is CLOCK_MONOTONIC, which all processes of a host share. The ranks meet on a page of shared memory before
each call, not in a collective, so that nothing of the group's own traffic falls into the measurement. A turn is some
calls of one contender, one soon after the other, as in a loop; the first of them, which find the caches and the cores
as another contender or a pause left them, do not count. Ranks that are not pinned may come out of a sleep on one core,
and stay there until the scheduler looks, some milliseconds later.
"""

from __future__ import annotations

import gc
import mmap
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.other_programs import OtherPrograms

OUTPUTS_ALIVE = 3
WARM_UPS = 2  # calls at the start of a turn that are not counted, or as many as fill the time
WARM_UP_US = 5e3
MOST_CALLS = 20  # of a turn that are counted
TURN_US = 20e3  # a turn of short calls is at most about this long
START_AFTER_NS = 30_000  # after the last rank has come: longer than all need to see it
BUSY_CORES = 0.25  # other programs that use more than this spoil a measurement
AGAIN_BELOW_S = 10.0  # one that took longer is not made again


class Meeting:
    """A page shared by the ranks, given or made before they are forked: a barrier, and the stamps of the last call.

    Ranks wait for each other awake, since a core that has slept makes the next call slower, whoever makes it; they
    yield, so that a thread of gloo has the core when it needs it. Where each has a core they start at an agreed moment.
    """

    def __init__(self, ranks: int, page: mmap.mmap | None = None) -> None:
        self._page = memoryview(page or mmap.mmap(-1, self.bytes_for(ranks))).cast("q")
        self._turns, self._arrivals, self._starts, self._ends = (self._page[i * ranks :][:ranks] for i in range(4))
        self._verdict = 4 * ranks
        self._has_core_each = ranks <= len(os.sched_getaffinity(0))

    @staticmethod
    def bytes_for(ranks: int) -> int:
        return 8 * (4 * ranks + 1)

    def meet(self, rank: int) -> None:
        """Returns once every rank has come as often as this one."""
        turn = self._turns[rank] + 1
        self._turns[rank] = turn
        while min(self._turns) < turn:
            os.sched_yield()

    def start_together(self, rank: int) -> None:
        """Returns on all ranks at one moment, as near as the scheduler can."""
        self._arrivals[rank] = time.perf_counter_ns()
        self.meet(rank)
        if not self._has_core_each:
            return
        moment = max(self._arrivals) + START_AFTER_NS
        while time.perf_counter_ns() < moment:
            pass

    def time_us(self, rank: int, call: Callable[[], Any]) -> tuple[float, Any]:
        """Runs `call` on all ranks at once: how long it took, the same figure on every rank, and what it gave."""
        self.start_together(rank)
        start = time.perf_counter_ns()
        result = call()
        end = time.perf_counter_ns()
        self._starts[rank], self._ends[rank] = start, end
        self.meet(rank)
        return (max(self._ends) - min(self._starts)) / 1e3, result

    def gather(self, rank: int, value: int) -> list[int]:
        """What every rank gave."""
        self._starts[rank] = value
        self.meet(rank)
        values = list(self._starts)
        self.meet(rank)
        return values

    def agree(self, rank: int, verdict: bool) -> bool:
        """Rank 0's verdict, on every rank."""
        if rank == 0:
            self._page[self._verdict] = verdict
        self.meet(rank)
        agreed = bool(self._page[self._verdict])
        self.meet(rank)
        return agreed


@dataclass
class Contender:
    """One way to do the work. `rewrite` runs before each call, untimed; `call` gives the output."""

    name: str
    rewrite: Callable[[], None]
    call: Callable[[], Any]
    outputs: deque[Any] = field(default_factory=lambda: deque(maxlen=OUTPUTS_ALIVE))


@dataclass(frozen=True)
class Effort:
    """How long to measure: at least `min_rounds`, then until `seconds` or `max_rounds` are used up."""

    min_rounds: int = 5
    max_rounds: int = 400
    seconds: float = 1.5


@dataclass(frozen=True)
class Timing:
    us: float  # the median
    spread: float  # third quartile minus first, as a share of the median
    samples: int

    @staticmethod
    def of(samples_us: list[float]) -> Timing:
        median = statistics.median(samples_us)
        first, _, third = statistics.quantiles(samples_us, n=4, method="inclusive")
        return Timing(us=median, spread=(third - first) / median, samples=len(samples_us))


def undisturbed(
    meeting: Meeting, rank: int, contenders: list[Contender], effort: Effort, attempts: int = 2
) -> tuple[Mapping[str, Timing], float]:
    """As `interleaved`, again where other programs were busy meanwhile; also how many cores they had in the end."""
    while True:
        others = OtherPrograms()
        began, used_s = time.perf_counter(), time.process_time()
        timings = interleaved(meeting, rank, contenders, effort)
        own_ns = meeting.gather(rank, int((time.process_time() - used_s) * 1e9))
        busy = others.busy_cores(sum(own_ns) / 1e9)
        attempts -= 1
        worth_it = attempts > 0 and time.perf_counter() - began < AGAIN_BELOW_S
        if not meeting.agree(rank, busy > BUSY_CORES and worth_it):
            return timings, busy


def _rounds(meeting: Meeting, rank: int, at_least: int, at_most: int, seconds: float) -> Iterator[int]:
    """Numbers of rounds, the same on every rank, for as long as there is time."""
    began = time.perf_counter()
    for number in range(at_most):
        if meeting.agree(rank, number >= at_least and time.perf_counter() - began > seconds):
            return
        yield number


def _turn(meeting: Meeting, rank: int, contender: Contender, calls: int) -> list[float]:
    samples_us = []
    for _ in range(calls):
        contender.rewrite()
        us, output = meeting.time_us(rank, contender.call)
        contender.outputs.append(output)
        del output
        samples_us.append(us)
    return samples_us


def interleaved(meeting: Meeting, rank: int, contenders: list[Contender], effort: Effort) -> Mapping[str, Timing]:
    """Times turns of the contenders, each round in another order, with fresh outputs of which three stay alive."""
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    gc.collect()
    gc.disable()
    calls, warm_ups = {}, {}
    for contender in contenders:  # from then on every contender has had the memory that it will have
        *_, last_us = _turn(meeting, rank, contender, OUTPUTS_ALIVE + 1)
        calls[contender.name] = max(1, min(MOST_CALLS, int(TURN_US / last_us)))
        warm_ups[contender.name] = max(WARM_UPS, int(WARM_UP_US / (last_us + START_AFTER_NS / 1e3)))
    for done in _rounds(meeting, rank, effort.min_rounds, effort.max_rounds, effort.seconds):
        first = done % len(contenders)
        for contender in contenders[first:] + contenders[:first]:
            uncounted = warm_ups[contender.name]
            turn = _turn(meeting, rank, contender, uncounted + calls[contender.name])
            samples[contender.name] += turn[uncounted:]
    gc.enable()
    for contender in contenders:
        contender.outputs.clear()
    return {name: Timing.of(us) for name, us in samples.items()}
