"""torch.compile without a graph break: every collective, forward and backward, against one process."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

import shardway as sw
from shardway.compat import mirasol, musiclm, spear_tts, st_moe
from tests.support import dense
from tests.support.cases import (
    all_gather_case,
    all_reduce_case,
    all_to_all_case,
    broadcast_case,
    gather_case,
    reduce_scatter_case,
    scatter_case,
)
from tests.support.dense import Draw
from tests.support.ranks import ranks
from tests.support.versions import needs_torch


def whole(body, backend="aot_eager", **options):
    """The body in one graph. The ranks are as many as there are cores: each compiles by itself."""
    torch._dynamo.reset()
    torch._inductor.config.compile_threads = 1
    return torch.compile(body, fullgraph=True, backend=backend, **options)


def each_case(draw, size):
    """Ragged, one rank without rows, along dim 1."""
    sizes = [*range(size - 1, 0, -1), 0]
    yield all_gather_case(draw, (2, 3), 1, sizes, torch.float64)
    for op in ("sum", "avg"):
        yield reduce_scatter_case(draw, (2, 3), -1, sizes, torch.float64, op)
        yield all_reduce_case(draw, (2, 3), size, torch.float64, op)
    yield reduce_scatter_case(draw, (2, 3), 1, None, torch.float64, ranks=size, length=size + 1)
    yield all_to_all_case(draw, (2, 3), 1, [[(r + s) % 3 for s in range(size)] for r in range(size)], torch.float64)
    yield broadcast_case(draw, (2, 3), size, size - 1, torch.float64)
    yield gather_case(draw, (2, 3), 1, sizes, size - 1, torch.float64)
    yield scatter_case(draw, (2, 3), 1, sizes, size - 1, torch.float64)


def one_process_gradient(case, rank, upstream):
    """Of the loss of all ranks, with respect to this rank's input."""
    leaves = [x.clone().requires_grad_() for x in case.inputs]
    outputs = case.dense(leaves)
    loss = sum((y * g).sum() for y, g in zip(outputs, upstream, strict=True))
    return torch.autograd.grad(loss, leaves[rank])[0]


@needs_torch(2, 13, "aot_autograd takes a size for a tensor")
@ranks(3)
def test_every_collective_compiles_whole_with_sizes_given_and_not(rank, size, seed):
    draw = Draw(seed)
    for case in each_case(draw, size):
        upstream = [draw.tensor(y.shape) for y in case.outputs]
        want = one_process_gradient(case, rank, upstream)
        for known in [{}, case.known[rank]] if case.known[rank] else [{}]:
            x = case.inputs[rank].clone().requires_grad_()
            compiled = whole(lambda x, case=case, known=known: case.call(x, rank, **known))
            y = case.tensor_of(compiled(x))
            what = f"{case.op} {known}"
            dense.assert_close(y.detach(), case.outputs[rank], what)
            dense.assert_close(torch.autograd.grad(y, x, upstream[rank])[0], want, what)


@ranks(3)
def test_grad_mean_and_local_keep_their_meaning(rank, size, seed):
    draw = Draw(seed)
    sizes = [2, 0, 3]
    gather = all_gather_case(draw, (2, 3), 0, sizes, torch.float64)
    upstream = [draw.tensor(gather.outputs[0].shape) for _ in range(size)]
    mine = [dense.block(g, sizes, rank, 0) for g in upstream]
    for grad, gathered_grad, reduced_grad in (
        ("mean", sum(mine) / size, sum(upstream) / size),
        ("local", mine[rank], upstream[rank]),
    ):
        x = gather.inputs[rank].clone().requires_grad_()
        y = whole(lambda x, grad=grad: sw.all_gather_v(x, grad=grad)[0])(x)
        dense.assert_close(torch.autograd.grad(y, x, upstream[rank])[0], gathered_grad, grad)
        x = upstream[rank].clone().requires_grad_()
        y = whole(lambda x, grad=grad: sw.all_reduce(x, grad=grad))(x)
        dense.assert_close(torch.autograd.grad(y, x, upstream[rank])[0], reduced_grad, grad)


def contrastive_loss(x, weight):
    """The part of this rank's rows in the loss of all rows, each the sole partner of itself."""
    rows = F.normalize(x @ weight, dim=-1)
    everyone, sizes = sw.all_gather_v(rows)
    first = sum(sizes[: dist.get_rank()])
    logits = rows @ everyone.T
    return F.cross_entropy(logits, torch.arange(first, first + rows.shape[0]), reduction="sum") / everyone.shape[0]


@ranks(2, timeout_s=300)
def test_a_ragged_contrastive_loss_runs_on_inductor_and_is_not_compiled_anew_for_new_sizes(rank, size, seed):
    draw = Draw(seed)
    weight = draw.tensor((4, 3)).requires_grad_()
    compiled = whole(contrastive_loss, "inductor", dynamic=True)
    for step in range(3):
        sizes = [5 + step, 8 - step]
        parts = draw.parts((1, 4), 0, sizes)
        with torch._dynamo.config.patch(error_on_recompile=step > 0):
            loss = compiled(parts[rank], weight)
        (grad,) = torch.autograd.grad(loss, weight)

        rows = F.normalize(torch.cat(parts) @ weight, dim=-1)
        expected = F.cross_entropy(rows @ rows.T, torch.arange(sum(sizes)))
        found = torch.stack([loss.detach(), *grad.flatten()])
        dist.all_reduce(found)
        want = torch.stack([expected.detach(), *torch.autograd.grad(expected, weight)[0].flatten()])
        dense.assert_close(found, want, step)


@ranks(2, timeout_s=300)
def test_inductor_drops_no_collective_and_keeps_their_order(rank, size):
    """Rank 0 does not use what it gets of the first call, and the second needs nothing of it."""

    def both(x):
        first, _ = sw.gather_v(x, dst=1, sizes=[2, 2])
        second = sw.all_reduce(x.sin())
        return second + first.sum() if rank == 1 else second

    x = torch.arange(4.0).view(2, 2) + rank
    whole_batch = torch.stack([torch.arange(4.0).view(2, 2) + r for r in range(size)])
    want = whole_batch.sin().sum(0) + (whole_batch.sum() if rank == 1 else 0)
    dense.assert_close(whole(both, "inductor")(x), want)


@ranks(2)
def test_every_form_of_a_group_traces(rank, size):
    world = dist.group.WORLD
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replica", "shard"))
    want = torch.tensor([[0.0], [1.0], [1.0]])
    for group in (None, world, world.group_name, mesh["shard"], (mesh, 1), (mesh, "shard")):
        x = torch.full((rank + 1, 1), float(rank))
        assert torch.equal(whole(lambda x, g: sw.all_gather_v(x, group=g)[0], "eager")(x, group), want)
    assert torch.equal(whole(sw.AllGather(group=(mesh, 1)), "eager")(x)[0], want)
    alone = dist.new_subgroups(1)[0]
    x = torch.ones(2)
    assert torch.equal(whole(lambda x: sw.all_gather_v(x, group=alone)[0] + 1, "eager")(x), x + 1)


@needs_torch(2, 13, "dynamo cannot compare the shape of out= with sizes that come")
@ranks(2)
def test_handles_out_lists_and_sizes_in_a_tensor_work_in_a_compiled_function(rank, size):
    x = torch.full((rank + 1, 1), float(rank))
    want = torch.tensor([[0.0], [1.0], [1.0]])

    gathered, sizes = whole(lambda x: sw.all_gather_v(x, async_op=True).wait())(x)
    assert torch.equal(gathered, want) and sizes == (1, 2)

    out = torch.zeros(3, 1)
    assert torch.equal(whole(lambda x, out: sw.all_gather_v(x, out=out)[0] + 1)(x, out), want + 1)
    assert torch.equal(out, want)

    results, sizes = whole(lambda x: sw.all_gather_v([x, 2 * x]))(x)
    assert [torch.equal(results[0], want), torch.equal(results[1], 2 * want)] == [True, True]
    assert sizes == [(1, 2), (1, 2)]
    parts = whole(lambda x: sw.reduce_scatter_v([x, x.int()], [(1, 2), (2, 1)], op=dist.ReduceOp.MAX))(want)
    assert torch.equal(parts[0], want[:1] if rank == 0 else want[1:])
    assert torch.equal(parts[1], want[:2].int() if rank == 0 else want[2:].int())
    results, sizes = whole(lambda x: sw.gather_v([x, 2 * x], 1))(x)
    assert sizes == [(1, 2), (1, 2)] and torch.equal(results[1], 2 * want if rank == 1 else want[:0])
    parts = whole(lambda x: sw.scatter_v([x, 2 * x], 1, sizes=[(1, 2), (2, 1)]))(want)
    assert torch.equal(parts[1], 2 * (want[:2] if rank == 0 else want[2:]))
    results, sizes = whole(lambda x: sw.all_to_all_v([x, 2 * x], [(1, 2), (2, 1)]))(want)
    assert sizes == [(1, 1), (2, 2)] if rank == 0 else [(2, 2), (1, 1)]
    assert torch.equal(results[0], torch.cat([want[:1]] * 2 if rank == 0 else [want[1:]] * 2))

    given = torch.tensor([1, 2])
    assert torch.equal(whole(lambda x, given: sw.all_gather_v(x, sizes=given)[0])(x, given), want)
    assert whole(lambda x: (x + 1, sw.gather_sizes(x)))(x)[1] == (1, 2)
    part, sizes = whole(lambda x: sw.split_by_rank([x, x[:0]]))(x)
    assert part.shape[0] == (1 if rank == 0 else 0) and sizes == (rank + 1, 0)


@needs_torch(2, 13, "dynamo cannot rebuild a process group")
@ranks(2)
def test_the_drop_in_modules_compile_whole(rank, size):
    x = torch.full((rank + 1, 1), float(rank))
    want = torch.tensor([[0.0], [1.0], [1.0]])
    for body in (
        lambda x: mirasol.all_gather(x, 0, None),
        musiclm.AllGather(0),
        st_moe.AllGather(dim=0),
        lambda x: spear_tts.all_gather(x, 0, None),
        spear_tts.all_gather_variable_dim,
    ):
        gathered, sizes = whole(body, "eager")(x)
        assert torch.equal(gathered, want) and sizes.tolist() == [1, 2]


@ranks(2)
def test_torch_export_keeps_the_operators(rank, size):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return 2 * sw.all_gather_v(x)[0]

    x = torch.full((rank + 2, 1), float(rank))
    program = torch.export.export(Doubled(), (x,))
    assert any("shardway.all_gather_v.default" in str(node.args) + str(node.target) for node in program.graph.nodes)
    assert torch.equal(program.module()(x), torch.tensor([[0.0]] * 2 + [[2.0]] * 3))


@ranks(2)
def test_bad_input_is_a_clear_error_on_every_rank(rank, size):
    x = torch.ones(rank + 1, 2)

    def message(body, *inputs):
        try:
            whole(body)(*inputs)
        except Exception as error:  # at the trace dynamo wraps it in one of its own
            return str(error)
        return "nothing was raised"

    assert f"all_gather_v: dim=7 is out of range for a 2-d tensor (rank {rank})" in message(
        lambda x: sw.all_gather_v(x, 7), x
    )
    assert "all_gather_v: sizes has 3 entries for 2 ranks" in message(lambda x: sw.all_gather_v(x, sizes=(1, 2, 3)), x)
    assert "all_gather_v: sizes[1]=5 is not this rank's own size, which is 2 along dim 0 (rank 1)" in message(
        lambda x: sw.all_gather_v(x, sizes=(1, 5)), x
    )
    assert "all_gather_v: grad='total' is not one of" in message(lambda x: sw.all_gather_v(x, grad="total"), x)
    assert "no group is named 'nobody'" in message(lambda x: sw.all_reduce(x, group="nobody"), x)
    assert "all_reduce: op='max' has no gradient" in message(
        lambda x: sw.all_reduce(x, op="max"), torch.ones(1, requires_grad=True)
    )
    assert "scatter_v: x is None" in message(lambda x: sw.scatter_v(None, src=0) + x, x)
    assert "scatter_v: x is an empty list" in message(lambda x: sw.scatter_v([], src=0)[0] + x, x)
    assert "ranks disagree on dtype" in message(
        lambda x: sw.all_gather_v(x)[0], x.to([torch.float, torch.double][rank])
    )
    assert torch.equal(sw.all_gather_v(x)[0], torch.ones(3, 2))  # the group is still usable
