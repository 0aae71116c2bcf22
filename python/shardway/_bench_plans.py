"""The plan that is chosen, run beside plans that lost: `torchrun … -m shardway.bench --plans`."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

import shardway as sw
from shardway import _C
from shardway._timing import TimedCall, TrialClock, measure

_MOST_RIVALS = 3

Placements = tuple[sw.Shard | sw.Replicate | sw.Partial, ...]


@dataclass
class PlanCase:
    """One redistribution, and what its plans took. The first plan is the one that was chosen."""

    before: sw.Layout
    after: sw.Layout
    plans: list[sw.Plan]
    calls: list[TimedCall] = field(default_factory=list)

    def regret(self) -> float:
        """What the chosen plan takes by the plan that is best on odd repetitions, compared on even ones."""
        best = min(self.calls, key=lambda call: statistics.median(call.us[1::2]))
        return statistics.median(self.calls[0].us[::2]) / statistics.median(best.us[::2])


def _rivals(before: sw.Layout, after: sw.Layout, chosen: sw.Plan, topology: sw.Topology) -> list[sw.Plan]:
    """The direct exchange, and the cheapest plans over one layout between."""
    plans = [_C.plan_along([before, after], topology)]
    between = itertools.product((sw.Replicate(), sw.Shard(0), sw.Shard(1)), repeat=len(before.placements))
    for placements in between:
        middle = before.with_(list(placements))
        if middle in (before, after):
            continue
        plans.append(_C.plan_along([before, middle, after], topology))
    plans.sort(key=lambda plan: plan.cost_us)
    others: dict[str, sw.Plan] = {str(plan): plan for plan in reversed(plans) if str(plan) != str(chosen)}
    return sorted(others.values(), key=lambda plan: plan.cost_us)[:_MOST_RIVALS]


def _ends(ranks: int) -> list[tuple[sw.Mesh, Placements, Placements]]:
    line = sw.Mesh((ranks,))
    rows, columns, whole, addends = sw.Shard(0), sw.Shard(1), sw.Replicate(), sw.Partial()
    ends: list[tuple[sw.Mesh, Placements, Placements]] = [
        (line, (rows,), (whole,)),
        (line, (rows,), (columns,)),
        (line, (addends,), (rows,)),
        (line, (addends,), (whole,)),
    ]
    if ranks >= 4 and ranks % 2 == 0:
        grid = sw.Mesh((2, ranks // 2))
        ends += [
            (grid, (rows, columns), (columns, rows)),
            (grid, (rows, addends), (whole, columns)),
            (grid, (rows, rows), (whole, rows)),
            (grid, (rows, whole), (whole, columns)),
            (grid, (addends, addends), (whole, whole)),
            (grid, (rows, columns), (whole, whole)),
        ]
    return ends


def _timed(case: PlanCase, plan: sw.Plan) -> TimedCall:
    _, shape = case.before.box(dist.get_rank())
    return TimedCall(
        lambda x: sw.redistribute(sw.MeshTensor(x.view(shape), case.before), list(case.after.placements), plan=plan),
        math.prod(shape),
    )


def run_plans(sides: list[int], topology: sw.Topology, clock: TrialClock) -> list[PlanCase]:
    """Times the plans of square matrices with these sides. Collective."""
    cases = []
    for side in sides:
        for mesh, before, after in _ends(dist.get_world_size()):
            start = sw.Layout((side, side), torch.float32, mesh, list(before))
            end = start.with_(list(after))
            chosen = sw.plan(start, end, topology)
            case = PlanCase(start, end, [chosen, *_rivals(start, end, chosen, topology)])
            case.calls = [_timed(case, plan) for plan in case.plans]
            cases.append(case)
    measure([call for case in cases for call in case.calls], clock)
    return [case for case in cases if all(len(call.us) >= 2 for call in case.calls)]


def mean_regret(cases: list[PlanCase]) -> float:
    """The geometric mean."""
    return math.exp(statistics.mean(math.log(case.regret()) for case in cases))


def plans_report(cases: list[PlanCase]) -> str:
    lines = []
    for case in cases:
        lines.append(f"{case.before}  ->  {case.after.placements}: regret {case.regret():.2f}")
        for plan, call in zip(case.plans, case.calls, strict=True):
            mark = "*" if plan is case.plans[0] else " "
            lines.append(f"  {mark} {call.summary().us:10.1f} us, priced {plan.cost_us:10.1f} us  {plan}")
    regret = mean_regret(cases)
    lines.append(
        f"regret of the chosen plans (*), in the geometric mean of {len(cases)} cases: {regret:.3f}; the best is "
        "picked on odd repetitions and compared on even ones"
    )
    return "\n".join(lines)
