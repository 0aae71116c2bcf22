"""The operators of torch.ops.shardway: what torch asks of every operator, and that a compiler keeps them in order."""

from __future__ import annotations

import torch
import torch.distributed as dist

import shardway._operators  # noqa: F401
from tests.support import dense
from tests.support.dense import Draw
from tests.support.ranks import ranks

ops = torch.ops.shardway


def calls(rank: int, size: int, draw: Draw) -> list[tuple[torch._ops.OpOverload, tuple[object, ...]]]:
    """Every operator with arguments of this rank, ragged along dim 1."""
    group = dist.group.WORLD.group_name
    sizes = [r + 1 for r in range(size)]
    parts = draw.parts((2, 3), 1, sizes, torch.float64)
    whole = [draw.tensor((2, sum(sizes))) for _ in range(size)]
    part, addend = (tensors[rank].requires_grad_() for tensors in (parts, whole))
    source = addend if rank == 1 else addend.detach()[:, :0].requires_grad_()
    arriving = [rank + 1] * size
    return [
        (ops.all_gather_v.default, (part, sizes, 1, "sum", group)),
        (ops.all_gather_v.default, (part, sizes, 1, "mean", group)),
        (ops.all_gather_v.default, (part, sizes, -1, "local", group)),
        (ops.all_gather_v_sizes.default, (part, 1, "sum", group)),
        (ops.reduce_scatter_v.default, (addend, sizes, 1, "sum", group)),
        (ops.reduce_scatter_v.default, (addend, None, 0, "avg", group)),
        (ops.all_to_all_v.default, (addend, sizes, arriving, 1, group)),
        (ops.all_to_all_v_sizes.default, (addend, sizes, 1, group)),
        (ops.all_reduce.default, (addend, "sum", "sum", group)),
        (ops.all_reduce.default, (addend, "avg", "mean", group)),
        (ops.all_reduce.default, (addend, "sum", "local", group)),
        (ops.broadcast.default, (addend, 1, group)),
        (ops.gather_v.default, (part, sizes, 1, 1, group)),
        (ops.gather_v_sizes.default, (part, 1, 1, group)),
        (ops.scatter_v.default, (source, sizes, 1, 1, group)),
        (ops.scatter_v_sizes.default, (source, sizes, 1, 1, group)),
        (ops.gather_sizes.default, (part, 1, group)),
    ]


@ranks(2)
def test_every_operator_passes_opcheck(rank, size, seed):
    checked = calls(rank, size, Draw(seed))
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("shardway::")}
    assert {op.name() for op, _ in checked} == registered
    for op, arguments in checked:
        torch.library.opcheck(op, arguments)


@ranks(2)
def test_the_gradient_of_an_operators_gradient_is_the_operator(rank, size, seed):
    """Which is linear. Backward is a collective each time, also on the ranks that a broadcast or a scatter gives to."""
    draw = Draw(seed)
    for op, (x, *rest) in calls(rank, size, draw):
        if op.name().endswith("_sizes") or "local" in rest or "mean" in rest:
            continue
        y = op(x, *rest)
        upstream = torch.randn_like(y, requires_grad=True)
        (grad,) = torch.autograd.grad(y, x, upstream, create_graph=True)
        direction = torch.randn_like(x)
        (again,) = torch.autograd.grad(grad, upstream, direction)
        dense.assert_close(again, op(direction, *rest), op.name())
