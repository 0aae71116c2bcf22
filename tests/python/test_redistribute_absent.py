"""A rank that has no part of a tensor passes None, and learns from the others how it lies."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import shardway as sw
from tests.support.mesh_reference import Layouts, check, held, part
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def whole_of(shape, dtype=torch.float32):
    return torch.arange(torch.Size(shape).numel()).view(shape).to(dtype)


def on_mesh(whole, layout, rank):
    """The MeshTensor of a rank in the mesh; None on the others."""
    indices = held(layout, rank)
    return None if indices is None else sw.MeshTensor(part(whole, indices), layout)


def assert_part(moved, whole, after, rank):
    indices = held(after, rank)
    assert moved.layout == after
    if indices is None:
        assert moved.local is None
    else:
        assert torch.equal(moved.local, part(whole, indices))


@TRANSPORTS
@ranks(2, 3, 4)
def test_a_tensor_goes_to_ranks_that_know_nothing_of_it(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    old, new = sw.Mesh((size // 2,)), sw.Mesh((size - size // 2,), ranks=range(size // 2, size))
    for shape, dtype in (((7, 5), torch.float32), ((600, 301), torch.float64), ((0, 3), torch.int16)):
        whole = whole_of(shape, dtype)
        sizes = (shape[0],) + (0,) * (size // 2 - 1)
        before = sw.Layout(shape, dtype, old, [sw.Shard(0, sizes)])
        t = on_mesh(whole, before, rank)
        after = sw.Layout(shape, dtype, new, [sw.Shard(1)])
        assert_part(sw.redistribute(t, [sw.Shard(1)], mesh=new), whole, after, rank)
        handle = sw.redistribute(t, [sw.Shard(1)], mesh=new, async_op=True)
        assert_part(handle.wait(), whole, after, rank)
    assert_usable(rank, size)


@TRANSPORTS
@ranks(3)
def test_a_list_whose_tensors_lie_on_different_ranks(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    many = 300
    wholes = [whole_of((4, 3)), whole_of((5,), torch.float64), *[whole_of((2, 6))] * many]
    meshes = [sw.Mesh((1,)), sw.Mesh((1,), ranks=[1]), *(sw.Mesh((2,), ranks=[i % 2, 1 - i % 2]) for i in range(many))]
    befores = [sw.Layout(w.shape, w.dtype, mesh, [sw.Shard(0)]) for w, mesh in zip(wholes, meshes, strict=True)]
    tensors = [on_mesh(w, layout, rank) for w, layout in zip(wholes, befores, strict=True)]
    target = sw.Mesh((2,), ranks=[2, 0])
    for given in (tensors, None if rank == 2 else tensors):
        moved = sw.redistribute(given, [sw.Shard(0)], mesh=target)
        assert len(moved) == len(wholes)
        for t, whole, before in zip(moved, wholes, befores, strict=True):
            assert_part(t, whole, before.with_([sw.Shard(0)], mesh=target), rank)
    assert_usable(rank, size)


@TRANSPORTS
@ranks(3)
def test_dtensors_come_to_a_mesh_of_other_ranks(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    old, new = DeviceMesh("cpu", [0]), DeviceMesh("cpu", [1, 2])
    whole = whole_of((5, 4))
    t = distribute_tensor(whole, old, [Shard(0)], src_data_rank=None) if rank == 0 else None
    for moved in (
        sw.redistribute(t, [Shard(0)], mesh=new),
        sw.redistribute(t, [Shard(0)], mesh=new, async_op=True).wait(),
        sw.redistribute(None if t is None else [t], [Shard(0)], mesh=new)[0],
    ):
        assert isinstance(moved, DTensor) and moved.shape == (5, 4) and moved.placements == (Shard(0),)
        if rank:
            assert torch.equal(moved.to_local(), whole[:3] if rank == 1 else whole[3:])


@TRANSPORTS
@ranks(3)
def test_any_layouts(rank, size, transport, seed):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Layouts(seed, size)
    for _ in range(25):
        pair = draw.pair()
        if set(pair.before.mesh.ranks) == set(range(size)):
            continue  # nobody is outside
        local = pair.input(rank)
        t = None if local is None else sw.MeshTensor(local, pair.before)
        check(pair, sw.redistribute(t, pair.after), rank)


@TRANSPORTS
@ranks(4)
def test_the_group_of_a_part_of_the_ranks(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    group = dist.new_group([1, 3])
    if rank % 2 == 0:
        return
    before = sw.Layout((3, 2), torch.float32, sw.Mesh((1,), ranks=[3]), [sw.Replicate()])
    target = sw.Mesh((2,), ranks=[1, 3])
    given = None if rank == 1 else sw.MeshTensor(whole_of((3, 2)), before, group)
    asked = group if rank == 1 else None
    moved = sw.redistribute(given, [sw.Shard(0)], mesh=target, group=asked)
    assert_part(moved, whole_of((3, 2)), before.with_([sw.Shard(0)], mesh=target), rank)
    given = None if rank == 1 else sw.MeshTensor(whole_of((3, 2))[:1], before.with_([sw.Shard(0)], mesh=target), group)
    with pytest.raises(ValueError, match=r"t is None, but this rank is in the mesh .*\(rank 0\).*global ranks"):
        sw.redistribute(given, [sw.Replicate()], group=asked)


@TRANSPORTS
@ranks(3)
def test_mistakes_are_one_error_on_every_rank(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    first, rest = sw.Mesh((1,)), sw.Mesh((2,), ranks=[1, 2])
    layout = sw.Layout((3, 2), torch.float32, first, [sw.Replicate()])
    t = on_mesh(whole_of((3, 2)), layout, rank)
    target = [sw.Shard(0)]
    here = rank == 2

    def says(call, *words):
        assert_says(message_of(call), ["redistribute: ", *words], words[0])

    says(lambda: sw.redistribute(None, target, mesh=rest), "every rank passes None")
    says(lambda: sw.redistribute([None], target, mesh=rest), r"t\[0\] is None on every rank")
    says(lambda: sw.redistribute([None] if here else t, target, mesh=rest), "a list of 1 on rank 2")
    says(lambda: sw.redistribute([t, None] if here else [t], target, mesh=rest), "ranks disagree", "rank 2")
    says(lambda: sw.redistribute(t, [sw.Shard(2)] if here else target, mesh=rest), "S2", "rank 2")
    says(lambda: sw.redistribute(t, [sw.Replicate()] if here else target, mesh=rest), "the target", "rank 2")
    says(lambda: sw.redistribute(t, target, mesh="cpu" if here else rest), "'cpu' is neither a Mesh", "rank 2")
    says(lambda: sw.redistribute(3 if here else t, target, mesh=rest), "t is a int", "rank 2")
    says(lambda: sw.redistribute([None, 3] if here else t, target, mesh=rest), "t has a int", "rank 2")
    everywhere = sw.Layout((3, 2), torch.float32, sw.Mesh((3,)), [sw.Shard(0)])
    given = None if here else on_mesh(whole_of((3, 2)), everywhere, rank)
    words = "t is None, but this rank is in the mesh of"
    says(lambda: sw.redistribute(given, [sw.Replicate()]), words, r"\(rank 2\)$")
    other = sw.Layout((3, 3), torch.float32, sw.Mesh((1,), ranks=[1]), [sw.Replicate()])
    lists = {0: [t, None], 1: [on_mesh(whole_of((3, 3)), other, rank)] * 2, 2: None}
    words = r"ranks disagree on t\[0\]: .* on rank 0, .* on rank 1"
    says(lambda: sw.redistribute(lists[rank], target, mesh=rest), words)
    assert_usable(rank, size)
    assert_part(sw.redistribute(t, target, mesh=rest), whole_of((3, 2)), layout.with_(target, mesh=rest), rank)


@ranks(3)
def test_the_gradient_comes_back(rank, size):
    before = sw.Layout((3, 2), torch.float64, sw.Mesh((1,)), [sw.Replicate()])
    local = whole_of((3, 2), torch.float64).requires_grad_()
    t = sw.MeshTensor(local, before) if rank == 0 else None
    moved = sw.redistribute(t, [sw.Shard(0)], mesh=sw.Mesh((2,), ranks=[1, 2]))
    moved.backward(None if moved.local is None else torch.full_like(moved.local, rank))
    if rank == 0:
        assert local.grad.tolist() == [[1, 1], [1, 1], [2, 2]]


def test_without_other_ranks_it_is_a_plain_error():
    with pytest.raises(ValueError, match="redistribute: t is None, and there is no other rank that has it"):
        sw.redistribute(None, [Replicate()])
