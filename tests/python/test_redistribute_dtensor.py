"""DTensor in, DTensor out, with torch's autograd going through; MeshTensors as DTensors and back."""

from __future__ import annotations

import itertools
import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import shardway as sw
from tests.support.dense import assert_close
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of
from tests.support.versions import needs_torch

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def grid(*shape):
    return DeviceMesh("cpu", torch.arange(torch.Size(shape).numel()).view(shape))


def wrapped(whole, mesh, placements):
    """Every rank's part of the whole; as an addend, the whole divided by the ranks that add up."""
    count = torch.Size(mesh.size(d) for d, p in enumerate(placements) if p.is_partial()).numel()
    plain = [Replicate() if p.is_partial() else p for p in placements]
    local = distribute_tensor(whole, mesh, plain, src_data_rank=None).to_local() / count
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


@TRANSPORTS
@ranks(4)
def test_every_pair_of_placements_gives_what_torch_gives(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = 4 * torch.arange(35.0, dtype=torch.float64).view(5, 7)
    kinds = [Shard(0), Shard(1), Replicate(), Partial()]
    for mesh in (grid(4), grid(2, 2)):
        for before in itertools.product(kinds, repeat=mesh.ndim):
            source = wrapped(whole, mesh, before)
            for after in itertools.product(kinds[:3], repeat=mesh.ndim):
                result = sw.redistribute(source, after)
                wanted = distribute_tensor(whole, mesh, after, src_data_rank=None)
                assert isinstance(result, DTensor)
                assert result.placements == tuple(after) and result.device_mesh is mesh
                assert result.shape == whole.shape and result.stride() == whole.stride()
                assert torch.equal(result.to_local(), wanted.to_local()), f"{before} -> {after}"


@needs_torch(2, 13, "its own redistribute has no second gradient")
@TRANSPORTS
@ranks(4)
def test_gradients_go_through_as_through_torchs_own(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    torch.manual_seed(0)
    mesh = grid(2, 2)
    weight, batch = torch.randn(8, 8, dtype=torch.float64), torch.randn(8, 8, dtype=torch.float64)
    for before, after in (
        ([Shard(0), Shard(0)], [Replicate(), Shard(1)]),
        ([Replicate(), Shard(1)], [Shard(0), Replicate()]),
        ([Shard(1), Replicate()], [Replicate(), Replicate()]),
    ):
        grads = []
        for move in (sw.redistribute, lambda t, placements: t.redistribute(mesh, placements)):
            w = distribute_tensor(weight, mesh, before).requires_grad_()
            x = distribute_tensor(batch, mesh, [Shard(0), Replicate()])
            loss = (x @ move(w, after)).sin().sum()
            (grad,) = torch.autograd.grad(loss, w, create_graph=True)
            assert isinstance(grad, DTensor)
            (second,) = torch.autograd.grad((grad * grad).sum(), w)
            grads.append((grad.full_tensor().detach(), second.full_tensor()))
        for ours, theirs in zip(*grads, strict=True):
            assert_close(ours, theirs, f"{before} -> {after}")


@TRANSPORTS
@ranks(2)
def test_the_gradient_of_an_average_is_divided(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = grid(2)
    local = torch.ones(4, 2, dtype=torch.float64, requires_grad=True)
    mean = sw.redistribute(DTensor.from_local(local, mesh, [Partial("avg")], run_check=False), [Replicate()])
    (mean.to_local() * 6).sum().backward()
    assert torch.equal(local.grad, torch.full_like(local, 3))
    for op in ("max", "min", "product"):
        addends = DTensor.from_local(local, mesh, [Partial(op)], run_check=False)
        message = message_of(lambda: sw.redistribute(addends, [Replicate()]))  # noqa: B023
        assert_says(message, [f"Partial\\('{op}'\\) has no gradient"], op)
        assert torch.equal(sw.redistribute(addends.detach(), [Replicate()]).to_local(), torch.ones(4, 2).double())


@TRANSPORTS
@ranks(4)
def test_another_device_mesh_may_be_the_target(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.arange(24.0).view(6, 4)
    line, square = grid(4), grid(2, 2)
    source = distribute_tensor(whole, line, [Shard(0)]).requires_grad_()
    result = sw.redistribute(source, [Shard(1), Shard(0)], mesh=square)
    wanted = distribute_tensor(whole, square, [Shard(1), Shard(0)])
    assert result.device_mesh is square and torch.equal(result.to_local(), wanted.to_local())
    weights = distribute_tensor(whole.sin(), square, [Shard(1), Shard(0)])
    (result * weights).sum().backward()
    assert source.grad.device_mesh is line
    assert torch.equal(source.grad.full_tensor(), whole.sin())


@TRANSPORTS
@ranks(4)
def test_a_mesh_of_some_ranks_uses_a_group_that_is_there(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.arange(24.0).view(6, 4)
    world = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    groups = len(dist.distributed_c10d._world.pg_group_ranks)
    source = distribute_tensor(whole, world["tp"], [Shard(0)])
    result = sw.redistribute(source, [Shard(1)])
    assert torch.equal(result.to_local(), whole.chunk(2, 1)[world.get_local_rank("tp")])
    assert len(dist.distributed_c10d._world.pg_group_ranks) == groups, "no group is made silently"


@ranks(5)
def test_without_a_group_of_the_meshs_ranks_one_is_asked_for(rank, size):
    square = grid(2, 2)
    if rank == 4:
        return
    source = DTensor.from_local(torch.ones(2, 2), square, [Shard(0), Replicate()], run_check=False)
    with pytest.raises(ValueError, match=r"no process group has exactly the ranks \[0, 1, 2, 3\] of the mesh"):
        sw.redistribute(source, [Replicate(), Replicate()])


@TRANSPORTS
@ranks(2)
def test_an_async_call_gives_a_dtensor_when_waited_for(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.arange(24.0).view(6, 4)
    source = distribute_tensor(whole, grid(2), [Shard(0)]).requires_grad_()
    handle = sw.redistribute(source, [Shard(1)], async_op=True)
    result = handle.wait()
    assert handle.wait() is result and torch.equal(result.to_local(), whole.chunk(2, 1)[rank])
    (result * 2).sum().backward()
    assert torch.equal(source.grad.full_tensor(), torch.full((6, 4), 2.0))


@TRANSPORTS
@ranks(2)
def test_what_a_dtensor_cannot_say_is_refused_by_name(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = grid(2)
    source = distribute_tensor(torch.ones(6, 4), mesh, [Shard(0)])

    def says(words, placements, **options):
        assert_says(message_of(lambda: sw.redistribute(source, placements, **options)), words, str(words))

    says([r"Shard\(0, sizes=\(1, 5\)\)", "use a MeshTensor"], [sw.Shard(0, (1, 5))])
    says([r"use a MeshTensor", "rank 1"], [sw.Shard(0, (1, 5)) if rank else Shard(1)])
    says(["gradient of a DTensor says its own"], [Shard(1)], grad_placements=[Shard(1)])
    says(["mesh is a Mesh, but a DTensor lies on a DeviceMesh"], [Shard(1)], mesh=sw.Mesh((2,)))
    says(["from S0 to P", "addends are never made"], [Partial()])
    says(["placements=7 is not a sequence"], 7)
    says(["the target: .*S1 on rank 0, .*R on rank 1"], [Replicate() if rank else Shard(1)])
    assert_usable(rank, size)


@TRANSPORTS
@ranks(4)
def test_mesh_tensors_become_dtensors_and_come_back(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.arange(35.0, dtype=torch.float64).view(5, 7)
    mesh = grid(2, 2)
    for placements in itertools.product([Shard(0), Shard(1), Replicate(), Partial()], repeat=2):
        dtensor = wrapped(whole, mesh, placements)
        t = sw.MeshTensor.from_dtensor(dtensor)
        assert t.layout == sw.Layout.from_spec(dtensor._spec) and t.group is dist.group.WORLD
        assert t.local.data_ptr() == dtensor.to_local().data_ptr()
        back = t.to_dtensor(mesh)
        assert back.placements == dtensor.placements and torch.equal(back.to_local(), dtensor.to_local())
        assert back.shape == whole.shape
    ragged = sw.distribute(whole, sw.Mesh.from_device_mesh(mesh), [sw.Shard(0, (1, 4)), sw.Replicate()])
    with pytest.raises(ValueError, match=r"DTensor has no placement for Shard\(0, sizes=\(1, 4\)\).*MeshTensor"):
        ragged.to_dtensor(mesh)
    with pytest.raises(ValueError, match=r"another mesh than the layout's"):
        ragged.to_dtensor(grid(4))


@TRANSPORTS
@ranks(2)
def test_gradients_pass_between_the_two_kinds(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = grid(2)
    layout = sw.Layout((4, 4), torch.float64, sw.Mesh((2,)), [sw.Partial()])
    local = torch.ones(4, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.arange(16.0, dtype=torch.float64).view(4, 4)
    dtensor = sw.MeshTensor(local, layout).to_dtensor(mesh)
    sums = dtensor.redistribute(mesh, [Shard(0)])
    t = sw.redistribute(sw.MeshTensor.from_dtensor(sums), [sw.Shard(1)])
    (t.local * weights.chunk(2, 1)[rank]).sum().backward()
    assert torch.equal(local.grad, weights)
