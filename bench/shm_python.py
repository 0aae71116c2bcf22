"""The part of bench/shm.py that runs in Python: sw.* on a gloo group against what people copy, and gloo itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import shardway as sw
from bench.forked_ranks import run_ranks
from bench.ragged_contenders import OURS, PEER, Batch, Op, contenders, rewrite
from bench.report import Claim, bytes_text, geometric_mean, not_measured, us_text
from bench.shm_contenders import OURS_SHARED
from bench.shm_rows import ShmRow
from bench.timing import Contender, Effort, Meeting, Timing, interleaved

SIZES_GIVEN, SIZES_ASKED = (Op(grad=None, sizes_given=given) for given in (True, False))
PEER_GIVEN = SIZES_GIVEN.label(PEER)
OP_NAME = "all_gather_v from Python"
TIMES_EVERYWHERE, TIMES_IN_THE_MEAN = 15.0, 50.0
LIMIT_S = 1800.0


def python_rows(ranks: int, mean_sizes: list[int], effort: Effort, settled: bool) -> list[ShmRow]:
    """Fresh outputs of which three stay alive, sizes 1:3:5, given to shardway."""
    by_rank: list[list[ShmRow]] = run_ranks(
        ranks, _measure, Meeting(ranks), mean_sizes, effort, timeout_s=LIMIT_S, settled=settled
    )
    return by_rank[0]


def _measure(rank: int, ranks: int, meeting: Meeting, mean_sizes: list[int], effort: Effort) -> list[ShmRow]:
    rows = []
    for mean_bytes in mean_sizes:
        timings = interleaved(meeting, rank, _contenders(Batch(rank, ranks, mean_bytes)), effort)
        rows += [_row(name, ranks, mean_bytes, timing) for name, timing in timings.items()]
        if rank == 0:
            print(f"  {bytes_text(mean_bytes):>8} a rank  {_summary(timings)}", flush=True)
    return rows


def _contenders(batch: Batch) -> list[Contender]:
    """pad-gather-mask as it is copied, which asks for the sizes, and where it is given them as well."""
    peer = next(c for c in contenders(batch, SIZES_ASKED) if c.name == PEER)
    given = contenders(batch, SIZES_GIVEN)
    shared = sw.empty(batch.x.shape)
    shared.copy_(batch.x)
    return [
        *(dataclasses.replace(c, name=PEER_GIVEN) if c.name == PEER else c for c in given),
        peer,
        Contender(OURS_SHARED, lambda: rewrite(shared), lambda: sw.all_gather_v(shared, sizes=batch.sizes)[0]),
    ]


def _row(name: str, ranks: int, mean_bytes: int, timing: Timing) -> ShmRow:
    us, spread = round(timing.us, 2), round(timing.spread, 3)
    return ShmRow(OP_NAME, name, ranks, "1:3:5", mean_bytes, us, spread, timing.samples, "steady", faults=-1)


def _summary(timings: Any) -> str:
    times = ", ".join(f"{name} {us_text(timing.us)}" for name, timing in timings.items())
    return f"{timings[PEER].us / timings[OURS].us:6.1f}x   {times}"


def python_claims(rows: list[ShmRow]) -> list[Claim]:
    us = {(row.bytes, row.contender): row.us for row in rows if row.op == OP_NAME}
    sizes = [size for size, name in us if name == OURS]
    what = "from Python, 2 ranks, sizes given"
    everywhere = f"{what}: at least {TIMES_EVERYWHERE:g} times faster than {PEER} at every size"
    in_the_mean = f"{what}: at least {TIMES_IN_THE_MEAN:g} times faster in the geometric mean"
    if not sizes:
        return [not_measured(everywhere), not_measured(in_the_mean)]
    ratios = {size: us[size, PEER] / us[size, OURS] for size in sizes}
    mean = geometric_mean(list(ratios.values()))
    mean_given = geometric_mean([us[size, PEER_GIVEN] / us[size, OURS] for size in sizes])
    size = min(ratios, key=lambda size: ratios[size])
    given = us[size, PEER_GIVEN] / us[size, OURS]
    return [
        Claim(
            everywhere,
            f"{ratios[size]:.1f} times at {bytes_text(size)}; {given:.1f} where it is given the sizes too",
            ratios[size] >= TIMES_EVERYWHERE,
        ),
        Claim(
            in_the_mean,
            f"{mean:.1f} times; {mean_given:.1f} where it is given the sizes too",
            mean >= TIMES_IN_THE_MEAN,
        ),
    ]
