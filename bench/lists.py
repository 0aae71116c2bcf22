"""How fast a list of tensors moves in one call: against the same tensors one by one, and a plain copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import shardway as sw
from bench.forked_ranks import run_ranks
from bench.options import parser_of
from bench.ragged_contenders import rewrite
from bench.report import Claim, Progress, Row, bytes_text, print_claims, print_table, us_text, write_json
from bench.timing import OUTPUTS_ALIVE, Contender, Effort, Meeting, undisturbed

LIST, ONE_BY_ONE, COPY = "list", "one by one", "plain copy"
TIMES_COPY = 1.6
OWNERS = "shards→owners"  # every matrix lies in shards on all ranks, and goes whole to one of them
GATHER = "all_gather_v"
CASES = {  # op: number of tensors and rows of each, of 1024 f32
    (OWNERS, 64, 1024),
    (OWNERS, 64, 16),
    (GATHER, 64, 256),
    (GATHER, 256, 2),
}
COLUMNS = 1024

HELP = f"""
A list of matrices of f32, with {COLUMNS} columns. Contenders:

  {LIST:12} one call with the list
  {ONE_BY_ONE:12} a call with each of its tensors
  {COPY:12} a copy of what a rank gets, into warm memory: the floor

Inputs lie in ordinary memory and are rewritten before each call; every call has fresh outputs while the last
{OUTPUTS_ALIVE} stay alive. A call lasts from the first rank's start to the last rank's end; figures are medians.
The claim about the copy is about matrices of 4 MiB and about ranks that have a core each.

Leaves build/bench/lists.json. Exits 1 when a claim is missed.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("lists", __doc__, HELP)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2], help="numbers of ranks (default: 2)")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for one row (default: 3)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.monotonic()
    rows: list[Row] = []
    for ranks in options.ranks:
        print(f"\n{ranks} ranks")
        rows += run_ranks(ranks, _measure, Meeting(ranks), Effort(seconds=options.seconds), timeout_s=1800.0)[0]
    _print(rows)
    claims = _claims(rows)
    path = write_json(options.output / "lists.json", rows, claims)
    print(f"\n{path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _measure(rank: int, ranks: int, meeting: Meeting, effort: Effort) -> list[Row]:
    progress = Progress(len(CASES))
    found: list[Row] = []
    for op, count, rows in sorted(CASES):
        inputs, calls, wanted = (_owners if op == OWNERS else _gather)(rank, ranks, count, rows)
        for name, call in calls.items():
            _check(name, call(), wanted)
        timings, _ = undisturbed(meeting, rank, _contenders(inputs, calls, wanted), effort)
        whole = sum(x.nbytes for x in wanted)
        for name, timing in timings.items():
            found.append(Row(op, name, ranks, (count, rows, COLUMNS), whole, timing.us, timing.spread, timing.samples))
        if rank == 0:
            figures = ", ".join(f"{name} {us_text(timing.us)}" for name, timing in timings.items())
            progress.finished(f"{op:14} {count:3} of {bytes_text(4 * COLUMNS * rows):7} {figures}")
    return found


Calls = dict[str, Callable[[], list[Tensor]]]


def _contenders(inputs: list[Tensor], calls: Calls, wanted: list[Tensor]) -> list[Contender]:
    kept = [torch.empty_like(x) for x in wanted]
    found = [Contender(name, lambda: _rewrite(inputs), call) for name, call in calls.items()]
    return [*found, Contender(COPY, lambda: _rewrite(inputs), lambda: _copy(wanted, kept))]


def _owners(rank: int, ranks: int, count: int, rows: int) -> tuple[list[Tensor], Calls, list[Tensor]]:
    """Matrix i goes to rank i % ranks."""
    shape = (rows, COLUMNS)
    before = sw.Layout(shape, torch.float32, sw.Mesh((ranks,)), (sw.Shard(0),))
    begin, extent = before.box(rank)[0][0], before.box(rank)[1][0]
    whole = [_values(i, rows) for i in range(count)]
    parts = [sw.MeshTensor(x[begin : begin + extent].clone(), before) for x in whole]
    after = [sw.Layout(shape, torch.float32, sw.Mesh((1,), ranks=[i % ranks]), (sw.Replicate(),)) for i in range(count)]

    def found(tensors: Any) -> list[Tensor]:
        return [t.local for t in tensors if t.local is not None and t.local.numel() > 0]

    calls: Calls = {
        LIST: lambda: found(sw.redistribute(parts, after)),
        ONE_BY_ONE: lambda: found(sw.redistribute(part, to) for part, to in zip(parts, after, strict=True)),
    }
    return [part.local for part in parts], calls, whole[rank::ranks]


def _gather(rank: int, ranks: int, count: int, rows: int) -> tuple[list[Tensor], Calls, list[Tensor]]:
    """Of the rows of each tensor rank 0 has more than the others."""
    sizes = [rows // ranks] * ranks
    sizes[0] += rows - sum(sizes)
    whole = [_values(i, rows) for i in range(count)]
    begin = sum(sizes[:rank])
    parts = [x[begin : begin + sizes[rank]].clone() for x in whole]
    calls: Calls = {
        LIST: lambda: sw.all_gather_v(parts)[0],
        ONE_BY_ONE: lambda: [sw.all_gather_v(part)[0] for part in parts],
    }
    return parts, calls, whole


def _values(number: int, rows: int) -> Tensor:
    return (torch.arange(rows * COLUMNS) % 251 + number).float().view(rows, COLUMNS)


def _rewrite(inputs: list[Tensor]) -> None:
    for x in inputs:
        rewrite(x)


def _check(who: str, results: list[Tensor], wanted: list[Tensor]) -> None:
    if len(results) != len(wanted) or not all(map(torch.equal, results, wanted)):
        raise AssertionError(f"{who} moved the list wrongly")


def _copy(wanted: list[Tensor], kept: list[Tensor]) -> list[Tensor]:
    for to, x in zip(kept, wanted, strict=True):
        to.copy_(x)
    return kept


def _print(rows: list[Row]) -> None:
    names = (LIST, ONE_BY_ONE, COPY)
    cases = sorted({(row.ranks, row.op, row.shape) for row in rows})
    us = {(row.ranks, row.op, row.shape, row.contender): row.us for row in rows}
    print()
    print_table(
        ["", "ranks", *names],
        [
            [f"{op}, {shape[0]} of {bytes_text(4 * COLUMNS * shape[1])}", str(ranks)]
            + [us_text(us[ranks, op, shape, name]) for name in names]
            for ranks, op, shape in cases
        ],
    )


def _claims(rows: list[Row]) -> list[Claim]:
    us = {(row.ranks, row.op, row.shape, row.contender): row.us for row in rows}
    claims = []
    for ranks, op, shape in sorted({(row.ranks, row.op, row.shape) for row in rows}):
        what = f"{op}, {shape[0]} of {bytes_text(4 * COLUMNS * shape[1])}, {ranks} ranks"
        times = us[ranks, op, shape, ONE_BY_ONE] / us[ranks, op, shape, LIST]
        claims.append(Claim(f"{what}: a list is faster than one by one", f"{times:.2f} times", times >= 1))
        if op == OWNERS and shape[1] == 1024:
            share = us[ranks, op, shape, LIST] / us[ranks, op, shape, COPY]
            claims.append(
                Claim(f"{what}: within {TIMES_COPY} times a copy of a rank's part", f"{share:.2f}", share <= TIMES_COPY)
            )
    return claims


if __name__ == "__main__":
    raise SystemExit(main())
