"""All-reduces and gathers from Python against those that inference engines have for the CPU ranks of one host."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.engine_bits import SAME_AT_SIZES, SAME_ON_RANKS, Bits, bits_of
from bench.engine_contenders import BACKEND, DTYPES, GLOO, OPS, OURS, PREPARED, Case, Groups, Race
from bench.engine_modules import Module, found_modules, join_engines
from bench.forked_ranks import run_ranks
from bench.mpis import PEERS
from bench.options import parser_of
from bench.report import (
    Claim,
    Progress,
    Row,
    bytes_text,
    geometric_mean,
    not_measured,
    print_about,
    print_claims,
    print_table,
    us_text,
    write_json,
)
from bench.timing import Effort, Meeting, Timing, interleaved

KIB, MIB = 1 << 10, 1 << 20
SIZES = [64, *(4**k * KIB for k in range(8))]
WAYS = [OURS, PREPARED, BACKEND]
BITS_RANKS = 3
LEAST_TIMES = 0.97
LIMIT_S = 1800.0

HELP = f"""
{" and ".join(OPS)} of {" and ".join(DTYPES)}, {bytes_text(SIZES[0])} to {bytes_text(SIZES[-1])} a rank:
  {OURS:30} sw.all_reduce(x, out=), sw.all_gather_v(x, sizes=, out=)
  {PREPARED:30} the same by sw.prepare
  {BACKEND:30} dist.all_reduce and dist.all_gather_single on the backend "shardway"
  vLLM, DeepSpeed                their operators for CPU ranks that share memory, one thread a rank
  {GLOO:30} dist.all_reduce and dist.all_gather_single on gloo
Those of vLLM and DeepSpeed are called as they are bound, without the engines' Python around them. Their all-reduces and
those of dist overwrite the input, ours do not. DeepSpeed has no gather; vLLM takes 2, 3, 4 or 8 ranks. What is not
installed (scripts/setup engines) is left out, and so are both on a processor without AVX-512: there they use gloo.

The contenders take turns of some calls, inputs rewritten before each call, outputs the caller's, ranks pinned alike and
scheduled as gloo likes it best. A call lasts from the first rank's start to the last rank's end. Results are checked
before and after. A figure is the median of the runs; each run starts all ranks anew.

Then {BITS_RANKS} ranks add floats whose sum shows its order: are its bits {SAME_ON_RANKS}, and
{SAME_AT_SIZES} of the message?

Leaves build/bench/engines.json. Exits 1 when a claim is missed.
"""


@dataclass(frozen=True)
class EngineRow(Row):
    dtype: str
    run: int


@dataclass(frozen=True)
class Place:
    op: str
    dtype: str
    ranks: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.op} of {bytes_text(self.bytes)}, {self.dtype}, {self.ranks} ranks"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    torch.set_num_threads(1)
    modules = found_modules(options.peers)
    print(f"Engines: {', '.join(module.name for module in modules) or 'none; scripts/setup engines installs them'}")
    sizes = [64, 64 * KIB, 1 * MIB] if options.quick else SIZES
    runs = options.runs or (1 if options.quick else 5)
    session = f"shardway-bench-{os.getpid()}"
    rows: list[EngineRow] = []
    for run in range(runs):
        for ranks in options.ranks:
            print(f"\nrun {run + 1} of {runs}: {ranks} ranks")
            cases = [Case(op, dtype, ranks, size) for op in OPS for dtype in DTYPES for size in sizes]
            task = (Meeting(ranks), cases, Effort(seconds=options.seconds), modules, f"{session}-{ranks}-{run}", run)
            rows += run_ranks(ranks, _measure, *task, timeout_s=LIMIT_S)[0]
    bits = bits_of(BITS_RANKS, modules, f"{session}-bits")
    _print_tables(rows)
    _print_bits(bits)
    print_about()
    claims = claims_of(rows, bits)
    names = [module.name for module in modules]
    print(f"\n{write_json(options.output / 'engines.json', rows, claims, engines=names, bits=[vars(b) for b in bits])}")
    print(f"{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("engines", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="three sizes and one run")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2], help="numbers of ranks (default: 2)")
    parser.add_argument("--runs", type=int, help="whole runs, each with ranks of its own (default: 5, quick 1)")
    parser.add_argument("--seconds", type=float, default=0.4, help="for one case, at least five rounds")
    parser.add_argument("--peers", type=Path, default=PEERS, help="folder of the engines (default: build/peers)")
    return parser


def _measure(
    rank: int,
    ranks: int,
    meeting: Meeting,
    cases: Sequence[Case],
    effort: Effort,
    modules: Sequence[Module],
    session: str,
    run: int,
) -> list[EngineRow]:
    groups = Groups.make(join_engines(modules, rank, ranks, session))
    progress = Progress(len(cases))
    rows = []
    for case in cases:
        race = Race(case, rank, groups)
        timings = interleaved(meeting, rank, race.contenders, effort)
        race.check()
        race.close()
        rows += [_row(case, name, timing, run) for name, timing in timings.items()]
        if rank == 0:
            progress.finished(f"{case.op:10} {case.dtype:4} {bytes_text(case.bytes):>8}  {_summary(timings)}")
    return rows


def _row(case: Case, name: str, timing: Timing, run: int) -> EngineRow:
    us, spread = round(timing.us, 3), round(timing.spread, 3)
    return EngineRow(case.op, name, case.ranks, (case.count,), case.bytes, us, spread, timing.samples, case.dtype, run)


def _summary(timings: Mapping[str, Timing]) -> str:
    return ", ".join(f"{name} {us_text(timing.us)}" for name, timing in timings.items())


def is_engine(contender: str) -> bool:
    return contender not in (*WAYS, GLOO)


def by_place(rows: Sequence[EngineRow]) -> dict[Place, list[dict[str, float]]]:
    """The times of each run, by contender."""
    found: dict[Place, dict[int, dict[str, float]]] = {}
    for row in rows:
        runs = found.setdefault(Place(row.op, row.dtype, row.ranks, row.bytes), {})
        runs.setdefault(row.run, {})[row.contender] = row.us
    return {place: list(runs.values()) for place, runs in found.items()}


def times_faster(runs: Sequence[Mapping[str, float]], ways: Sequence[str]) -> float | None:
    """How many times longer the best engine takes than the best of our ways: the median of the runs' ratios."""
    ratios = [
        min(us for name, us in run.items() if is_engine(name)) / min(run[way] for way in ways if way in run)
        for run in runs
        if any(map(is_engine, run)) and any(way in run for way in ways)
    ]
    return statistics.median(ratios) if ratios else None


def claims_of(rows: Sequence[EngineRow], bits: Sequence[Bits]) -> list[Claim]:
    places = by_place(rows)
    return [
        _least_claim("sw.all_reduce and sw.all_gather_v", places, [OURS]),
        _least_claim("the same prepared", places, [PREPARED]),
        _least_claim("the fastest of shardway's ways", places, WAYS),
        _bits_claim(bits),
    ]


def _least_claim(which: str, places: Mapping[Place, list[dict[str, float]]], ways: Sequence[str]) -> Claim:
    text = f"{which}, every row: at least {LEAST_TIMES:g} times as fast as the best engine's"
    found = {place: times for place, runs in places.items() if (times := times_faster(runs, ways)) is not None}
    if not found:
        return not_measured(text)
    least = min(found, key=lambda place: found[place])
    below = sum(times < LEAST_TIMES for times in found.values())
    mean = geometric_mean(list(found.values()))
    figure = f"{found[least]:.2f} times at {least}; {below} of {len(found)} rows below; {mean:.2f} in the mean"
    return Claim(text, figure, below == 0)


def _bits_claim(bits: Sequence[Bits]) -> Claim:
    text = f"{OURS}, the bits of a sum on {BITS_RANKS} ranks: {SAME_ON_RANKS} and {SAME_AT_SIZES}"
    ours = [found for found in bits if found.contender in WAYS]
    if not ours:
        return not_measured(text)
    same = {dtype for dtype in DTYPES if all(dtype in f.same_on_ranks and dtype in f.same_at_sizes for f in ours)}
    return Claim(text, _and(sorted(same)), same == set(DTYPES))


def _print_tables(rows: Sequence[EngineRow]) -> None:
    places = by_place(rows)
    for op, dtype, ranks in dict.fromkeys((place.op, place.dtype, place.ranks) for place in places):
        here = {p: runs for p, runs in places.items() if (p.op, p.dtype, p.ranks) == (op, dtype, ranks)}
        names = list(dict.fromkeys(name for runs in here.values() for run in runs for name in run))
        print(f"\n{op} of {dtype}, {ranks} ranks: time of a call in µs; {OURS} against the best engine's")
        print_table(["a rank", *names, "times faster"], [_line(place, runs, names) for place, runs in here.items()])


def _line(place: Place, runs: Sequence[Mapping[str, float]], names: Sequence[str]) -> list[str]:
    times = times_faster(runs, [OURS])
    us = [statistics.median(run[name] for run in runs) for name in names]
    ratio = "-" if times is None else f"{times:.2f}"
    return [bytes_text(place.bytes), *(f"{one:.2f}" if one < 100 else f"{one:.0f}" for one in us), ratio]


def _print_bits(bits: Sequence[Bits]) -> None:
    print(
        f"\nall_reduce, {BITS_RANKS} ranks: the dtypes that are added rightly, and those whose sums have bits that are"
    )
    print_table(
        ["", "added rightly", SAME_ON_RANKS, SAME_AT_SIZES],
        [[b.contender, _and(b.dtypes), _and(b.same_on_ranks), _and(b.same_at_sizes)] for b in bits],
    )


def _and(words: Sequence[str]) -> str:
    return ", ".join(words) or "none"


if __name__ == "__main__":
    sys.exit(main())
