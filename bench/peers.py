"""Shared memory against the newest MPIs at every size: what no row may lose, on an idle host and in company."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.mpis import PEERS, Mpi, are_crowded, found_mpis, found_oneccl, is_mpi, kind_of, versions_of
from bench.options import parser_of
from bench.peak_memory import available_bytes
from bench.report import (
    Claim,
    Progress,
    bytes_text,
    geometric_mean,
    not_measured,
    print_about,
    print_claims,
    print_table,
    write_json,
)
from bench.shm_contenders import OURS, OUT, PROGRAMS, PULLS, Contender, mpi_contenders, mpi_programs
from bench.shm_rows import KIB, MIB, Case, Contest, ShmRow, rank_programs, summary_of

OPS = ("all_gather_v", "all_reduce", "reduce_scatter_v")
SIZES = [64, *(4**k * KIB for k in range(8))]
SMALL_TO = 16 * KIB
COMPANY_SECONDS = 3.0
SMALL_TIMES, LEAST_TIMES, MOST_PULLS = 2.0, 0.97, 1.25

HELP = f"""
{", ".join(OPS)} of f32 in ordinary memory, outputs the caller's, in C++: shardway without torch, every MPI of the
system and of --peers at two buffer offsets, and bare pulls (each rank reads its peers' inputs in place, and nobody
waits). They take turns in one run as in bench/shm.py, inputs rewritten before each call, ranks pinned alike, a call
from the first rank's start to the last rank's end. A figure is the median of the runs; each run starts all ranks anew.

--beside N keeps N processes busy meanwhile, which the scheduler may put on any core. No call is left out then, and a
case takes {COMPANY_SECONDS:g} times as long. Where ranks are more than cores, every MPI that can be told to yield is.

Leaves build/bench/peers.json. Exits 1 when a claim is missed.
"""


@dataclass(frozen=True)
class PeerRow(ShmRow):
    beside: int  # busy processes
    run: int


@dataclass(frozen=True)
class Place:
    ranks: int
    beside: int
    op: str
    bytes: int

    @property
    def company(self) -> str:
        return f"{self.ranks} ranks" + (f" beside {self.beside} busy processes" if self.beside else "")

    def __str__(self) -> str:
        return f"{self.op} of {bytes_text(self.bytes)}, {self.company}"


@dataclass(frozen=True)
class Compared:
    """Medians over the runs, in µs; ratios are medians of the runs' own."""

    ours: float
    pulls: float | None
    peer: float
    peer_name: str
    times: float  # how many times longer the best peer takes
    of_pulls: float | None  # how many times longer we take


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    mpis = found_mpis(options.peers) + (found_oneccl(options.peers) if options.oneccl else [])
    sizes = [64, 4 * KIB, 64 * KIB, 1 * MIB] if options.quick else SIZES
    sizes = [size for size in sizes if size <= options.most_mib * MIB]
    rows: list[PeerRow] = []
    for run in range(options.runs):
        for ranks in options.ranks:
            for beside in options.beside:
                print(f"\nrun {run + 1} of {options.runs}: {Place(ranks, beside, '', 0).company}, C++")
                cases = [Case(op, OUT, ranks, "equal", size, beside) for op in OPS for size in sizes]
                with _busy(beside):
                    rows += _measure(cases, mpis, options.seconds * (COMPANY_SECONDS if beside else 1.0), run)
    compared = compare(rows)
    _print_tables(compared)
    print_about()
    claims = claims_of(compared)
    print(f"\n{write_json(options.output / 'peers.json', rows, claims, mpis=versions_of(mpis))}")
    print(f"{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("peers", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="four sizes")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2], help="numbers of ranks (default: 2)")
    parser.add_argument("--beside", type=int, nargs="+", default=[0], help="numbers of busy processes (default: 0)")
    parser.add_argument("--most-mib", type=float, default=16.0, help="of a rank: leave larger ones out (default: 16)")
    parser.add_argument("--runs", type=int, default=5, help="whole runs, each with ranks of its own (default: 5)")
    parser.add_argument("--seconds", type=float, default=0.4, help="for one case, at least three turns each")
    parser.add_argument("--peers", type=Path, default=PEERS, help="folder of newer MPIs (default: build/peers)")
    parser.add_argument("--oneccl", action="store_true", help="race oneCCL too (scripts/setup oneccl)")
    return parser


def _measure(cases: list[Case], mpis: Sequence[Mpi], seconds: float, run: int) -> list[PeerRow]:
    ranks, beside = cases[0].ranks, cases[0].beside
    contenders = [
        Contender(OURS, "buffers", "ordinary"),
        Contender(PULLS, "pull", "any"),
        *(c for c in mpi_contenders(mpis) if c.program in {mpi.label for mpi in mpis}),
    ]
    all_programs = PROGRAMS + mpi_programs(mpis, are_crowded(ranks))
    rows: list[PeerRow] = []
    progress = Progress(len(cases))
    with rank_programs(ranks, {c.program for c in contenders}, all_programs) as programs:
        contest = Contest(programs, seconds)
        for case in cases:
            if case.need_bytes() > available_bytes():
                progress.finished(f"{case.op}: left out, since it needs {bytes_text(case.need_bytes())} of memory")
                continue
            taking_part = [c for c in contenders if c.name != PULLS or case.op != "all_reduce"]
            found, _ = contest.measure(case, taking_part)
            rows += [PeerRow(**asdict(row), beside=beside, run=run) for row in found]
            progress.finished(f"{case.op:16} {bytes_text(case.mean_bytes):>8}  {summary_of(found)}")
    return rows


@contextlib.contextmanager
def _busy(processes: int) -> Iterator[None]:
    """So many processes that compute all the time, until the end of the block."""
    started = [multiprocessing.get_context("fork").Process(target=_compute, daemon=True) for _ in range(processes)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.join()


def _compute() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(100_000))


def compare(rows: Sequence[PeerRow]) -> dict[Place, Compared]:
    by_place: dict[Place, dict[int, dict[str, float]]] = {}
    for row in rows:
        of_run = by_place.setdefault(Place(row.ranks, row.beside, row.op, row.bytes), {}).setdefault(row.run, {})
        kind = kind_of(row.contender)
        of_run[kind] = min(row.us, of_run.get(kind, row.us))
    compared = {}
    for place, runs in by_place.items():
        whole = [us for us in runs.values() if OURS in us and any(map(is_mpi, us))]
        if whole:
            compared[place] = _compared(whole)
    return compared


def _compared(runs: Sequence[dict[str, float]]) -> Compared:
    """Of the runs' times by kind of contender."""
    best = [min((us, kind) for kind, us in run.items() if is_mpi(kind)) for run in runs]
    with_pulls = [run for run in runs if PULLS in run]
    peer, name = sorted(best)[len(best) // 2]
    return Compared(
        statistics.median(run[OURS] for run in runs),
        statistics.median(run[PULLS] for run in with_pulls) if with_pulls else None,
        peer,
        name,
        statistics.median(us / run[OURS] for (us, _), run in zip(best, runs, strict=True)),
        statistics.median(run[OURS] / run[PULLS] for run in with_pulls) if with_pulls else None,
    )


def _print_tables(compared: dict[Place, Compared]) -> None:
    for company in dict.fromkeys(place.company for place in compared):
        here = {place: found for place, found in compared.items() if place.company == company}
        print(f"\n{company}: time of a call in µs; MPI at its best")
        print_table(
            ["", "a rank", PULLS, OURS, "best MPI", "which", "times faster"],
            [
                [
                    place.op,
                    bytes_text(place.bytes),
                    _us(f.pulls),
                    _us(f.ours),
                    _us(f.peer),
                    f.peer_name,
                    f"{f.times:.2f}",
                ]
                for place, f in here.items()
            ],
        )
    print("\nTimes faster than the best MPI: geometric mean, least (where); up to 16 KiB the mean alone")
    print_table(
        ["", *OPS],
        [
            [company, *(_summary(compared, company, op) for op in OPS)]
            for company in dict.fromkeys(place.company for place in compared)
        ],
    )


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:.2f}" if us < 100 else f"{us:.0f}"


def _summary(compared: dict[Place, Compared], company: str, op: str) -> str:
    here = {place: found.times for place, found in compared.items() if (place.company, place.op) == (company, op)}
    if not here:
        return "-"
    least = min(here, key=lambda place: here[place])
    small = [times for place, times in here.items() if place.bytes <= SMALL_TO]
    of_small = f"; {geometric_mean(small):.2f}" if small else ""
    return f"{geometric_mean(list(here.values())):.2f}, {here[least]:.2f} ({bytes_text(least.bytes)}){of_small}"


def claims_of(compared: dict[Place, Compared]) -> list[Claim]:
    alone = {place: found for place, found in compared.items() if not place.beside}
    together = {place: found for place, found in compared.items() if place.beside}
    return [
        _small_claim(alone),
        _pull_claim(alone),
        _least_claim("every row", alone),
        _least_claim("every row in company", together),
    ]


def _small_claim(compared: dict[Place, Compared]) -> Claim:
    text = f"up to {bytes_text(SMALL_TO)}: at least {SMALL_TIMES:g} times the best MPI in the geometric mean"
    small = {place: found.times for place, found in compared.items() if place.bytes <= SMALL_TO}
    if not small:
        return not_measured(text)
    mean = geometric_mean(list(small.values()))
    by_ranks = {
        ranks: geometric_mean([times for place, times in small.items() if place.ranks == ranks])
        for ranks in dict.fromkeys(place.ranks for place in small)
    }
    of_each = ", ".join(f"{found:.2f} with {ranks} ranks" for ranks, found in by_ranks.items())
    return Claim(text, f"{mean:.2f} times ({of_each})", min(by_ranks.values()) >= SMALL_TIMES)


def _pull_claim(compared: dict[Place, Compared]) -> Claim:
    text = f"above {bytes_text(SMALL_TO)}, a core for each rank: at most {MOST_PULLS:g} times the bare pulls"
    large = {
        place: found.of_pulls
        for place, found in compared.items()
        if place.bytes > SMALL_TO and not are_crowded(place.ranks) and found.of_pulls is not None
    }
    if not large:
        return not_measured(text)
    most = max(large, key=lambda place: large[place])
    return Claim(text, f"{large[most]:.2f} times at {most}", large[most] <= MOST_PULLS)


def _least_claim(which: str, compared: dict[Place, Compared]) -> Claim:
    text = f"{which}: at least {LEAST_TIMES:g} times as fast as the best MPI"
    if not compared:
        return not_measured(text)
    least = min(compared, key=lambda place: compared[place].times)
    below = sum(found.times < LEAST_TIMES for found in compared.values())
    figure = f"{compared[least].times:.2f} times at {least}; {below} of {len(compared)} rows below"
    return Claim(text, figure, below == 0)


if __name__ == "__main__":
    sys.exit(main())
