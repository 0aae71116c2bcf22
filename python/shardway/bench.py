"""How fast collectives of a group are: `torchrun --nproc-per-node 4 -m shardway.bench`.

As `shardway bench`, for CPU tensors of any backend of torch.distributed, beside torch's own calls on equal parts.
With --plans it runs the plans that lost beside the one that was chosen. The ranks are those of one host. The time of a
call is that of its slowest rank.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

import shardway as sw
from shardway import _C
from shardway._bench_plans import mean_regret, plans_report, run_plans
from shardway._files import usual_mode, write_whole
from shardway._measuring import (
    ITEM_BYTES,
    add_measuring_arguments,
    backend_text,
    date_of_now,
    problem_with,
    run_in_group,
)
from shardway._timing import INTERRUPTED, Call, TimedCall, TrialClock, measure

_NOISY = 0.25
_SMALL_SIDE = 64
_LARGE_SIDE = 1024

Row = dict[str, object]


def _all_gather(elements: int, ranks: int) -> tuple[Call, Call, int]:
    out = torch.empty(elements)
    parts = [elements // ranks] * ranks
    return (
        lambda x: sw.all_gather_v(x, sizes=parts, out=out),
        lambda x: dist.all_gather_into_tensor(out, x),
        elements // ranks,
    )


def _reduce_scatter(elements: int, ranks: int) -> tuple[Call, Call, int]:
    out = torch.empty(elements // ranks)
    parts = [elements // ranks] * ranks
    return (
        lambda x: sw.reduce_scatter_v(x, parts, out=out),
        lambda x: dist.reduce_scatter_tensor(out, x),
        elements,
    )


def _all_reduce(elements: int, ranks: int) -> tuple[Call, Call, int]:
    del ranks
    out = torch.empty(elements)
    return lambda x: sw.all_reduce(x, out=out), lambda x: dist.all_reduce(x), elements


def _all_to_all(elements: int, ranks: int) -> tuple[Call, Call, int]:
    out = torch.empty(elements)
    parts = [elements // ranks] * ranks
    return (
        lambda x: sw.all_to_all_v(x, parts, recv_sizes=parts, out=out),
        lambda x: dist.all_to_all_single(out, x),
        elements,
    )


_OPS: dict[str, Callable[[int, int], tuple[Call, Call, int]]] = {
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
}


def _works(call: TimedCall) -> bool:
    """Whether the backend has it, the same on every rank."""
    try:
        call.call(call.input)
        works = True
    except (RuntimeError, NotImplementedError):
        works = False
    said = torch.tensor([int(works)])
    dist.all_reduce(said, dist.ReduceOp.MIN)
    return bool(said)


def _calls_of(ops: list[str], sizes: list[int]) -> list[tuple[str, str, int, TimedCall]]:
    """The op, whose it is, its bytes, and the call."""
    ranks = dist.get_world_size()
    calls = []
    for op in ops:
        torch_has_it = True
        for size in sizes:
            elements = max(size // ITEM_BYTES // ranks, 1) * ranks
            ours, torchs, count = _OPS[op](elements, ranks)
            calls.append((op, "shardway", elements * ITEM_BYTES, TimedCall(ours, count)))
            rival = TimedCall(torchs, count)
            torch_has_it = torch_has_it and _works(rival)
            if torch_has_it:
                calls.append((op, "torch", elements * ITEM_BYTES, rival))
    return calls


def _row(op: str, whose: str, size: int, call: TimedCall) -> Row:
    ranks = dist.get_world_size()
    summary = call.summary()
    algbw = size / summary.us / 1e3
    factor = (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks
    return {
        "op": op,
        "contender": whose,
        "ranks": ranks,
        "bytes": size,
        "count": size // ITEM_BYTES,
        "us": summary.us,
        "algbw_gb_per_s": algbw,
        "busbw_gb_per_s": algbw * factor,
        "spread": summary.spread,
        "retest_error": summary.retest_error,
    }


def _setting(*, is_complete: bool) -> dict[str, object]:
    machine, processor, cores = _C.this_machine()
    return {
        "shardway": sw.__version__,
        "torch": torch.__version__,
        "machine": machine,
        "processor": processor,
        "cores": cores,
        "ranks": dist.get_world_size(),
        "backend": backend_text(),
        "date": date_of_now(),
        "complete": is_complete,
    }


def _heading(setting: dict[str, object]) -> str:
    return (
        f"shardway {setting['shardway']}, torch {setting['torch']}, {setting['date']}: {setting['ranks']} ranks on "
        f"{setting['cores']} cores, {setting['backend']}\n{setting['machine']}, {setting['processor']}\n"
    )


def _table(rows: list[Row]) -> str:
    lines: list[str] = []
    last: object = None
    ours: float | None = None
    for row in rows:
        us = float(str(row["us"]))
        if row["op"] != last:
            lines += ["", str(row["op"])]
            lines.append(f"{'size (B)':>12}{'count':>12}{'':>11}{'time (us)':>12}{'algbw':>9}{'busbw':>9}{'spread':>9}")
        last = row["op"]
        beside = f"   shardway takes {ours / us:.2f} of it" if row["contender"] == "torch" and ours else ""
        ours = us if row["contender"] == "shardway" else None
        lines.append(
            f"{row['bytes']:>12}{row['count']:>12}{row['contender']:>11}{us:>12.2f}{row['algbw_gb_per_s']:>9.2f}"
            f"{row['busbw_gb_per_s']:>9.2f}{row['spread']:>7.0%}{beside}"
        )
    return "\n".join(lines)


def _noise(calls: list[TimedCall]) -> str:
    summaries = [call.summary() for call in calls]
    spread = statistics.median(each.spread for each in summaries)
    error = statistics.median(each.retest_error for each in summaries)
    said = (
        f"noise: half of the repetitions of a call lie within {spread:.0%} of its time; odd and even rounds "
        f"differ by {error:.0%} (medians over calls)"
    )
    return said if error <= _NOISY else f"{said}\nthat is too noisy to rely on: measure again while nothing else runs"


def _csv(rows: list[Row], setting: dict[str, object]) -> str:
    text = io.StringIO()
    said = {name: setting[name] for name in ("date", "processor", "shardway", "torch", "backend")}
    writer = csv.DictWriter(text, [*rows[0], *said])
    writer.writeheader()
    writer.writerows(row | said for row in rows)
    return text.getvalue()


def _write(arguments: argparse.Namespace, rows: list[Row], setting: dict[str, object]) -> None:
    if arguments.csv:
        write_whole(arguments.csv, _csv(rows, setting), usual_mode())
    if arguments.json:
        document = {"version": 1} | setting | {"rows": rows}
        write_whole(arguments.json, json.dumps(document, indent=2) + "\n", usual_mode())


def _bench_calls(arguments: argparse.Namespace, clock: TrialClock) -> int:
    sizes = [arguments.least]
    while sizes[-1] * 2 <= arguments.most:
        sizes.append(sizes[-1] * 2)
    calls = _calls_of(arguments.ops, sizes)
    measure([call for *_, call in calls], clock)
    measured = [each for each in calls if len(each[3].us) >= 2]
    if dist.get_rank() != 0:
        return 0
    if not measured:
        print("it was interrupted before a call was made twice", file=sys.stderr)
        return 1
    rows = [_row(*each) for each in measured]
    setting = _setting(is_complete=not clock.was_interrupted)
    print(_heading(setting) + _table(rows) + "\n\n" + _noise([call for *_, call in measured]), flush=True)
    _write(arguments, rows, setting)
    return INTERRUPTED if clock.was_interrupted else 0


def _bench_plans(arguments: argparse.Namespace, clock: TrialClock) -> int:
    topology = sw.Topology.read(arguments.topology) if arguments.topology else sw.Topology.default()
    cases = run_plans([_SMALL_SIDE, _LARGE_SIDE], topology, clock)
    if dist.get_rank() != 0:
        return 0
    if not cases:
        print("it was interrupted before every plan was run twice", file=sys.stderr)
        return 1
    setting = _setting(is_complete=not clock.was_interrupted)
    print(f"{_heading(setting)}priced by the {topology.source} topology\n\n{plans_report(cases)}", flush=True)
    rows: list[Row] = [
        {
            "from": str(case.before),
            "to": str(case.after),
            "plan": str(plan),
            "is_chosen": plan is case.plans[0],
            "priced_us": plan.cost_us,
            "us": call.summary().us,
            "spread": call.summary().spread,
            "regret": case.regret(),
            "mean_regret": mean_regret(cases),
        }
        for case in cases
        for plan, call in zip(case.plans, case.calls, strict=True)
    ]
    _write(arguments, rows, setting)
    return INTERRUPTED if clock.was_interrupted else 0


def _op_list(text: str) -> list[str]:
    for op in text.split(","):
        if op not in _OPS:
            raise argparse.ArgumentTypeError(f"'{op}' is not one of {', '.join(_OPS)}")
    return text.split(",")


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torchrun … -m shardway.bench", description=(__doc__ or "").split("\n")[0])
    add_measuring_arguments(parser, seconds=20.0)
    parser.add_argument("--ops", type=_op_list, default=list(_OPS), help="such as all_gather,all_reduce")
    parser.add_argument("--least", type=int, default=1 << 10, metavar="BYTES", help="the smallest size")
    parser.add_argument("--most", type=int, default=16 << 20, metavar="BYTES", help="the largest size; they double")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows as comma-separated values")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--plans", action="store_true", help="run plans that lost beside the one that was chosen")
    parser.add_argument("--topology", type=Path, metavar="FILE", help="what plans are priced by; SHARDWAY_TOPOLOGY")
    read = parser.parse_args(words)
    if not ITEM_BYTES <= read.least <= read.most:
        parser.error(f"--least {read.least} --most {read.most}: sizes rise from at least {ITEM_BYTES} bytes")
    if read.topology and not read.plans:
        parser.error("--topology is for --plans")
    return read


def _problem(arguments: argparse.Namespace) -> str:
    problems = [problem_with(file) for file in (arguments.csv, arguments.json) if file]
    return next((problem for problem in problems if problem), "")


def _main(words: list[str]) -> int:
    arguments = _arguments(words)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")  # of names in newer torch
    bench = _bench_plans if arguments.plans else _bench_calls
    return run_in_group("bench", arguments, lambda: _problem(arguments), lambda clock: bench(arguments, clock))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
