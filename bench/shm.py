"""How fast collectives are in shared memory: shardway against several MPIs, gloo and a plain copy."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from bench import shm_plot
from bench.mpis import PEERS, Mpi, are_crowded, found_mpis, is_mpi, kind_of, versions_of
from bench.options import parser_of
from bench.peak_memory import available_bytes
from bench.report import (
    FIELDS,
    Progress,
    bytes_text,
    print_about,
    print_claims,
    print_table,
    write_json,
)
from bench.shm_claims import Figures, Place, claims
from bench.shm_contenders import (
    CONTENDERS,
    COPIES,
    OURS,
    OURS_SHARED,
    OUT,
    POLICIES,
    PROGRAMS,
    PULLS,
    TENSORS,
    TENSORS_SHARED,
    mpi_contenders,
    mpi_programs,
)
from bench.shm_python import python_claims, python_rows
from bench.shm_rows import (
    HOPELESS_TIMES,
    KIB,
    MIB,
    OPS,
    SHAPES,
    SIZES,
    Case,
    Contest,
    ShmRow,
    best_by_kind,
    rank_programs,
    summary_of,
)
from bench.timing import BUSY_CORES, Effort

PLOTTED_SHAPE = "1:3:5"
FRESH_FROM = 1 * KIB  # other output policies are measured from here on, at the plotted shape
MANY_CORES, MANY_RANKS = 16, 8
REMARKS_SHOWN = 6

HELP = f"""
Ranks of one host move f32 tensors of several sizes per rank, in C++. Contenders:

  {OURS:26} buffers in ordinary memory, without torch, as MPI has them
  {OURS_SHARED:26} the input lies where peers can read it
  {TENSORS:26} sw::all_gather_v and so on, of tensors
  {TENSORS_SHARED:26} the same, of inputs where peers can read them
  {"every MPI":26} of the system and of --peers, as shipped and with a malloc that gives
{"":28} nothing back, each at two buffer offsets
  {", ".join(COPIES):26} each rank copies what the collective has it read, of memory of its own
  {PULLS:26} each rank reads its peers' inputs in place, and nobody waits: what no collective beats

All run at the same time, asleep, and take turns of some milliseconds in one run. Inputs are rewritten before each
call; a call lasts from the first rank's start to the last rank's end on one clock; the figure is the median. Ranks
are pinned alike: rank r to core r modulo cores. Results are checked in every turn. A case is measured again when
other programs were busy meanwhile, and calls that they interrupted do not count where enough others are left. A
contender that is {HOPELESS_TIMES:g} times slower than the fastest is not
repeated. Outputs are the caller's (out), or
fresh with the last three alive (steady), or fresh with nothing cached (first); the latter two at {PLOTTED_SHAPE}, with
tensors whose outputs are the caller's in the same run as the steady ones.

From Python, 2 ranks as torchrun starts them: sw.all_gather_v on a gloo group, sizes given, against pad-gather-mask as
people copy it, which asks for the sizes, and given them as well, and against gloo's isend and irecv. --settled pins
these ranks and schedules them as SCHED_BATCH, where gloo is at its best (bench/forked_ranks.py says why).

Leaves build/bench/shm.json and build/bench/shm.png. Exits 1 when a claim is missed.
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    began = time.monotonic()
    sizes = [1 * KIB, 64 * KIB, 4 * MIB] if options.quick else SIZES
    rows: list[ShmRow] = []
    remarks: list[str] = []
    mpis = found_mpis(options.peers)
    for ranks in options.ranks:
        print(f"\n{ranks} ranks on {len(os.sched_getaffinity(0))} cores, C++")
        rows += _measure_ranks(_cases(ranks, sizes, options.quick), mpis, options.seconds, remarks)
    if options.python:
        print(f"\n2 ranks, Python, sizes given, {PLOTTED_SHAPE}")
        large = [size for size in sizes if size >= KIB]
        rows += python_rows(2, large, Effort(seconds=3 * options.seconds), options.settled)
    _print_tables(rows)
    print_about()
    for remark in remarks[:REMARKS_SHOWN]:
        print(remark)
    if len(remarks) > REMARKS_SHOWN:
        print(f"... and {len(remarks) - REMARKS_SHOWN} more such cases, in the JSON")
    found = claims(Figures(rows)) + python_claims(rows)
    path = write_json(
        options.output / "shm.json",
        rows,
        found,
        fields={**FIELDS, "shape": "of the sizes per rank", "output": "out, steady or first", "faults": "of a call"},
        remarks=remarks,
        mpis=versions_of(mpis),
    )
    print(f"\n{path}\n{shm_plot.draw(rows, PLOTTED_SHAPE, path.with_suffix('.png'))}\n{time.monotonic() - began:.0f} s")
    return print_claims(found)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("shm", __doc__, HELP)
    many = [MANY_RANKS] if len(os.sched_getaffinity(0)) >= MANY_CORES else []
    parser.add_argument("--quick", action="store_true", help="three sizes and one shape: rough figures in a minute")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, *many], help="numbers of ranks (default: 2 4)")
    parser.add_argument("--seconds", type=float, default=0.5, help="for one case, at least three turns each")
    parser.add_argument("--peers", type=Path, default=PEERS, help="folder of newer MPIs (default: build/peers)")
    parser.add_argument("--settled", action="store_true", help="in Python: ranks scheduled as gloo likes it best")
    parser.add_argument("--no-python", dest="python", action="store_false", help="leave the Python part out")
    return parser


def _cases(ranks: int, sizes: list[int], quick: bool) -> list[Case]:
    shapes = [PLOTTED_SHAPE] if quick else SHAPES
    cases = [Case(op, OUT, ranks, shape, size) for op in OPS for shape in shapes for size in sizes]
    fresh = [size for size in sizes if size >= FRESH_FROM]
    return cases + [Case(op, policy, ranks, PLOTTED_SHAPE, s) for op in OPS for policy in POLICIES[1:] for s in fresh]


def _measure_ranks(cases: list[Case], mpis: list[Mpi], seconds: float, remarks: list[str]) -> list[ShmRow]:
    contenders = CONTENDERS + mpi_contenders(mpis)
    all_programs = PROGRAMS + mpi_programs(mpis, are_crowded(cases[0].ranks))
    rows: list[ShmRow] = []
    progress = Progress(len(cases))
    with rank_programs(cases[0].ranks, {c.program for c in contenders}, all_programs) as programs:
        contest = Contest(programs, seconds)
        for case in cases:
            what = f"{case.op:16} {case.output:6} {case.shape:9} {bytes_text(case.mean_bytes):>8}"
            if case.need_bytes() > available_bytes():
                remarks.append(f"Left out: {case.ranks} ranks, {what}: needs {bytes_text(case.need_bytes())}")
                continue
            progress.starting(what)
            found, busy = contest.measure(case, [c for c in contenders if case.output in c.policies])
            rows += found
            progress.finished(f"{what}  {summary_of(found)}")
            if busy > BUSY_CORES:
                remarks.append(f"Disturbed: {case.ranks} ranks, {what}: others kept {busy:.1f} cores busy")
    return rows


KINDS = ("plain copy", PULLS, OURS_SHARED, OURS, TENSORS_SHARED, TENSORS)


def _print_tables(rows: list[ShmRow]) -> None:
    in_cpp = [row for row in rows if row.op in OPS]
    kinds = (*KINDS, *dict.fromkeys(kind_of(row.contender) for row in in_cpp if is_mpi(row.contender)))
    for op, output, ranks in sorted({(row.op, row.output, row.ranks) for row in in_cpp}, key=str):
        print(f"\n{op}, {ranks} ranks, output: {output} (µs; page faults of a call of {TENSORS})")
        wanted = [row for row in in_cpp if (row.op, row.output, row.ranks) == (op, output, ranks)]
        places = dict.fromkeys(Place(op, output, ranks, row.shape, row.bytes) for row in wanted)
        lines = []
        for place in places:
            here = [row for row in wanted if (row.shape, row.bytes) == (place.shape, place.bytes)]
            best = best_by_kind(here)
            times = [f"{best[kind]:.1f}" if kind in best else "-" for kind in kinds]
            faults = [str(row.faults) for row in here if row.contender == TENSORS]
            lines.append([place.shape, bytes_text(place.bytes), *times, *(faults or ["-"])])
        print_table(["sizes", "a rank", *kinds, "faults"], lines)


if __name__ == "__main__":
    sys.exit(main())
