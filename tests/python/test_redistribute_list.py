"""Many tensors redistributed at once: results, gradients and errors as one by one."""

from __future__ import annotations

import os
import random

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import shardway as sw
from tests.support.mesh_reference import coordinate, held, part
from tests.support.ranks import ranks
from tests.support.refusals import assert_usable

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])
DTYPES = [torch.float32, torch.float64, torch.int16, torch.complex64, torch.bool]


def any_placements(dice, mesh, shape, kinds):
    return tuple(
        sw.Shard(dice.randrange(len(shape))) if kind == "S" else sw.Partial() if kind == "P" else sw.Replicate()
        for kind in (dice.choice(kinds) for _ in mesh.shape)
    )


def part_of(whole, layout, rank):
    """This rank's box; as an addend the whole on the first rank of those that add up, zeros on the others."""
    local = part(whole, held(layout, rank))
    position = coordinate(layout.mesh, rank)
    is_first = all(position[d] == 0 for d, p in enumerate(layout.placements) if p.is_partial())
    return local if is_first else torch.zeros_like(local)


@TRANSPORTS
@ranks(2, 3, 4)
def test_any_list_gives_what_each_tensor_gives(rank, size, transport, seed):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    dice = random.Random(seed)
    meshes = [sw.Mesh((size,)), *([sw.Mesh((2, 2))] if size == 4 else [])]
    for _ in range(12):
        tensors, targets, wanted = [], [], []
        for _ in range(dice.randrange(1, 12)):
            mesh = dice.choice(meshes)
            shape = dice.choice([(5, 3), (0, 4), (7,), (2, 3, 5), (300, 301)])
            dtype = dice.choice(DTYPES)
            kinds = "SRP" if dtype in (torch.float32, torch.float64) else "SR"
            before = sw.Layout(shape, dtype, mesh, any_placements(dice, mesh, shape, kinds))
            after = before.with_(any_placements(dice, mesh, shape, "SR"))
            whole = (torch.arange(torch.Size(shape).numel()) % 13).view(shape).to(dtype)
            tensors.append(sw.MeshTensor(part_of(whole, before, rank), before))
            targets.append(after.placements)
            wanted.append(part_of(whole, after, rank))
        results = sw.redistribute(tensors, targets)
        handle = sw.redistribute(tensors, targets, async_op=True)
        for i, expected in enumerate(wanted):
            what = f"{tensors[i].layout} to {targets[i]}"
            assert results[i].layout == tensors[i].layout.with_(targets[i]), what
            assert torch.equal(results[i].local, expected), what
            assert torch.equal(handle.wait()[i].local, expected), what


@TRANSPORTS
@ranks(3)
def test_gradients_are_those_of_one_by_one(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = sw.Mesh((size,))
    rows = sw.Layout((5, 4), torch.float64, mesh, [sw.Shard(0)])
    addends = sw.Layout((5, 4), torch.float64, mesh, [sw.Partial()])

    def gradients(move):
        torch.manual_seed(rank)
        leaves = [
            torch.randn(rows.box(rank)[1], dtype=torch.float64, requires_grad=True),
            torch.randn(5, 4, dtype=torch.float64, requires_grad=True),
            torch.randn(rows.box(rank)[1], dtype=torch.float64),  # of no rank
            torch.randn(rows.box(rank)[1], dtype=torch.float64, requires_grad=rank == 1),
        ]
        layouts = [rows, addends, rows, rows]
        moved = move([sw.MeshTensor(x, layout) for x, layout in zip(leaves, layouts, strict=True)])
        assert [t.local.requires_grad for t in moved] == [True, True, False, True]
        sum((t.local.sin() * (i + 1)).sum() for i, t in enumerate(moved)).backward()
        return [x.grad for x in leaves]

    together = gradients(lambda tensors: sw.redistribute(tensors, [sw.Shard(1)]))
    one_by_one = gradients(lambda tensors: [sw.redistribute(t, [sw.Shard(1)]) for t in tensors])
    for ours, wanted in zip(together, one_by_one, strict=True):
        assert (ours is None) == (wanted is None)
        assert ours is None or torch.equal(ours, wanted)


@TRANSPORTS
@ranks(2, 3)
def test_from_owners_to_shards_and_back_with_gradients(rank, size, transport):
    """Every tensor is whole on one rank, so that each rank is outside of most meshes."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    for rows in (3, 3000):
        shape, count = (rows, 5), 2 * size + 1
        shards = sw.Layout(shape, torch.float64, sw.Mesh((size,)), [sw.Shard(0)])
        owned = [
            sw.Layout(shape, torch.float64, sw.Mesh((1,), ranks=[i % size]), [sw.Replicate()]) for i in range(count)
        ]
        wholes = [torch.arange(rows * 5.0, dtype=torch.float64).view(shape) + i for i in range(count)]
        leaves = [whole.clone().requires_grad_() if i % size == rank else None for i, whole in enumerate(wholes)]
        given = [sw.MeshTensor(x, layout) for x, layout in zip(leaves, owned, strict=True)]
        cut = sw.redistribute(given, [shards] * count)
        for t, whole in zip(cut, wholes, strict=True):
            assert torch.equal(t.local, part(whole, held(shards, rank)))
        back = sw.redistribute(cut, owned)
        for i, t in enumerate(back):
            assert (t.local is None) == (i % size != rank) and (t.local is None or torch.equal(t.local, wholes[i]))
        sum((t.local * (i + 1)).sum() for i, t in enumerate(cut)).backward()
        for i, x in enumerate(leaves):
            assert x is None or torch.equal(x.grad, torch.full(shape, i + 1.0, dtype=torch.float64))


@TRANSPORTS
@ranks(2)
def test_a_second_gradient_leaves_the_first_ones_input_as_it_was(rank, size, transport):
    """The gradient of an addend that becomes a replica is handed through; that of a shard moves."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = sw.Mesh((size,))
    layouts = [sw.Layout((4, 3), torch.float64, mesh, [p]) for p in (sw.Partial(), sw.Shard(0))]
    xs = [torch.ones(layout.box(rank)[1], dtype=torch.float64, requires_grad=True) for layout in layouts]
    results = sw.redistribute([sw.MeshTensor(x, y) for x, y in zip(xs, layouts, strict=True)], [sw.Replicate()])
    outs = [t.local**2 for t in results]
    upstream = [torch.full((4, 3), float(i + 1), dtype=torch.float64) for i in range(2)]
    grads = torch.autograd.grad(outs, xs, grad_outputs=upstream, create_graph=True)
    assert not any(v.requires_grad for v in upstream)
    assert torch.equal(grads[0], torch.full((4, 3), 2.0 * size, dtype=torch.float64))
    assert torch.equal(grads[1], torch.full(layouts[1].box(rank)[1], 4.0, dtype=torch.float64))
    second = torch.autograd.grad([g.sum() for g in grads], xs)
    assert all(torch.isfinite(g).all() and g.abs().sum() > 0 for g in second)


@TRANSPORTS
@ranks(2)
def test_an_input_whose_result_was_not_used_gets_zeros(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layout = sw.Layout((4, 3), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    xs = [torch.ones(layout.box(rank)[1], requires_grad=True) for _ in range(2)]
    used, _ = sw.redistribute([sw.MeshTensor(x, layout) for x in xs], [sw.Replicate()])
    used.local.sum().backward()
    assert torch.equal(xs[0].grad, torch.ones_like(xs[0])) and torch.equal(xs[1].grad, torch.zeros_like(xs[1]))


@TRANSPORTS
@ranks(4)
def test_dtensors_stay_dtensors(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = DeviceMesh("cpu", torch.arange(4).view(2, 2))
    wholes = [torch.arange(15.0).view(5, 3) + i for i in range(3)]
    sources = [distribute_tensor(w, mesh, [Shard(0), Shard(1)], src_data_rank=None) for w in wholes]
    for results in (
        sw.redistribute(sources, [Replicate(), Shard(1)]),
        sw.redistribute(sources, [[Replicate(), Shard(1)]] * 3, async_op=True).wait(),
    ):
        for whole, result in zip(wholes, results, strict=True):
            wanted = distribute_tensor(whole, mesh, [Replicate(), Shard(1)], src_data_rank=None)
            assert isinstance(result, DTensor) and result.placements == wanted.placements
            assert torch.equal(result.to_local(), wanted.to_local())


def mesh_tensor(rank, size, rows=4):
    layout = sw.Layout((rows, 2), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    return sw.MeshTensor(torch.ones(layout.box(rank)[1]), layout)


@TRANSPORTS
@ranks(2)
def test_bad_lists(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    t, target = mesh_tensor(rank, size), [sw.Replicate()]
    with pytest.raises(ValueError, match="t is an empty list"):
        sw.redistribute([], target)
    with pytest.raises(ValueError, match=r"placements for 3 tensors, but t has 2"):
        sw.redistribute([t, t], [target] * 3)
    with pytest.raises(ValueError, match=r"t\[1\] is a Tensor|t\[0\] is a MeshTensor"):
        sw.redistribute([t, torch.ones(2)], target)
    with pytest.raises(ValueError, match="plan and grad_placements"):
        sw.redistribute([t], target, grad_placements=target)
    with pytest.raises(ValueError, match=r"tensor 1: .*rank 1"):
        sw.redistribute([t, t], [target, [sw.Partial()] if rank == 1 else target])
    with pytest.raises(ValueError, match=r"ranks disagree on tensor 1: .*S1.* on rank 0, .*R.* on rank 1"):
        sw.redistribute([t, t], [target, [sw.Shard(1)] if rank == 0 else target])
    with pytest.raises(ValueError, match=r"ranks disagree on the number of tensors: 1 on rank 0, 2 on rank 1"):
        sw.redistribute([t] * (rank + 1), target)
    assert_usable(rank, size)
