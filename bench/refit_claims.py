"""What bench/refit.py claims, of the figures that it found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.refit_contenders import BUCKETS, COPY, GATHERED, HOLDS, OURS, SHARED, TRAINER_COPY
from bench.refit_models import SMALL
from bench.refit_rows import RefitRow
from bench.report import Claim, us_text

MANY_CORES, FEW_TIMES, MANY_TIMES, ORDINARY_TIMES = 16, 1.4, 1.2, 2.2
TIMES_GATHERED, TIMES_BUCKETS, TIMES_HOLDS = 20.0, 5.0, 1.2
SMALL_US, SMALL_RANKS = 300.0, (2, 2)

Rows = dict[str, RefitRow]


def _by_case(rows: Sequence[RefitRow]) -> Iterator[tuple[str, Rows]]:
    for case in dict.fromkeys((row.op, row.trainers, row.generators) for row in rows):
        some = {row.contender: row for row in rows if (row.op, row.trainers, row.generators) == case}
        yield f"{case[0]}, {case[1]}+{case[2]} ranks", some


def claims_of(rows: Sequence[RefitRow]) -> list[Claim]:
    claims = []
    for what, case in _by_case(rows):
        claims += _of_small(what, case) if case[OURS].op == SMALL else _of_model(what, case)
        ratio = case[OURS].sent / case[OURS].least
        claims.append(Claim(f"{what}: bytes sent are the least that must be", f"{ratio:.3f} times", ratio == 1))
    return claims


def _of_model(what: str, case: Rows) -> list[Claim]:
    limit = MANY_TIMES if case[OURS].cores >= MANY_CORES else FEW_TIMES
    others = ((GATHERED, TIMES_GATHERED), (BUCKETS, TIMES_BUCKETS))  # left out with --links
    return [
        _at_most(what, case, SHARED, COPY, limit),
        _at_most(what, case, OURS, COPY, ORDINARY_TIMES),
        *(_faster(what, case, other, times) for other, times in others if other in case),
        _at_most(what, case, HOLDS, TRAINER_COPY, TIMES_HOLDS),
    ]


def _at_most(what: str, case: Rows, contender: str, floor: str, limit: float) -> Claim:
    times = case[contender].us / case[floor].us
    return Claim(f"{what}: {contender}, at most {limit:g} times a {floor}", f"{times:.2f} times", times <= limit)


def _faster(what: str, case: Rows, than: str, limit: float) -> Claim:
    times = case[than].us / case[OURS].us
    return Claim(f"{what}: {limit:g} times faster than {than}", f"{times:.1f} times", times >= limit)


def _has_cores(row: RefitRow) -> bool:
    return (row.trainers, row.generators) == SMALL_RANKS and row.cores >= sum(SMALL_RANKS)


def _of_small(what: str, case: Rows) -> list[Claim]:
    us = case[OURS].us
    if not _has_cores(case[OURS]):
        return []
    return [Claim(f"{what}: a repeated run takes less than {SMALL_US:g} µs", us_text(us), us < SMALL_US)]


def not_measured(rows: Sequence[RefitRow]) -> list[str]:
    """Claims about which this run says nothing."""
    found = []
    cores = max((row.cores for row in rows), default=0)
    if not any(row.op == SMALL and _has_cores(row) for row in rows):
        found.append(f"{SMALL}: less than {SMALL_US:g} µs on 2+2 ranks with a core each")
    if cores < MANY_CORES:
        found.append(f"models: at most {MANY_TIMES:g} times a copy on {MANY_CORES} cores; this machine has {cores}")
    return found
