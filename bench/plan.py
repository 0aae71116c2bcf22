"""How fast a redistribution is planned and how good the plan is: shardway against DTensor's two planners."""

from __future__ import annotations

import gc
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore  # importing it registers the backend "fake"

import shardway as sw
from bench import plan_large
from bench.options import parser_of
from bench.plan_contenders import (
    GREEDY,
    MIN_COST,
    OURS,
    Contender,
    Pair,
    Quality,
    contenders,
    device_mesh,
    quality,
    random_pairs,
    torch_price,
)
from bench.report import (
    Claim,
    Progress,
    geometric_mean,
    print_claims,
    print_table,
    us_text,
    write_json,
)
from bench.timing import Timing

FIRST_PLAN_LIMIT_US, TIMES_FASTER, CACHED_LIMIT_US = 1000.0, 500.0, 10.0
LARGEST = (2, 2, 2, 2)
PAIRS_PER_SHAPE = {(4, 4): 20, (2, 2, 2): 12, LARGEST: 5}
SHAPES = ((16, 16, 16), (5, 7, 3), (13, 2, 13), (256, 256, 64), (1000, 999, 33), (4096, 4096, 8))
ONE_HOST, SEVERAL_HOSTS = "one host", "4 ranks a host"
TOPOLOGIES = {ONE_HOST: sw.Topology.assumed(), SEVERAL_HOSTS: sw.Topology.assumed(4)}
FIRST, FIRST_OF_SHAPE = "first plan", "first plan of a shape"
REPEATS = {OURS: 5, GREEDY: 3, MIN_COST: 1}
CACHED_PAIRS, CACHED_BATCH, CACHED_REPEATS = 12, 100, 7
CLOSE = 1e-9

HELP = f"""
Random pairs of layouts of f32 tensors, from {{S0,S1,S2,R,P}} to {{S0,S1,S2,R}}, and P where it stays. All planners get
the same DTensorSpecs, on torch's backend "fake", which sends nothing, and the seed's figures of the network.

  {FIRST:22} the pair is new; layouts of that shape on that mesh may have been planned before
  {FIRST_OF_SHAPE:22} nothing is known of shape and mesh either
  {"cached plan":22} the same pair asked for again
  {"cached cost":22} redistribute_cost of the same pair again; also from Layouts

Then the plans of all three are priced step by step by shardway's price list. DTensor's have their collectives merged as
DTensor does where flattened meshes exist, and they all exist here. A plan of DTensor's that reduces a Partial and then
makes addends again is left out: shardway never makes addends.

Times are of the processor, which equal those of the clock when nothing else runs: nothing here waits.
Leaves build/bench/plan.json. Exits 1 when a claim is missed.
"""

FIELDS = {
    "mesh": "its shape",
    "shape": "of the tensor; in rows of cached queries of the last one",
    "us": "processor time: median over pairs",
    "spread": "third quartile minus first, as a share of the median",
    "plans": "priced by shardway's list with the seed's constants; bytes are those of the busiest rank",
}


@dataclass(frozen=True)
class Row:
    op: str
    contender: str
    hosts: str
    mesh: tuple[int, ...]
    ranks: int
    shape: tuple[int, ...]
    us: float
    spread: float
    samples: int


@dataclass(frozen=True)
class Asked:
    """One pair, and what the contenders made of it."""

    hosts: str
    pair: Pair
    times_us: dict[tuple[str, str], float]  # by op and contender
    plans: dict[str, Quality]
    torch_us: float  # torch's price of torch's min-cost plan
    torch_rules_us: float | None  # and of ours under those rules; none where theirs makes addends

    def is_on(self, hosts: str, mesh: tuple[int, ...]) -> bool:
        return (self.hosts, self.pair.mesh) == (hosts, mesh)


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("plan", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="two pairs of each mesh and shape")
    parser.add_argument("--seed", type=int, default=20261115, help="of the pairs")
    options = parser.parse_args(arguments)

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=max(map(math.prod, PAIRS_PER_SHAPE)))
    print("First plans: median over pairs (--help says what is measured)")
    asked = list(_ask_all(options.seed, 2 if options.quick else None))
    rows = [*_first_rows(asked), *_cached_rows(asked)]
    dist.destroy_process_group()

    print()
    _print_times(rows)
    print("\nPlans, priced by shardway's list with the seed's constants")
    _print_plans(asked)
    large = plan_large.measure()
    plan_large.show(large)
    claims = [*_speed_claims(asked, rows), *_quality_claims(asked), *plan_large.claims(large)]
    plans = [
        {"hosts": one.hosts, "mesh": one.pair.mesh, "shape": one.pair.shape, "contender": name, **asdict(plan)}
        for one in asked
        for name, plan in one.plans.items()
    ]
    more = {"seed": options.seed, "plans": plans, "large_mesh": [asdict(pair) for pair in large]}
    path = write_json(options.output / "plan.json", rows, claims, FIELDS, **more)
    print(f"\n{path}")
    return print_claims(claims)


def _ask_all(seed: int, most_pairs: int | None) -> Iterator[Asked]:
    progress = Progress(len(TOPOLOGIES) * len(PAIRS_PER_SHAPE) * len(SHAPES))
    meshes = {shape: device_mesh(shape) for shape in PAIRS_PER_SHAPE}
    for hosts in TOPOLOGIES:
        draw = random.Random(seed)
        for mesh_shape, count in PAIRS_PER_SHAPE.items():
            for shape in SHAPES:
                what = f"{hosts}, {_text(mesh_shape)} mesh, {_text(shape)}"
                progress.starting(what)
                pairs = random_pairs(meshes[mesh_shape], shape, most_pairs or count, draw)
                found = [_ask(hosts, pair) for pair in pairs]
                line = ", ".join(f"{name} {us_text(_median_us(found, FIRST, name))}" for name in REPEATS)
                progress.finished(f"{what:42} {len(found):3} pairs: {line}")
                yield from found


def _ask(hosts: str, pair: Pair) -> Asked:
    topology = TOPOLOGIES[hosts]
    times_us: dict[tuple[str, str], float] = {}
    plans: dict[str, Quality] = {}
    torch_us = math.nan
    for rival in contenders(topology):
        for op, shapes in ((FIRST_OF_SHAPE, True), (FIRST, False)):
            if shapes and rival.name != OURS:
                continue  # DTensor keeps nothing of a shape
            times_us[op, rival.name], plan = _first_time(rival, pair, shapes)
        plans[rival.name] = quality(rival.layouts(pair, plan), topology)
        if rival.name == MIN_COST:
            torch_us = torch_price(pair, plan)
    by_torch_rules = None if plans[MIN_COST].makes_addends else sw.plan(pair.a, pair.b, topology, rules="torch_2_13")
    return Asked(hosts, pair, times_us, plans, torch_us, by_torch_rules and by_torch_rules.cost_us)


def _first_time(rival: Contender, pair: Pair, shapes: bool) -> tuple[float, Any]:
    samples = []
    for _ in range(REPEATS[rival.name]):
        rival.forget(shapes=shapes)
        gc.collect(0)
        gc.disable()
        start = time.process_time_ns()
        plan = rival.plan(pair)
        samples.append((time.process_time_ns() - start) / 1e3)
        gc.enable()
    return statistics.median(samples), plan


def _first_rows(asked: Sequence[Asked]) -> list[Row]:
    rows = []
    for hosts in TOPOLOGIES:
        for mesh in PAIRS_PER_SHAPE:
            for shape in SHAPES:
                found = [one for one in asked if one.is_on(hosts, mesh) and one.pair.shape == shape]
                for op, name in found[0].times_us:
                    timing = Timing.of([one.times_us[op, name] for one in found])
                    rows.append(_row(op, name, hosts, found[0].pair, timing))
    return rows


def _cached_rows(asked: Sequence[Asked]) -> list[Row]:
    rows = []
    for mesh in PAIRS_PER_SHAPE:
        pairs = [one.pair for one in asked if one.is_on(ONE_HOST, mesh)][-CACHED_PAIRS:]
        topology = TOPOLOGIES[ONE_HOST]
        layouts = {id(pair): (sw.Layout.from_spec(pair.a), sw.Layout.from_spec(pair.b)) for pair in pairs}
        calls: dict[tuple[str, str], Callable[[Pair], Any]] = {}
        for rival in contenders(topology):
            rival.forget()
            calls["cached plan", rival.name] = rival.cached_plan
            calls["cached cost", rival.name] = rival.cached_cost
        del calls["cached cost", MIN_COST]  # torch's cache does not know which planner filled it
        calls["cached cost, Layouts", OURS] = lambda pair, known=layouts, topology=topology: sw.redistribute_cost(
            *known[id(pair)], topology
        )
        for (op, name), call in calls.items():
            rows.append(_row(op, name, ONE_HOST, pairs[-1], Timing.of([_per_call_us(call, pair) for pair in pairs])))
    return rows


def _per_call_us(call: Callable[[Pair], Any], pair: Pair) -> float:
    call(pair)
    samples = []
    for _ in range(CACHED_REPEATS):
        start = time.process_time_ns()
        for _ in range(CACHED_BATCH):
            call(pair)
        samples.append((time.process_time_ns() - start) / CACHED_BATCH / 1e3)
    return statistics.median(samples)


def _row(op: str, name: str, hosts: str, pair: Pair, timing: Timing) -> Row:
    us, spread = round(timing.us, 3), round(timing.spread, 3)
    return Row(op, name, hosts, pair.mesh, math.prod(pair.mesh), pair.shape, us, spread, timing.samples)


def _print_times(rows: Sequence[Row]) -> None:
    lines = []
    for hosts in TOPOLOGIES:
        for mesh in PAIRS_PER_SHAPE:
            here = [row for row in rows if (row.hosts, row.mesh) == (hosts, mesh)]
            for op in dict.fromkeys(row.op for row in here):
                found = [[row.us for row in here if (row.op, row.contender) == (op, name)] for name in REPEATS]
                cells = [us_text(statistics.median(us)) if us else "" for us in found]
                lines.append([f"{_text(mesh)}, {hosts}, {op}", *cells])
    print_table(["median", *REPEATS], lines)


def _print_plans(asked: Sequence[Asked]) -> None:
    lines = []
    for hosts in TOPOLOGIES:
        for mesh in PAIRS_PER_SHAPE:
            found = [one for one in asked if one.is_on(hosts, mesh)]
            lines += [_plans_line(found, f"{_text(mesh)}, {hosts}, {name}", name) for name in REPEATS]
    print_table(["", "cost, times ours", "at most", "dearer", "collectives", "bytes sent", "peak memory"], lines)


def _plans_line(asked: Sequence[Asked], label: str, name: str) -> list[str]:
    asked = [one for one in asked if not one.plans[name].makes_addends]
    ours, theirs = [one.plans[OURS] for one in asked], [one.plans[name] for one in asked]
    ratios = _ratios(asked, name)
    dearer = sum(b.cost_us > a.cost_us * (1 + CLOSE) for a, b in zip(ours, theirs, strict=True))
    return [
        label,
        f"{geometric_mean(ratios):.2f}",
        f"{max(ratios):.2f}",
        f"{dearer} of {len(asked)}",
        f"{statistics.mean(plan.collectives for plan in theirs):.2f}",
        f"{sum(plan.bytes for plan in theirs) / sum(plan.bytes for plan in ours):.2f}",
        f"{sum(plan.peak_bytes for plan in theirs) / sum(plan.peak_bytes for plan in ours):.2f}",
    ]


def _ratios(asked: Sequence[Asked], name: str) -> list[float]:
    """How many times ours theirs cost, where ours cost anything."""
    return [one.plans[name].cost_us / one.plans[OURS].cost_us for one in asked if one.plans[OURS].cost_us > 0]


def _median_us(asked: Sequence[Asked], op: str, name: str) -> float:
    return statistics.median(one.times_us[op, name] for one in asked)


def _speed_claims(asked: Sequence[Asked], rows: Sequence[Row]) -> list[Claim]:
    largest = [one for one in asked if one.is_on(ONE_HOST, LARGEST)]
    ours_us, cold_us = _median_us(largest, FIRST, OURS), _median_us(largest, FIRST_OF_SHAPE, OURS)
    theirs_us = _median_us(largest, FIRST, MIN_COST)
    by_pair = statistics.median(one.times_us[FIRST, MIN_COST] / one.times_us[FIRST, OURS] for one in largest)
    cached_us = max(row.us for row in rows if row.contender == OURS and row.op.startswith("cached cost"))
    limit = us_text(FIRST_PLAN_LIMIT_US)
    where = f"on {_text(LARGEST)}, {ONE_HOST}"
    return [
        Claim(f"a first plan {where}, takes under {limit}", us_text(ours_us), ours_us < FIRST_PLAN_LIMIT_US),
        Claim(f"the first of a shape {where}, takes under {limit}", us_text(cold_us), cold_us < FIRST_PLAN_LIMIT_US),
        Claim(
            f"a first plan {where}, is at least {TIMES_FASTER:g} times faster than by DTensor's min-cost planner",
            f"{theirs_us / ours_us:.0f} times by the medians; in the median pair {by_pair:.0f} times",
            theirs_us >= TIMES_FASTER * ours_us,
        ),
        Claim(f"a cached cost takes under {CACHED_LIMIT_US:g} µs", us_text(cached_us), cached_us < CACHED_LIMIT_US),
    ]


def _quality_claims(asked: Sequence[Asked]) -> list[Claim]:
    claims = []
    for name in (GREEDY, MIN_COST):
        found = [one for one in asked if not one.plans[name].makes_addends]
        pairs = [(one.plans[OURS].cost_us, one.plans[name].cost_us) for one in found]
        dearer = sum(ours > theirs * (1 + CLOSE) for ours, theirs in pairs)
        cheaper = sum(ours < theirs * (1 - CLOSE) for ours, theirs in pairs)
        times = geometric_mean(_ratios(found, name))
        figure = f"dearer in {dearer} of {len(pairs)} pairs, cheaper in {cheaper}; theirs cost {times:.2f} times ours"
        if len(found) < len(asked):
            figure += f"; {len(asked) - len(found)} more of theirs make addends anew and are left out"
        claims.append(Claim(f"our plan is never dearer than that of {name}", figure, dearer == 0))
    priced = [(one.torch_rules_us, one.torch_us) for one in asked if one.torch_rules_us is not None]
    above = sum(ours > theirs * (1 + CLOSE) for ours, theirs in priced)
    figure = f"above in {above} of {len(priced)} pairs"
    return [*claims, Claim("under torch_2_13 rules our plan is never above torch's min-cost", figure, above == 0)]


def _text(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


if __name__ == "__main__":
    sys.exit(main())
