"""The rows of bench/shm.py, and how they are measured: contenders in turn, in one run."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.mpis import kind_of
from bench.other_programs import OtherPrograms, used_by_family_s
from bench.rank_programs import Call, RankProgram
from bench.report import us_text
from bench.shm_contenders import COPIES, Contender, Program
from bench.timing import AGAIN_BELOW_S, BUSY_CORES, Timing

FLOAT_BYTES = 4
KIB, MIB = 2**10, 2**20
OPS = ("all_gather_v", "reduce_scatter_v", "all_to_all_v")
SHAPES = ("equal", "1:3:5", "one-hot", "one empty")
SIZES = [8, 16, 64, 256, *(4**k * KIB for k in range(8)), 32 * MIB, 64 * MIB]
TURN_S = 0.02  # a turn of short calls is about this long
MIN_TURNS = 3
HOPELESS_US, HOPELESS_TIMES = 5e3, 20.0  # a call that is slower than both is not repeated
MIN_ALONE = 5  # calls that nobody interrupted are enough for a row where each rank has a core
GIVE_UP_US = 0.5e6  # nor tried at larger sizes


@dataclass(frozen=True)
class ShmRow:
    op: str
    contender: str
    ranks: int
    shape: str  # of the sizes per rank
    bytes: int  # of a rank, on average
    us: float
    spread: float
    samples: int
    output: str
    faults: int  # page faults of a call on the rank with most, median


@dataclass(frozen=True)
class Case:
    """What is compared in one line of the table."""

    op: str
    output: str
    ranks: int
    shape: str
    mean_bytes: int
    beside: int = 0  # processes that are busy meanwhile

    def sizes(self) -> list[int]:
        """f32 elements per rank."""
        mean, ranks = self.mean_bytes // FLOAT_BYTES, self.ranks
        if self.shape == "equal":
            return [mean] * ranks
        if self.shape == "1:3:5":
            return [max(1, mean * (2 * rank + 1) // ranks) for rank in range(ranks)]
        if self.shape == "one-hot":
            return [0] * (ranks - 1) + [mean * ranks]
        return [0] + [mean * ranks // (ranks - 1)] * (ranks - 1)  # one empty

    def task(self, contender: Contender, repeats: int) -> str:
        sizes = " ".join(str(size) for size in self.sizes())
        return f"{self.op} {contender.output or self.output} {contender.variant} {repeats} {sizes}"

    def has_core_each(self) -> bool:
        return self.ranks + self.beside <= len(os.sched_getaffinity(0))

    def need_bytes(self) -> int:
        """What the ranks of one contender hold at once; the two that never give memory back hold theirs too."""
        total = sum(self.sizes()) * FLOAT_BYTES
        outputs = 1 if self.output == "out" else 4
        return 4 * self.ranks * total * (1 + outputs)


@contextlib.contextmanager
def rank_programs(ranks: int, wanted: set[str], of_them: Sequence[Program]) -> Iterator[dict[str, RankProgram]]:
    """Those of `of_them` that are wanted, started."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, contextlib.ExitStack() as stack:
        programs = {}
        for program in of_them:
            if program.name in wanted:
                commands = program.commands(ranks, Path(folder) / program.name)
                programs[program.name] = RankProgram(program.name, ranks, Path(folder), commands)
                stack.callback(programs[program.name].close)
        yield programs


class Contest:
    """The contenders of one number of ranks, case after case."""

    def __init__(self, programs: dict[str, RankProgram], seconds: float) -> None:
        self._programs = programs
        self._seconds = seconds
        self._given_up: set[tuple[str, ...]] = set()

    def measure(self, case: Case, contenders: list[Contender]) -> tuple[list[ShmRow], float]:
        """The rows, again where other programs were busy meanwhile; and how many cores those had in the end."""
        calls: dict[str, list[Call]] = {}
        for is_last in (False, True):
            others, used_s, began = OtherPrograms(), used_by_family_s(), time.monotonic()
            calls |= self._take_turns(case, contenders)
            busy = others.busy_cores(used_by_family_s() - used_s)
            if is_last or busy <= BUSY_CORES or time.monotonic() - began > AGAIN_BELOW_S:
                break
        return [_row(case, name, found) for name, found in calls.items()], busy

    def _take_turns(self, case: Case, contenders: list[Contender]) -> dict[str, list[Call]]:
        """Each round in another order, until the time is over and each had three turns."""
        calls = self._probe(case, contenders)
        fastest_us = min(found[0].us for found in calls.values())
        in_the_run = [c for c in contenders if c.name in calls and not _is_hopeless(case, calls[c.name][0], fastest_us)]
        repeats = {c.name: _repeats(case, calls.pop(c.name)[0]) for c in in_the_run}
        calls.update({contender.name: [] for contender in in_the_run})
        began = time.monotonic()
        rounds = 0
        while rounds < MIN_TURNS or time.monotonic() - began < self._seconds:
            start = rounds % len(in_the_run)
            for contender in in_the_run[start:] + in_the_run[:start]:
                task = case.task(contender, repeats[contender.name])
                calls[contender.name] += self._programs[contender.program].turn(task)
            rounds += 1
        return calls

    def _probe(self, case: Case, contenders: list[Contender]) -> dict[str, list[Call]]:
        """One call of each, but for those of a kind that was far too slow at this case or at the size before."""
        calls: dict[str, list[Call]] = {}
        fastest_us = float("inf")
        for contender in contenders:
            series = _series(case, contender)
            if series in self._given_up or (*series, str(case.mean_bytes)) in self._given_up:
                continue
            call = self._try(case, contender, fastest_us)
            calls[contender.name] = [call]
            fastest_us = min(fastest_us, call.us)
        for contender in contenders:
            if contender.name not in calls or not _is_hopeless(case, calls[contender.name][0], fastest_us):
                continue
            call = self._try(case, contender, fastest_us)  # the first were tried when the others were not known
            calls[contender.name] = [call]
            if _is_hopeless(case, call, fastest_us):
                series = _series(case, contender)
                self._given_up.add(series if call.us > GIVE_UP_US else (*series, str(case.mean_bytes)))
        return calls

    def _try(self, case: Case, contender: Contender, fastest_us: float) -> Call:
        """One call; of one that others interrupted, or that seems hopeless, the best of four."""
        program = self._programs[contender.program]
        (call,) = program.turn(case.task(contender, 1))
        is_fine = not call.is_interrupted and not _is_hopeless(case, call, fastest_us)
        if is_fine or call.us > GIVE_UP_US:
            return call
        return min([call, *program.turn(case.task(contender, 3))], key=lambda call: call.us)


def _series(case: Case, contender: Contender) -> tuple[str, ...]:
    return contender.kind, case.op, case.output, case.shape


def _is_hopeless(case: Case, probe: Call, fastest_us: float) -> bool:
    by_others = probe.is_interrupted and case.has_core_each()
    return not by_others and probe.us > max(HOPELESS_US, HOPELESS_TIMES * fastest_us)


def _repeats(case: Case, probe: Call) -> int:
    return 2 if case.output == "first" else max(2, min(50, int(TURN_S * 1e6 / max(1.0, 2 * probe.us))))


def _row(case: Case, name: str, calls: list[Call]) -> ShmRow:
    alone = [call for call in calls if not call.is_interrupted]
    if len(alone) >= MIN_ALONE and case.has_core_each():
        calls = alone
    times = [call.us for call in calls]
    timing = Timing.of(times) if len(times) > 1 else Timing(times[0], 0.0, 1)
    faults = sorted(call.faults for call in calls)[len(calls) // 2]
    us, spread = round(timing.us, 3), round(timing.spread, 3)
    return ShmRow(case.op, name, case.ranks, case.shape, case.mean_bytes, us, spread, len(calls), case.output, faults)


def best_by_kind(rows: Sequence[ShmRow]) -> dict[str, float]:
    """The time of each kind of contender at its best."""
    best: dict[str, float] = {}
    for row in rows:
        kind = "plain copy" if row.contender in COPIES else kind_of(row.contender)
        best[kind] = min(row.us, best.get(kind, row.us))
    return best


def summary_of(rows: Sequence[ShmRow]) -> str:
    return ", ".join(f"{name} {us_text(us)}" for name, us in best_by_kind(rows).items())
