"""Gradients of redistribute: the identity on the global tensor, and so is its gradient."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import placement_types as theirs

import shardway as sw
from tests.support import dense
from tests.support.mesh_reference import Layouts, coordinate, held, part
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def replicated(layout):
    return layout.with_([sw.Replicate() if p.is_partial() else p for p in layout.placements], layout.order)


def box_of(whole, layout, rank):
    """What a rank of the layout holds of a global tensor; None outside."""
    indices = held(layout, rank)
    return None if indices is None else part(whole, indices)


def random_global(pair, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(pair.before.shape, dtype=pair.before.dtype, generator=generator)


def leaf_of(pair, rank):
    local = pair.input(rank)
    return None if local is None else local.requires_grad_()


def pair_on_all_ranks(layouts, longest):
    """Every rank has something to differentiate, and no addends stay."""
    while True:
        pair = layouts.pair(torch.float64, longest=longest, ops=("sum", "avg"))
        covers = pair.before.mesh.size() == pair.after.mesh.size() == layouts.world
        if covers and not any(placement.is_partial() for placement in pair.after.placements):
            return pair


@TRANSPORTS
@ranks(2, 3, 4, 6)
def test_the_gradient_of_random_pairs_is_the_global_gradient(rank, size, seed, transport):
    """Every rank brings its box of one global gradient, and gets its box of it, divided by the averages."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layouts = Layouts(seed, size)
    for turn in range(60):
        pair = layouts.pair(torch.float64, longest=40 if turn % 10 == 0 else 7, ops=("sum", "avg"))
        x = leaf_of(pair, rank)
        u = sw.redistribute(sw.MeshTensor(x, pair.before), pair.after)
        gradient = random_global(pair, turn)
        u.backward(box_of(gradient, pair.after, rank))
        if x is not None:
            wanted = box_of(gradient, pair.before, rank) / pair.divisor
            dense.assert_close(x.grad, wanted, str(pair))


@TRANSPORTS
@ranks(2, 3)
def test_the_second_gradient_of_random_pairs_equals_that_of_one_process(rank, size, seed, transport):
    """The loss is the sum of the cubes of the global tensor: first gradient 3y², second along v 6yv, each addend of an
    average with its share."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layouts = Layouts(seed, size)
    for turn in range(40):
        pair = pair_on_all_ranks(layouts, 7)
        x = leaf_of(pair, rank)
        y = sw.redistribute(sw.MeshTensor(x, pair.before), pair.after).local
        whole = pair.whole()
        (first,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        dense.assert_close(first, box_of(3 * whole**2, pair.before, rank) / pair.divisor, str(pair))
        direction = random_global(pair, turn)
        (second,) = torch.autograd.grad(first, x, box_of(direction, pair.before, rank))
        dense.assert_close(second, box_of(6 * whole * direction, pair.before, rank) / pair.divisor**2, str(pair))


@ranks(2, 3)
def test_the_gradient_equals_differences_in_lock_step(rank, size, seed):
    """All ranks move one element of the global tensor at a time: replicas together, of addends one rank's."""
    layouts = Layouts(seed, size)
    step = 1e-6
    for _ in range(12):
        pair = pair_on_all_ranks(layouts, 3)
        weights = random_global(pair, 7)

        def loss(local, pair=pair, weights=weights):
            """Of the global tensor: every element counts once, wherever its replicas lie."""
            y = sw.redistribute(sw.MeshTensor(local, pair.before), pair.after).local
            return (box_of(weights, pair.after, rank) * y.sin() * y).sum() / replicas(pair.after)

        x = leaf_of(pair, rank)
        (grad,) = torch.autograd.grad(loss(x) * replicas(pair.after), x)
        for element in range(weights.numel()):
            for mover in movers(pair.before):
                moved = [moved_by(pair, rank, element, sign * step, mover) for sign in (1, -1)]
                up, down = (total_over_ranks(loss(local)) for local in moved)
                where = (moved[0] != pair.input(rank)).nonzero()
                for index in where:
                    difference = (up - down) / (2 * step)
                    assert grad[tuple(index)].item() == pytest.approx(difference, rel=1e-4, abs=1e-5), str(pair)


def total_over_ranks(value):
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item()


def replicas(layout):
    """How many ranks hold each element, or an addend of it."""
    count = 1
    for dim, placement in enumerate(layout.placements):
        if not placement.is_shard():
            count *= layout.mesh.shape[dim]
    return count


def movers(layout):
    """The coordinates on the mesh dims that hold addends."""
    dims = [dim for dim, placement in enumerate(layout.placements) if placement.is_partial()]
    found = {tuple(coordinate(layout.mesh, rank)[dim] for dim in dims) for rank in layout.mesh.ranks}
    return sorted(found)


def moved_by(pair, rank, element, step, mover):
    """The input with one element of the global tensor moved, on the ranks whose addend `mover` names."""
    local = pair.input(rank)
    dims = [dim for dim, placement in enumerate(pair.before.placements) if placement.is_partial()]
    if tuple(coordinate(pair.before.mesh, rank)[dim] for dim in dims) != mover:
        return local
    bump = torch.zeros(pair.before.shape, dtype=torch.float64)
    bump.view(-1)[element] = step
    return local + box_of(bump, pair.before, rank)


@TRANSPORTS
@ranks(4)
def test_gradients_equal_dtensors(rank, size, seed, transport):
    """Of shards, replicas and sums, on two meshes of four ranks, with the same loss of the local parts."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    generator = torch.Generator().manual_seed(seed)
    choices = [sw.Shard(0), sw.Shard(1), sw.Replicate(), sw.Partial()]
    torchs = {sw.Shard(0): theirs.Shard(0), sw.Shard(1): theirs.Shard(1), sw.Replicate(): theirs.Replicate()}
    torchs[sw.Partial()] = theirs.Partial()
    for shape in ((4,), (2, 2)):
        mesh = DeviceMesh("cpu", torch.arange(4).view(shape))
        for _ in range(25):
            draw = torch.randint(0, 4, (2 * len(shape),), generator=generator).tolist()
            before = [choices[i] for i in draw[: len(shape)]]
            after = [choices[i] for i in draw[len(shape) :] if choices[i] != sw.Partial()]
            if len(after) < len(shape):
                continue
            layout = sw.Layout((8, 8), torch.float64, sw.Mesh.from_device_mesh(mesh), before)
            values = torch.randn(layout.box(rank)[1], dtype=torch.float64, generator=torch.Generator().manual_seed(3))
            mine, torchs_own = values.clone().requires_grad_(), values.clone().requires_grad_()
            y = sw.redistribute(sw.MeshTensor(mine, layout), after).local
            (y.sin() * y).sum().backward()
            wrapped = DTensor.from_local(torchs_own, mesh, [torchs[p] for p in before], run_check=False)
            z = wrapped.redistribute(mesh, [torchs[p] for p in after]).to_local()
            dense.assert_close(y.detach(), z.detach(), f"{before} -> {after}")
            (z.sin() * z).sum().backward()
            dense.assert_close(mine.grad, torchs_own.grad, f"{before} -> {after}")


@TRANSPORTS
@ranks(2, 3)
def test_grad_placements_say_what_the_gradient_is(rank, size, transport):
    """Each rank has a loss of its own: with Partial their gradients add up, by default they are taken for replicas."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layout = sw.Layout((6, 2), torch.float64, sw.Mesh((size,)), [sw.Shard(0)])
    rows = layout.box(rank)[1][0]
    total = size * (size + 1) / 2
    for given, wanted in ((None, rank + 1), ([sw.Partial()], total), ([sw.Partial("avg")], total / size)):
        x = torch.ones(rows, 2, dtype=torch.float64, requires_grad=True)
        y = sw.redistribute(sw.MeshTensor(x, layout), [sw.Replicate()], grad_placements=given).local
        (y * (rank + 1)).sum().backward()
        dense.assert_close(x.grad, torch.full_like(x, wanted), str(given))
    # An unchanged layout whose gradient adds up: what goes into a column-parallel layer.
    x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    t = sw.MeshTensor(x, sw.Layout((2, 2), torch.float64, sw.Mesh((size,)), [sw.Replicate()]))
    y = sw.redistribute(t, [sw.Replicate()], grad_placements=[sw.Partial()]).local
    (y * (rank + 1)).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, total))


@TRANSPORTS
@ranks(2, 3)
def test_requires_grad_may_differ_between_ranks(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layout = sw.Layout((6, 6), torch.float64, sw.Mesh((size,)), [sw.Shard(0)])
    x = torch.ones(layout.box(rank)[1], dtype=torch.float64, requires_grad=rank == 0)
    y = sw.redistribute(sw.MeshTensor(x, layout), [sw.Shard(1)]).local
    assert y.requires_grad
    (y * 2).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2)) if rank == 0 else x.grad is None
    with torch.no_grad():
        assert not sw.redistribute(sw.MeshTensor(x, layout), [sw.Shard(1)]).local.requires_grad


@TRANSPORTS
@ranks(4)
def test_gradients_cross_meshes_and_every_rank_runs_backward(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    source = sw.Layout((4, 4), torch.float64, sw.Mesh((2,), ranks=(0, 1)), [sw.Shard(0)])
    x = torch.ones(2, 4, dtype=torch.float64, requires_grad=True) if rank < 2 else None
    u = sw.redistribute(sw.MeshTensor(x, source), [sw.Shard(1)], mesh=sw.Mesh((2,), ranks=(1, 2)))
    weights = torch.arange(16.0, dtype=torch.float64).view(4, 4)
    u.backward({1: weights[:, :2], 2: weights[:, 2:]}.get(rank))
    if rank < 2:
        assert torch.equal(x.grad, weights[2 * rank : 2 * rank + 2])


@TRANSPORTS
@ranks(2)
def test_min_max_and_product_refuse_a_gradient(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    for op in ("min", "max", "product"):
        layout = sw.Layout((2, 2), torch.float32, sw.Mesh((size,)), [sw.Partial(op)])
        x = torch.ones(2, 2, requires_grad=rank == 1)
        t = sw.MeshTensor(x, layout)
        message = message_of(lambda: sw.redistribute(t, [sw.Replicate()]))  # noqa: B023
        assert_says(message, [f"op='{op}' has no gradient", r"rank 1"], op)
        assert sw.redistribute(t, [sw.Partial(op)]).local is x  # it stays
        detached = sw.MeshTensor(x.detach(), layout)
        assert torch.equal(sw.redistribute(detached, [sw.Replicate()]).local, torch.ones(2, 2))
    with pytest.raises(ValueError, match="backward of a tensor that has no gradient"):
        sw.MeshTensor(torch.ones(2, 2), layout).backward()
    assert_usable(rank, size)


@TRANSPORTS
@ranks(2)
def test_what_wait_gives_is_differentiable(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layout = sw.Layout((4, 4), torch.float64, sw.Mesh((size,)), [sw.Shard(0)])
    x = torch.ones(2, 4, dtype=torch.float64, requires_grad=True)
    handle = sw.redistribute(sw.MeshTensor(x, layout), [sw.Shard(1)], async_op=True)
    (handle.wait().local * 3).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3))
    # distribute and full carry gradients as well
    whole = torch.ones(4, 4, dtype=torch.float64, requires_grad=rank == 0)
    t = sw.distribute(whole if rank == 0 else None, sw.Mesh((size,)), [sw.Shard(0)], src=0)
    (t.full() * 5).sum().backward()
    assert torch.equal(whole.grad, torch.full_like(whole, 5)) if rank == 0 else whole.grad is None
