"""The part of bench/backend.py without Python: programs of ranks in C++, shardway's against those of several MPIs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.mpis import Mpi, are_crowded, is_mpi, kind_of
from bench.peak_memory import available_bytes
from bench.report import Claim, Progress, bytes_text, geometric_mean, not_measured, print_table
from bench.shm_contenders import OUT, PROGRAMS, Contender, mpi_contenders, mpi_programs
from bench.shm_rows import KIB, Case, Contest, ShmRow, best_by_kind, rank_programs, summary_of
from bench.timing import BUSY_CORES

ALL_REDUCE, BROADCAST, BARRIER = OPS = ("all_reduce", "broadcast", "barrier")
SPANS, BACKEND = "shardway in C++", "the backend in C++"
CONTENDERS = [
    Contender(SPANS, "buffers", "ordinary"),
    Contender(BACKEND, "backend", "ordinary"),
]
NEVER_SLOWER_FROM = 1 * KIB
TIMES_FASTER = 2.0


def measure(ranks: int, sizes: Sequence[int], seconds: float, mpis: Sequence[Mpi], notes: list[str]) -> list[ShmRow]:
    rows: list[ShmRow] = []
    contenders = CONTENDERS + [contender for contender in mpi_contenders(mpis) if OUT in contender.policies]
    cases = [Case(BARRIER, OUT, ranks, "equal", 0)]
    cases += [Case(op, OUT, ranks, "equal", size) for size in sizes for op in (ALL_REDUCE, BROADCAST)]
    progress = Progress(len(cases))
    all_programs = PROGRAMS + mpi_programs(mpis, are_crowded(ranks))
    with rank_programs(ranks, {contender.program for contender in contenders}, all_programs) as programs:
        contest = Contest(programs, seconds)
        for case in cases:
            what = f"{bytes_text(case.mean_bytes):8} {case.op:22}"
            if case.need_bytes() > available_bytes():
                notes.append(f"{ranks} ranks, C++, {what}: needs {bytes_text(case.need_bytes())} of memory")
                continue
            found, busy = contest.measure(case, contenders)
            rows += found
            progress.finished(f"{what}  {summary_of(found)}")
            if busy > BUSY_CORES:
                notes.append(f"{ranks} ranks, C++, {what}: others kept {busy:.1f} cores busy")
    return rows


def _times_faster(rows: Sequence[ShmRow], op: str, ranks: int, ours: str) -> dict[int, float]:
    """By size: how many times longer the best MPI takes."""
    found: dict[int, float] = {}
    of_op = [row for row in rows if (row.op, row.ranks) == (op, ranks)]
    for mine in of_op:
        theirs = [row.us for row in of_op if row.bytes == mine.bytes and is_mpi(row.contender)]
        if mine.contender == ours and theirs:
            found[mine.bytes] = min(theirs) / mine.us
    return found


def claims_of(rows: Sequence[ShmRow]) -> list[Claim]:
    in_the_mean = f"{ALL_REDUCE} in C++: at least {TIMES_FASTER:g} times the best MPI in the geometric mean"
    everywhere = f"{ALL_REDUCE} in C++: never slower than the best MPI from {bytes_text(NEVER_SLOWER_FROM)}"
    by_ranks = {ranks: _times_faster(rows, ALL_REDUCE, ranks, SPANS) for ranks in sorted({row.ranks for row in rows})}
    places = [(found, size, ranks) for ranks, times in by_ranks.items() for size, found in times.items()]
    if not places:
        return [not_measured(in_the_mean), not_measured(everywhere)]
    mean = geometric_mean([found for found, _, _ in places])
    of_each = ", ".join(
        f"{geometric_mean(list(times.values())):.2f} with {ranks} ranks" for ranks, times in by_ranks.items() if times
    )
    claims = [Claim(in_the_mean, f"{mean:.2f} times ({of_each})", mean >= TIMES_FASTER)]
    large = [place for place in places if place[1] >= NEVER_SLOWER_FROM]
    if not large:
        return [*claims, not_measured(everywhere)]
    least, size, ranks = min(large)
    figure = f"{least:.2f} times as fast at {bytes_text(size)}, {ranks} ranks"
    return [*claims, Claim(everywhere, figure, least >= 1)]


def print_tables(rows: Sequence[ShmRow]) -> None:
    kinds = (SPANS, BACKEND, *dict.fromkeys(kind_of(row.contender) for row in rows if is_mpi(row.contender)))
    for ranks in sorted({row.ranks for row in rows}):
        print(f"\n{ranks} ranks, C++: time of a call in µs; MPI at its best")
        lines = []
        for op, size in dict.fromkeys((row.op, row.bytes) for row in rows if row.ranks == ranks):
            best = best_by_kind([row for row in rows if (row.op, row.ranks, row.bytes) == (op, ranks, size)])
            times = [f"{best[kind]:.1f}" if kind in best else "-" for kind in kinds]
            faster = _times_faster(rows, op, ranks, SPANS).get(size)
            lines.append([f"{bytes_text(size)} {op}", *times, f"{faster:.1f}" if faster else "-"])
        print_table(["", *kinds, "faster"], lines)
