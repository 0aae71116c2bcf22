"""Rounds in which one rank makes another call: every rank raises a ValueError, the same text, and the group goes on."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from tests.stress.calls import any_case, one_of
from tests.stress.groups import Group, new_group
from tests.stress.world import World
from tests.support.dense import Draw

TIMEOUT = datetime.timedelta(seconds=20)

Call = Callable[[], Any]


def forward(world: World, draw: Draw) -> None:
    def pair(group: Group) -> tuple[str, Call, Call]:
        rows, columns = draw.integer(1, 5), one_of(draw, (1, 3, 700, 9_000))
        x = torch.ones(rows * group.size, columns)
        name, usual, other = one_of(draw, _forward_calls(x, group))
        return name, usual, other

    _try_some(world, draw, one_of(draw, ("gloo", "shardway")), pair)


def _forward_calls(x: Tensor, group: Group) -> list[tuple[str, Call, Call]]:
    pg, size, rows = group.pg, group.size, len(x)
    each = [rows // size] * size
    gather, scatter, swap = sw.all_gather_v, sw.reduce_scatter_v, sw.all_to_all_v
    wide = torch.ones(rows, x.shape[1] + 1)
    square = torch.ones(rows, rows)
    return [
        ("gather: dtype", lambda: gather(x, group=pg), lambda: gather(x.double(), group=pg)),
        ("gather: dims", lambda: gather(x, group=pg), lambda: gather(x[None], group=pg)),
        ("gather: shape", lambda: gather(x, group=pg), lambda: gather(wide, group=pg)),
        ("gather: dim", lambda: gather(x, group=pg), lambda: gather(x, 1, group=pg)),
        ("gather: bad dim", lambda: gather(x, group=pg), lambda: gather(x, 7, group=pg)),
        ("gather: grad", lambda: gather(x, group=pg), lambda: gather(x, grad="local", group=pg)),
        (
            "gather: sizes",
            lambda: gather(x, sizes=[rows] * size, group=pg),
            lambda: gather(x, sizes=[rows + 1] * size, group=pg),
        ),
        ("scatter: dtype", lambda: scatter(x, group=pg), lambda: scatter(x.bfloat16(), group=pg)),
        ("scatter: op", lambda: scatter(x, group=pg), lambda: scatter(x, op="max", group=pg)),
        ("scatter: shape", lambda: scatter(x, group=pg), lambda: scatter(wide, group=pg)),
        (
            "scatter: sizes",
            lambda: scatter(x, each, group=pg),
            lambda: scatter(x, [rows, *[0] * (size - 1)] if rows > each[0] else [*each, 1], group=pg),
        ),
        ("swap: dtype", lambda: swap(x, each, group=pg), lambda: swap(x.int(), each, group=pg)),
        ("swap: dim", lambda: swap(square, each, group=pg), lambda: swap(square, each, 1, group=pg)),
        ("reduce: dtype", lambda: sw.all_reduce(x, group=pg), lambda: sw.all_reduce(x.double(), group=pg)),
        ("reduce: op", lambda: sw.all_reduce(x, group=pg), lambda: sw.all_reduce(x, op="min", group=pg)),
        ("reduce: shape", lambda: sw.all_reduce(x, group=pg), lambda: sw.all_reduce(wide, group=pg)),
        ("ops", lambda: gather(x, group=pg), lambda: sw.all_reduce(x, group=pg)),
        ("ops of one kind", lambda: scatter(x, group=pg), lambda: swap(x, each, group=pg)),
        ("list", lambda: gather([x, x], group=pg), lambda: gather([x], group=pg)),
        ("list against tensor", lambda: gather([x, x], group=pg), lambda: gather(x, group=pg)),
        (
            "root",
            lambda: sw.broadcast(x, group_src=0, group=pg),
            lambda: sw.broadcast(x, group_src=1, group=pg),
        ),
        ("async", lambda: gather(x, group=pg), lambda: gather(x.double(), group=pg, async_op=True).wait()),
    ]


def on_backend(world: World, draw: Draw) -> None:
    def pair(group: Group) -> tuple[str, Call, Call]:
        x, pg = torch.ones(one_of(draw, (3, 60, 3_000, 60_000))), group.pg
        first, second = group.members[:2]
        choices: list[tuple[str, Call, Call]] = [
            ("dtype", lambda: dist.all_reduce(x, group=pg), lambda: dist.all_reduce(x.double(), group=pg)),
            ("length", lambda: dist.all_reduce(x, group=pg), lambda: dist.all_reduce(x[1:], group=pg)),
            (
                "op",
                lambda: dist.all_reduce(x, group=pg),
                lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=pg),
            ),
            ("root", lambda: dist.broadcast(x, first, group=pg), lambda: dist.broadcast(x, second, group=pg)),
            ("call", lambda: dist.all_reduce(x, group=pg), lambda: dist.barrier(group=pg)),
            (
                "gather",
                lambda: dist.all_gather([torch.empty_like(x) for _ in group.members], x, group=pg),
                lambda: dist.all_gather([torch.empty_like(x) for _ in group.members], x[1:], group=pg),
            ),
            ("ours", lambda: dist.all_reduce(x, group=pg), lambda: sw.all_reduce(x, group=pg)),
        ]
        return one_of(draw, choices)  # type: ignore[no-any-return]

    _try_some(world, draw, "shardway", pair, same_text=False)  # each names its own call first


def backward(world: World, draw: Draw) -> None:
    def pair(group: Group) -> tuple[str, Call, Call]:
        pg, rows = group.pg, one_of(draw, (1, 3, 4_000))
        is_member = group.place(world.rank) is not None
        x = torch.ones(rows * group.size, 2, requires_grad=True)

        def graph(op: Call) -> Tensor:
            """The forward is made by all, before the disagreement."""
            found = op() if is_member else x
            return (found[0] if isinstance(found, tuple) else found).sum()

        gathered = graph(lambda: sw.all_gather_v(x, group=pg))
        reduced = graph(lambda: sw.all_reduce(x, group=pg))
        choices: list[tuple[str, Call, Call]] = [
            ("forward of the same", gathered.backward, lambda: sw.all_gather_v(x.detach(), group=pg)),
            ("forward of its adjoint", gathered.backward, lambda: sw.reduce_scatter_v(x.detach(), group=pg)),
            ("forward of another", reduced.backward, lambda: sw.all_gather_v(x.detach(), group=pg)),
            ("backward against many forwards", lambda: sw.all_gather_v(x.detach(), group=pg), gathered.backward),
            ("another backward", gathered.backward, reduced.backward),
        ]
        return one_of(draw, choices)  # type: ignore[no-any-return]

    _try_some(world, draw, one_of(draw, ("gloo", "shardway")), pair)


def _try_some(
    world: World, draw: Draw, backend: str, pair: Callable[[Group], tuple[str, Call, Call]], same_text: bool = True
) -> None:
    """On a group of its own: one that does not go on spoils no other round."""
    members = [r for r in range(world.size) if draw.integer(0, 3)]
    timeout = min(TIMEOUT, world.groups.timeout)
    group = new_group(members if len(members) > 1 else range(world.size), backend, world.rank, timeout)
    place = group.place(world.rank)
    for _ in range(draw.integer(1, 4)):
        odd = draw.integer(0, group.size)
        name, usual, other = pair(group)
        what = f"{name}, odd rank {group.members[odd]}, on {backend} {group.members}"
        world.doing(f"disagreement: {what}")
        if place is not None:
            world.called("disagreement")
        heard = world.exchange(None if place is None else _heard(other if place == odd else usual))
        texts = {text for text in heard if text is not None}
        goes_on = world.exchange(None if place is None else _goes_on(world, group, Draw(odd)))
        are_errors = all(text.startswith("ValueError") for text in texts)
        if (not are_errors or (same_text and len(texts) > 1)) and world.rank == 0:
            world.find("disagreement", "\n" + "\n".join(f"  rank {r}: {text}" for r, text in enumerate(heard)))
        if any(goes_on):
            if world.rank == 0:
                world.find("disagreement", f"the group does not go on: {goes_on} after {heard}")
            break
    if place is not None:
        dist.destroy_process_group(group.pg)


def _heard(call: Call) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return "returned"


def _goes_on(world: World, group: Group, draw: Draw) -> str:
    case = any_case(draw, group.size)
    place = group.place(world.rank)
    assert place is not None
    try:
        case.check(case.call(case.inputs[place], place, group=group.pg), place)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""
