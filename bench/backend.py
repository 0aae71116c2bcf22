"""How fast torch.distributed is on the backend "shardway", on one host: against gloo, and in C++ against MPIs."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from bench import backend_programs
from bench.backend_contenders import BARRIER, FLOAT_BYTES, OPS, OURS, PEER, STEP, Case, Groups, steps
from bench.forked_ranks import run_ranks
from bench.mpis import PEERS, found_mpis, versions_of
from bench.options import parser_of
from bench.peak_memory import available_bytes
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
from bench.shm_rows import ShmRow
from bench.timing import BUSY_CORES, Effort, Meeting, Timing, undisturbed

SIZES = [FLOAT_BYTES * 4**power for power in range(13)]  # 4 B to 64 MiB
MOST_US_OF_SMALLEST = 15.0
TIMES_FASTER = 10.0
FIELDS = {
    "shape": "elements of the larger of input and output, f32",
    "bytes": "of the larger of input and output",
    "us": "median of the samples, from the first rank's start to the last rank's end",
    "spread": "third quartile minus first, as a share of the median",
}

HELP = f"""
The same calls of torch.distributed on two groups of the same ranks: {OURS} and {PEER}. They take turns of some
calls, inputs rewritten before each call, outputs the caller's. A call lasts from the first rank's start to the last
rank's end; the figure is the median. Results are checked once per row. A row is measured again when other programs were
busy meanwhile.

Ranks run as torchrun starts them. Where they have no more than a core each, gloo is several times faster, and its
figures steadier, when they are pinned to a core and scheduled as SCHED_BATCH (bench/forked_ranks.py says why):
--settled does that.

In C++: shardway's calls on plain memory, the backend's on tensors, those of every MPI of the system and of --peers, as
it is shipped and with a malloc that gives nothing back, each at two buffer offsets. They take turns as in
bench/shm.py, pinned alike.

Leaves build/bench/backend.json. Exits 1 when a claim is missed.
"""


@dataclass
class Findings:
    rows: list[Row]
    notes: list[str]


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("backend", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="2 ranks and few samples: about a minute, rough figures")
    parser.add_argument("--ranks", type=int, nargs="+", help="numbers of ranks (default: 2 4, quick 2)")
    parser.add_argument("--seconds", type=float, help="time for one row (default: 1, quick 0.2; at least 5 rounds)")
    parser.add_argument("--no-programs", dest="programs", action="store_false", help="leave the part in C++ out")
    parser.add_argument("--peers", type=Path, default=PEERS, help="folder of newer MPIs (default: build/peers)")
    parser.add_argument("--settled", action="store_true", help="pin the ranks and schedule them as gloo likes it best")
    options = parser.parse_args(arguments)

    all_ranks = options.ranks or ([2] if options.quick else [2, 4])
    effort = Effort(seconds=options.seconds or (0.2 if options.quick else 1.0))
    torch.set_num_threads(1)
    print(f"torch.distributed on {OURS} and on {PEER}, one host, ranks {all_ranks}.")
    began = time.monotonic()
    findings = Findings([], [])
    for ranks in all_ranks:
        print(f"\n{ranks} ranks")
        found = run_ranks(ranks, _measure, Meeting(ranks), effort, timeout_s=3600.0, settled=options.settled)[0]
        findings.rows += found.rows
        findings.notes += found.notes
    in_cpp: list[ShmRow] = []
    mpis = found_mpis(options.peers) if options.programs else []
    for ranks in all_ranks if options.programs else []:
        print(f"\n{ranks} ranks, C++")
        in_cpp += backend_programs.measure(ranks, SIZES, effort.seconds / 2, mpis, findings.notes)
    _print_tables(findings)
    backend_programs.print_tables(in_cpp)
    print_about()
    claims = claims_of(findings.rows) + backend_programs.claims_of(in_cpp)
    more = {"notes": findings.notes, "mpis": versions_of(mpis)}
    path = write_json(options.output / "backend.json", [*findings.rows, *in_cpp], claims, FIELDS, **more)
    print(f"\n{path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _measure(rank: int, ranks: int, meeting: Meeting, effort: Effort) -> Findings:
    findings = Findings([], [])
    groups = Groups.make()
    cases = [Case(op, rank, ranks, size) for size in SIZES for op in OPS]
    cases.insert(0, Case(BARRIER, rank, ranks, 0))
    progress = Progress(len(cases) + 1)
    for case in cases:
        need = 6 * ranks * case.bytes
        if not meeting.agree(rank, need < available_bytes()):
            findings.notes.append(
                f"{ranks} ranks, {bytes_text(case.bytes)} {case.op}: needs {bytes_text(need)} of memory"
            )
            continue
        what = f"{bytes_text(case.bytes):8} {case.op:22}"
        timings, busy = undisturbed(meeting, rank, case.contenders(groups), effort)
        findings.rows += [_row(case.op, name, ranks, case.count, timing) for name, timing in timings.items()]
        if rank == 0:
            progress.finished(f"{what} {_summary(timings)}")
            if busy > BUSY_CORES:
                findings.notes.append(f"{ranks} ranks, {what}: others kept {busy:.1f} cores busy")
    timings, _ = undisturbed(meeting, rank, steps(groups), effort)
    findings.rows += [_row(STEP, name, ranks, 0, timing) for name, timing in timings.items()]
    if rank == 0:
        progress.finished(f"{'':8} {STEP:22} {_summary(timings)}")
    return findings


def _row(op: str, name: str, ranks: int, count: int, timing: Timing) -> Row:
    size = count * FLOAT_BYTES
    return Row(op, name, ranks, (count,), size, round(timing.us, 2), round(timing.spread, 3), timing.samples)


def _summary(timings: Mapping[str, Timing]) -> str:
    parts = [f"{name} {us_text(timing.us)} ±{timing.spread / 2:.0%}" for name, timing in timings.items()]
    return f"{timings[PEER].us / timings[OURS].us:6.1f}x   " + ", ".join(parts)


def _faster(rows: Sequence[Row]) -> list[tuple[Row, float]]:
    """Our rows, and how many times longer the other takes."""
    theirs = {(row.op, row.ranks, row.bytes): row.us for row in rows if row.contender == PEER}
    return [(row, theirs[row.op, row.ranks, row.bytes] / row.us) for row in rows if row.contender == OURS]


def claims_of(rows: Sequence[Row]) -> list[Claim]:
    ratios = _faster(rows)
    calls = [(times, row) for row, times in ratios if row.op != STEP]
    of_steps = [(times, row) for row, times in ratios if row.op == STEP]
    a_step = "a DDP step: faster than on"
    return [
        _smallest(rows),
        *_every_call(calls),
        *(Claim(f"{a_step} {PEER}, {row.ranks} ranks", f"{times:.2f} times", times > 1) for times, row in of_steps),
        *([] if of_steps else [not_measured(f"{a_step} {PEER}")]),
    ]


def _smallest(rows: Sequence[Row]) -> Claim:
    text = f"all_reduce of {SIZES[0]} bytes on 2 ranks: under {MOST_US_OF_SMALLEST:g} µs"
    for row in rows:
        if (row.op, row.contender, row.ranks, row.bytes) == ("all_reduce", OURS, 2, SIZES[0]):
            return Claim(text, us_text(row.us), row.us < MOST_US_OF_SMALLEST)
    return not_measured(text)


def _every_call(calls: Sequence[tuple[float, Row]]) -> list[Claim]:
    in_the_mean = f"all calls and sizes: at least {TIMES_FASTER:g} times faster than {PEER} in the geometric mean"
    everywhere = f"every call and size: no slower than {PEER}"
    if not calls:
        return [not_measured(in_the_mean), not_measured(everywhere)]
    mean = geometric_mean([times for times, _ in calls])
    least, slowest = min(calls, key=lambda found: found[0])
    figure = f"{least:.2f} times at {slowest.op} of {bytes_text(slowest.bytes)}, {slowest.ranks} ranks"
    return [
        Claim(in_the_mean, f"{mean:.1f} times", mean >= TIMES_FASTER),
        Claim(everywhere, figure, least >= 1),
    ]


def _print_tables(findings: Findings) -> None:
    us = {(row.ranks, row.op, row.bytes, row.contender): row.us for row in findings.rows}
    for ranks in sorted({row.ranks for row in findings.rows}):
        print(f"\n{ranks} ranks: time of a call")
        lines = [
            [f"{bytes_text(row.bytes)} {row.op}", us_text(row.us), us_text(peer), f"{peer / row.us:.1f}"]
            for row in findings.rows
            if row.ranks == ranks and row.contender == OURS and (peer := us[ranks, row.op, row.bytes, PEER])
        ]
        print_table(["", OURS, PEER, "faster"], lines)
    for note in findings.notes:
        print(f"Note: {note}")


if __name__ == "__main__":
    sys.exit(main())
