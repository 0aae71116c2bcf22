"""Large calls in shared memory against bare pulls, with the caller's outputs, steady ones and fresh ones."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.options import parser_of
from bench.peak_memory import available_bytes
from bench.report import (
    Claim,
    Progress,
    bytes_text,
    not_measured,
    print_about,
    print_claims,
    print_table,
    us_text,
    write_json,
)
from bench.shm_contenders import (
    KEEP,
    OURS,
    OURS_SHARED,
    POLICIES,
    PROGRAMS,
    PULLS,
    STEADY,
    TENSORS,
    TENSORS_SHARED,
    Contender,
)
from bench.shm_rows import MIB, Case, Contest, ShmRow, rank_programs, summary_of

OPS = ("all_gather_v", "all_reduce", "reduce_scatter_v")
SIZES = [4**k * MIB for k in range(4)]
MOST_PULLS = 1.25
SHARED = (OURS_SHARED, TENSORS_SHARED)

HELP = f"""
{", ".join(OPS)} of f32 in C++: shardway on buffers and on tensors, with inputs in ordinary memory and in shared memory,
and bare pulls (each rank reads its peers' inputs in place, and nobody waits). A policy is the same for all: out, the
caller's output; steady, a fresh one while the last three stay alive; first, a fresh one and nothing kept. Steady
outputs of buffers and of bare pulls come from a malloc that gives nothing back, those of tensors from shardway's cache.
A call's time is from the first rank's start to the last rank's end; a figure is the median of the runs.

Leaves build/bench/large.json. Exits 1 when a claim is missed.
"""


@dataclass(frozen=True)
class LargeRow(ShmRow):
    run: int


@dataclass(frozen=True)
class Place:
    op: str
    output: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.op} of {bytes_text(self.bytes)}, {self.output}"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    sizes = [size for size in SIZES if size <= options.most_mib * MIB]
    rows: list[LargeRow] = []
    for run in range(options.runs):
        print(f"\nrun {run + 1} of {options.runs}: {options.ranks} ranks, C++")
        rows += _measure(options.ranks, sizes, options.outputs, options.seconds, run)
    _print_table(rows)
    print_about()
    claims = claims_of(rows)
    print(f"\n{write_json(options.output / 'large.json', rows, claims)}")
    print(f"{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("large", __doc__, HELP)
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (default: 2)")
    parser.add_argument(
        "--outputs", nargs="+", choices=POLICIES, default=list(POLICIES), help="policies (default: all)"
    )
    parser.add_argument("--most-mib", type=float, default=64.0, help="of a rank: leave larger ones out (default: 64)")
    parser.add_argument("--runs", type=int, default=3, help="whole runs, each with ranks of its own (default: 3)")
    parser.add_argument("--seconds", type=float, default=0.4, help="for one case, at least three turns each")
    return parser


def contenders_of(output: str, op: str) -> list[Contender]:
    kept = KEEP if output == STEADY else ""
    tensors = [Contender(TENSORS, "tensors", "ordinary"), Contender(TENSORS_SHARED, "tensors", "shared")]
    return [
        Contender(OURS, f"buffers{kept}", "ordinary"),
        Contender(OURS_SHARED, f"buffers{kept}", "shared"),
        *(tensors if op != "all_reduce" else []),  # which that program has not
        Contender(PULLS, f"pull{kept}", "any"),
    ]


def _measure(ranks: int, sizes: Sequence[int], outputs: Sequence[str], seconds: float, run: int) -> list[LargeRow]:
    cases = [Case(op, output, ranks, "equal", size) for output in outputs for op in OPS for size in sizes]
    progress = Progress(len(cases))
    rows: list[LargeRow] = []
    wanted = {contender.program for case in cases for contender in contenders_of(case.output, case.op)}
    with rank_programs(ranks, wanted, PROGRAMS) as programs:
        contest = Contest(programs, seconds)
        for case in cases:
            if case.need_bytes() > available_bytes():
                progress.finished(f"{case.op}: left out, since it needs {bytes_text(case.need_bytes())} of memory")
                continue
            found, _ = contest.measure(case, contenders_of(case.output, case.op))
            rows += [LargeRow(**asdict(row), run=run) for row in found]
            progress.finished(f"{case.op:16} {case.output:6} {bytes_text(case.mean_bytes):>7}  {summary_of(found)}")
    return rows


def times_of(rows: Sequence[LargeRow]) -> dict[Place, dict[str, list[float]]]:
    """The times of every contender, a figure for each run."""
    times: dict[Place, dict[str, list[float]]] = {}
    for row in rows:
        times.setdefault(Place(row.op, row.output, row.bytes), {}).setdefault(row.contender, []).append(row.us)
    return times


def of_pulls(times: dict[str, list[float]], contender: str) -> float | None:
    """How many times longer than bare pulls it takes: the median of the runs' own ratios."""
    if contender not in times or len(times[contender]) != len(times.get(PULLS, [])):
        return None
    return statistics.median(us / pull for us, pull in zip(times[contender], times[PULLS], strict=True))


def _print_table(rows: Sequence[LargeRow]) -> None:
    names = (OURS, OURS_SHARED, TENSORS, TENSORS_SHARED)
    print(f"\nTime of a call; how many times longer than {PULLS}")
    print_table(
        ["", "output", "a rank", PULLS, *names],
        [
            [
                place.op,
                place.output,
                bytes_text(place.bytes),
                us_text(statistics.median(times[PULLS])) if PULLS in times else "-",
                *(_cell(times, name) for name in names),
            ]
            for place, times in times_of(rows).items()
        ],
    )


def _cell(times: dict[str, list[float]], name: str) -> str:
    ratio = of_pulls(times, name)
    return "-" if ratio is None else f"{us_text(statistics.median(times[name]))}, {ratio:.2f}"


def claims_of(rows: Sequence[LargeRow]) -> list[Claim]:
    times = times_of(rows)
    return [
        _claim("inputs in ordinary memory", times, (OURS, TENSORS)),
        _claim("inputs in shared memory", times, SHARED),
    ]


def _claim(which: str, times: dict[Place, dict[str, list[float]]], names: Sequence[str]) -> Claim:
    text = f"{which}: at most {MOST_PULLS:g} times the bare pulls"
    ratios = {(place, name): of_pulls(found, name) for place, found in times.items() for name in names}
    known = {key: ratio for key, ratio in ratios.items() if ratio is not None}
    if not known:
        return not_measured(text)
    place, name = max(known, key=lambda key: known[key])
    above = sum(ratio > MOST_PULLS for ratio in known.values())
    figure = f"{known[place, name]:.2f} times at {place} ({name}); {above} of {len(known)} rows above"
    return Claim(text, figure, above == 0)


if __name__ == "__main__":
    sys.exit(main())
