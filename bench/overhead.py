"""What a call costs besides communication, in microseconds, from Python."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore  # importing it registers the backend "fake"

import shardway as sw
from bench import overhead_ranks
from bench.options import parser_of
from bench.report import Claim, Row, print_about, print_claims, print_table, write_json
from bench.timing import Timing

PASS_THROUGH_LIMIT_US, SHARE_LIMIT_US = 5.0, 15.0
RANKS = 4
SIZES = (1, 3, 5, 7)
WIDTH = 16

HELP = f"""
Pass-through: no group exists, so that sw.all_gather_v(x) only has to see this and give its input back.

On a group: rank 0 of {RANKS} ranks on torch's backend "fake", which sends nothing and returns at once. So the whole
time of a call is taken as our share (arguments, checks, the route, views, the output's allocation, the own copy,
entering c10d); nothing is subtracted. Sizes are given, for nothing that is exchanged on this backend can be read.
The gather by torch's own dist.isend and dist.irecv is timed alike, for comparison.

Times are of the processor, which equal those of the clock when nothing else runs: nothing here waits.
No gradient, contiguous f32 tensors of {SIZES} rows of {WIDTH}.

On ranks that communicate in shared memory, {overhead_ranks.BYTES} B, outputs given: sw.* and
sw.prepare(...).run() from Python against the same calls of spans in C++ (by the program that make bench-shm builds),
and torch.distributed on the backend "shardway" against the same call on "fake". A call lasts from the first rank's
start to the last rank's end.
Leaves build/bench/overhead.json. Exits 1 when a claim is missed.
"""


@dataclass(frozen=True)
class Cost:
    op: str
    contender: str
    ranks: int
    rows: int
    timing: Timing

    def row(self) -> Row:
        t = self.timing
        size = self.rows * WIDTH * torch.float32.itemsize
        shape = (self.rows, WIDTH)
        return Row(self.op, self.contender, self.ranks, shape, size, round(t.us, 3), round(t.spread, 3), t.samples)


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("overhead", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2], help="that communicate (default: 2)")
    options = parser.parse_args(arguments)
    repeats = 7 if options.quick else 41

    torch.set_num_threads(1)
    together = [row for ranks in options.ranks for row in overhead_ranks.measure(ranks, 0.1 if options.quick else 0.5)]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    costs = [_without_a_group(repeats), *_on_a_group(repeats)]

    print("What a call costs from Python besides communication (--help says what is measured)")
    lines = [[c.op, c.contender, f"{c.timing.us:.2f} µs", f"±{c.timing.spread / 2:.0%}"] for c in costs]
    lines += [[f"{r.op}, {r.ranks} ranks", r.contender, f"{r.us:.2f} µs", f"±{r.spread / 2:.0%}"] for r in together]
    print_table(["", "contender", "median", "spread"], lines)
    print_about()
    claims = [_claim(cost) for cost in costs if cost.contender == "shardway"]
    claims += overhead_ranks.claims_of(together, options.ranks)
    rows = [cost.row() for cost in costs] + together
    print(f"\n{write_json(options.output / 'overhead.json', rows, claims)}")
    return print_claims(claims)


def _without_a_group(repeats: int) -> Cost:
    x = torch.randn(SIZES[0], WIDTH)
    (timing,) = _time([lambda: sw.all_gather_v(x)], repeats)
    return Cost("all_gather_v, no group", "shardway", 1, SIZES[0], timing)


def _on_a_group(repeats: int) -> list[Cost]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    mine, total = torch.randn(SIZES[0], WIDTH), torch.randn(sum(SIZES), WIDTH)
    received = (SIZES[0],) * RANKS
    calls: list[tuple[str, str, int, Callable[[], Any]]] = [
        ("all_gather_v", "shardway", SIZES[0], lambda: sw.all_gather_v(mine, sizes=SIZES)),
        ("all_gather_v", "isend/irecv", SIZES[0], lambda: _point_to_point(mine)),
        ("reduce_scatter_v", "shardway", sum(SIZES), lambda: sw.reduce_scatter_v(total, SIZES)),
        ("all_to_all_v", "shardway", sum(SIZES), lambda: sw.all_to_all_v(total, SIZES, recv_sizes=received)),
    ]
    timings = _time([call for *_, call in calls], repeats)
    return [
        Cost(f"{op}, {RANKS} ranks", contender, RANKS, rows, timing)
        for (op, contender, rows, _), timing in zip(calls, timings, strict=True)
    ]


def _point_to_point(x: torch.Tensor) -> torch.Tensor:
    gathered = x.new_empty(sum(SIZES), WIDTH)
    parts = gathered.split(SIZES)
    works = [dist.irecv(parts[r], r) for r in range(1, RANKS)] + [dist.isend(x, r) for r in range(1, RANKS)]
    parts[0].copy_(x)
    for work in works:
        work.wait()
    return gathered


def _time(calls: list[Callable[[], Any]], repeats: int, batch: int = 500) -> list[Timing]:
    """Processor time of a call in µs: the median over batches, the batches of the calls taken in turn."""
    samples: list[list[float]] = [[] for _ in calls]
    for repeat in range(repeats + 2):
        for call, found in zip(calls, samples, strict=True):
            start = time.process_time_ns()
            for _ in range(batch):
                call()
            took_us = (time.process_time_ns() - start) / batch / 1e3
            if repeat >= 2:  # two to warm up
                found.append(took_us)
    return [Timing.of(found) for found in samples]


def _claim(cost: Cost) -> Claim:
    if cost.ranks == 1:
        text, limit_us = "a pass-through call costs", PASS_THROUGH_LIMIT_US
    else:
        text, limit_us = f"{cost.op}: our share of a call without gradient is", SHARE_LIMIT_US
    return Claim(f"{text} under {limit_us:g} µs from Python", f"{cost.timing.us:.2f} µs", cost.timing.us < limit_us)


if __name__ == "__main__":
    sys.exit(main())
