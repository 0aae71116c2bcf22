"""The result of a run: a table, the cells that are not as expected, and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.axes import FAULTS, GROUPS, Cell
from tests.faults.checks import Verdict
from tests.faults.observation import Record

Result = tuple[Record, Verdict]


def limit_of(fault: str) -> str:
    """The limit for what a rank is told by an error."""
    if fault in ("none", "resumed"):
        return "no error"
    if fault == "exception":
        return "1 s; in a backward, and of a message, timeout + 1 s"
    return "timeout + 1 s" if fault in ("stopped", "never") else "1 s"


def claims(results: Sequence[Result]) -> str:
    """The slowest detection of a death, and of the rest beyond the timeout where that is what ends the call."""
    deaths = [v.detection_s for _, v in results if v.rule == "dead"]
    rest = [v.detection_s - (r.timeout_s if v.waits_for_timeout else 0.0) for r, v in results if v.rule != "dead"]
    slowest = {"a death": max(deaths, default=0.0), "all else, beyond the timeout": max(rest, default=0.0)}
    return "\n".join(
        f"slowest detection of {what}: {s:.3f} s, at most 1 s: {'met' if s <= 1.0 else 'missed'}"
        for what, s in slowest.items()
    )


def table(results: Sequence[Result]) -> str:
    """A row per fault; the slowest detection on each kind of group, in seconds."""
    head = f"{'fault':10} {'cells':>6} {'as expected':>12}" + "".join(f"{group:>10}" for group in GROUPS) + "  limit"
    rows = [head, "-" * len(head)]
    for fault in FAULTS:
        of_fault = [(r, v) for r, v in results if Cell.of(v.cell).fault == fault]
        if not of_fault:
            continue
        good = sum(v.is_as_expected for _, v in of_fault)
        slowest = [_slowest(of_fault, group) for group in GROUPS]
        rows.append(
            f"{fault:10} {len(of_fault):6} {good:12}" + "".join(f"{s:>10}" for s in slowest) + f"  {limit_of(fault)}"
        )
    good = sum(v.is_as_expected for _, v in results)
    rows.append(f"{'all':10} {len(results):6} {good:12}")
    return "\n".join(rows)


def _slowest(results: Sequence[Result], group: str) -> str:
    """Of calls that are compared, or whose peer is lost: others may end with their timeout, and say nothing of us."""
    told = [v.detection_s for _, v in results if Cell.of(v.cell).group == group and v.rule != "not compared"]
    return f"{max(told):.3f}" if any(told) else "–"


def findings(results: Sequence[Result]) -> str:
    """Every cell that is not as expected, with what its ranks did and how to repeat it."""
    lines = []
    for record, verdict in results:
        if verdict.is_as_expected:
            continue
        lines.append(f"\n{verdict.cell} (rule: {verdict.rule}, timeout {record.timeout_s:g} s)")
        lines += [f"    {problem[:600]}" for problem in verdict.problems]
        lines += [f"  rank {seen.rank}: {seen.outcome}" for seen in record.ranks]
        lines.append(f'  again: python -m tests.faults --cell "{verdict.cell}"')
    return "\n".join(lines)


def left_out(reasons: Counter[str]) -> str:
    lines = [f"{count:6}  {reason}" for reason, count in reasons.most_common()]
    return f"{reasons.total()} combinations make no sense:\n" + "\n".join(lines)


def write_json(path: Path, results: Sequence[Result], reasons: Counter[str], wall_s: float) -> None:
    slowest: dict[str, float] = {}
    for _, verdict in results:
        if verdict.rule != "not compared":
            fault = Cell.of(verdict.cell).fault
            slowest[fault] = max(slowest.get(fault, 0.0), verdict.detection_s)
    summary: dict[str, Any] = {
        "cells": len(results),
        "as_expected": sum(v.is_as_expected for _, v in results),
        "slowest_detection_s": slowest,
        "wall_s": wall_s,
        "left_out": dict(reasons),
    }
    cells = [
        {
            **dict(zip(("call", "group", "moment", "fault"), dataclasses.astuple(Cell.of(v.cell)), strict=True)),
            "rule": v.rule,
            "problems": v.problems,
            "detection_s": v.detection_s,
            **{key: value for key, value in dataclasses.asdict(r).items() if key != "cell"},
        }
        for r, v in results
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"summary": summary, "cells": cells}, indent=1) + "\n")
