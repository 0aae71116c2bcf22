"""The part of bench/overhead.py on ranks that communicate: what Python adds to a call of 64 bytes in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers the backend "fake")

import shardway as sw
from bench.forked_ranks import run_ranks
from bench.mpis import RANK_PROGRAMS
from bench.report import Claim, Row, not_measured
from bench.shm_contenders import OUT, PROGRAMS
from bench.shm_contenders import Contender as Program
from bench.shm_rows import Case, Contest, rank_programs
from bench.timing import Contender, Effort, Meeting, Timing, interleaved

BYTES = 64
GATHER, SCATTER, REDUCE, DIST_REDUCE = "all_gather_v", "reduce_scatter_v", "all_reduce", "dist.all_reduce"
CPP, PYTHON, PREPARED = "C++", "Python", "prepared, Python"
OURS, NOTHING = "shardway", "a backend that does nothing"
MANY_RANKS = 9  # from here on Python may add more
MOST_US, MOST_US_OF_MANY, MOST_PREPARED_US, MOST_DIST_US = 2.5, 5.0, 1.0, 1.0
LIMIT_S = 300.0


def measure(ranks: int, seconds: float) -> list[Row]:
    return _in_cpp(ranks, seconds) + run_ranks(ranks, _from_python, Meeting(ranks), seconds, timeout_s=LIMIT_S)[0]


def _in_cpp(ranks: int, seconds: float) -> list[Row]:
    """Calls on spans; nothing where the program of ranks has not been built."""
    if not (RANK_PROGRAMS / "shm_ranks").exists():
        return []
    with rank_programs(ranks, {"buffers"}, PROGRAMS) as programs:
        contest = Contest(programs, seconds)
        cases = [Case(op, OUT, ranks, "equal", BYTES) for op in (GATHER, SCATTER, REDUCE)]
        found = [row for case in cases for row in contest.measure(case, [Program(CPP, "buffers", "ordinary")])[0]]
    return [Row(row.op, CPP, ranks, (BYTES // 4,), BYTES, row.us, row.spread, row.samples) for row in found]


def _from_python(rank: int, ranks: int, meeting: Meeting, seconds: float) -> list[Row]:
    count = BYTES // 4
    x, y, all_of_it = torch.ones(count), torch.empty(count), torch.ones(count * ranks)
    gathered, sizes = torch.empty(count * ranks), (count,) * ranks
    ours, nothing = dist.new_group(backend="shardway"), dist.new_group(backend="fake")
    prepared = {
        GATHER: sw.prepare(sw.all_gather_v, x, sizes=sizes),
        SCATTER: sw.prepare(sw.reduce_scatter_v, all_of_it, sizes),
        REDUCE: sw.prepare(sw.all_reduce, x),
    }
    calls: dict[tuple[str, str], Callable[[], Any]] = {
        (GATHER, PYTHON): lambda: sw.all_gather_v(x, sizes=sizes, out=gathered),
        (SCATTER, PYTHON): lambda: sw.reduce_scatter_v(all_of_it, sizes, out=y),
        (REDUCE, PYTHON): lambda: sw.all_reduce(x, out=y),
        **{(op, PREPARED): call.run for op, call in prepared.items()},
        (DIST_REDUCE, OURS): lambda: dist.all_reduce(y, group=ours),
        (DIST_REDUCE, NOTHING): lambda: dist.all_reduce(y, group=nothing),
    }
    contenders = [Contender(f"{op}|{who}", lambda: None, call) for (op, who), call in calls.items()]
    timings = interleaved(meeting, rank, contenders, Effort(seconds=seconds * len(calls)))
    for call in prepared.values():
        call.close()
    return [_row(*name.split("|"), ranks, timing) for name, timing in timings.items()]


def _row(op: str, who: str, ranks: int, timing: Timing) -> Row:
    return Row(op, who, ranks, (BYTES // 4,), BYTES, round(timing.us, 3), round(timing.spread, 3), timing.samples)


def claims_of(rows: Sequence[Row], ranks: Sequence[int]) -> list[Claim]:
    us = {(row.ranks, row.op, row.contender): row.us for row in rows}
    claims = []
    for number in ranks:
        most_us = MOST_US if number < MANY_RANKS else MOST_US_OF_MANY
        for op in (GATHER, SCATTER, REDUCE):
            claims.append(_at_most(us, number, op, PYTHON, CPP, most_us))
            claims.append(_at_most(us, number, op, PREPARED, CPP, MOST_PREPARED_US))
        claims.append(_at_most(us, number, DIST_REDUCE, OURS, NOTHING, MOST_DIST_US))
    return claims


def _at_most(us: dict[tuple[int, str, str], float], ranks: int, op: str, who: str, than: str, limit: float) -> Claim:
    text = f"{op} of {BYTES} B, {ranks} ranks, {who}: at most {limit:g} µs more than {than}"
    mine, theirs = us.get((ranks, op, who)), us.get((ranks, op, than))
    if mine is None or theirs is None:
        return not_measured(text)
    return Claim(text, f"{mine - theirs:.2f} µs more ({mine:.2f}, {theirs:.2f})", mine - theirs <= limit)
