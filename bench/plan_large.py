"""Plans and routes on 16x16x16 ranks, which a program in C++ times."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.report import Claim, print_table, us_text

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "release" / "bench" / "large_mesh"
ROUTE_LIMIT_US, PLAN_LIMIT_US = 200.0, 50_000.0


@dataclass(frozen=True)
class LargePair:
    shape: str
    source: str
    target: str
    peers: int
    route_us: float
    plan_us: float

    def text(self) -> str:
        return f"{self.source} to {self.target}, {self.shape}"


def measure() -> list[LargePair]:
    """One rank's route and a plan with the exact busiest rank, for some pairs of layouts. Layouts of the shape may
    have been planned before, and memory of routes been used."""
    lines = subprocess.run([PROGRAM], check=True, capture_output=True, text=True).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    return [
        LargePair(one["shape"], one["from"], one["to"], one["peers"], one["route_us"], one["plan_us"]) for one in found
    ]


def show(pairs: list[LargePair]) -> None:
    print("\n16×16×16 ranks, bf16, one host: one rank's route, and a plan with the exact busiest rank")
    lines = [[p.text(), str(p.peers), us_text(p.route_us), us_text(p.plan_us)] for p in pairs]
    print_table(["", "peers", "route", "plan"], lines)


def claims(pairs: list[LargePair]) -> list[Claim]:
    """Of every pair."""
    slowest_route, slowest_plan = max(pairs, key=lambda p: p.route_us), max(pairs, key=lambda p: p.plan_us)
    route, plan = statistics.median(p.route_us for p in pairs), statistics.median(p.plan_us for p in pairs)
    return [
        Claim(
            f"one rank's route among 4,096 takes under {us_text(ROUTE_LIMIT_US)} in each of {len(pairs)} pairs",
            f"at worst {us_text(slowest_route.route_us)} with {slowest_route.peers} peers; median {us_text(route)}",
            slowest_route.route_us < ROUTE_LIMIT_US,
        ),
        Claim(
            f"a plan for 4,096 ranks takes under {us_text(PLAN_LIMIT_US)} in each of {len(pairs)} pairs",
            f"at worst {us_text(slowest_plan.plan_us)} ({slowest_plan.text()}); median {us_text(plan)}",
            slowest_plan.plan_us < PLAN_LIMIT_US,
        ),
    ]
