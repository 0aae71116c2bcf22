"""DTensor's own redistributes on shardway: the same values wherever torch makes one, and no trace afterwards."""

from __future__ import annotations

import itertools
import os
import threading

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    _api,
    _dispatch,
    _redistribute,
    distribute_tensor,
)
from torch.distributed.tensor.experimental import _tp_transform
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shardway as sw
from tests.support.dense import assert_close
from tests.support.dtensor_blocks import both_ways, counts, grid
from tests.support.ranks import ranks
from tests.support.versions import needs_torch

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])
CALLERS = (_redistribute, _dispatch, _api, _tp_transform)


@TRANSPORTS
@ranks(4)
def test_every_pair_of_placements(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.arange(35.0, dtype=torch.float64).view(5, 7)
    kinds = [Shard(0), Shard(1), Replicate(), Partial()]
    for mesh in (grid(4), grid(2, 2)):
        for before, after in itertools.product(itertools.product(kinds, repeat=mesh.ndim), repeat=2):
            if any(b.is_partial() and not a.is_partial() for a, b in zip(before, after, strict=True)):
                continue
            plain = [Replicate() if p.is_partial() else p for p in before]
            local = distribute_tensor(whole, mesh, plain, src_data_rank=None).to_local()
            source = DTensor.from_local(local, mesh, before, run_check=False, shape=whole.shape, stride=whole.stride())
            moved, left = counts()
            with sw.use_for_dtensor():
                result = source.redistribute(mesh, after)
            assert counts() == (moved + (before != after), left), f"{before} -> {after}"
            factor = torch.Size(
                mesh.size(d) for d, p in enumerate(before) if p.is_partial() and not after[d].is_partial()
            ).numel()
            kept = [Replicate() if p.is_partial() else p for p in after]
            wanted = distribute_tensor(factor * whole, mesh, kept, src_data_rank=None)
            assert result.placements == after
            assert torch.equal(result.to_local(), wanted.to_local()), f"{before} -> {after}"


@TRANSPORTS
@ranks(4)
def test_a_flattened_mesh_does_not_corrupt_uneven_shards(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    mesh["a", "b"]._flatten("ab")
    whole = torch.arange(15.0).view(5, 3)
    source = distribute_tensor(whole, mesh, [Shard(0), Shard(0)], src_data_rank=None)
    with sw.use_for_dtensor():
        assert torch.equal(source.full_tensor(), whole)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def trained(model, steps=5):
    """Losses, and the weights after the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), [p.full_tensor().detach() for p in model.parameters()]


def tensor_parallel(mesh):
    torch.manual_seed(1)
    return parallelize_module(TwoLayers(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def assert_trains_alike(make_model):
    (losses, weights), (our_losses, our_weights) = both_ways(lambda: trained(make_model()))
    assert_close(our_losses, losses, "losses")
    for ours, theirs in zip(our_weights, weights, strict=True):
        assert_close(ours, theirs, "weights")
    assert counts()[0] > 0


@TRANSPORTS
@ranks(2, 4)
def test_a_tensor_parallel_model_trains_alike(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = grid(size)
    assert_trains_alike(lambda: tensor_parallel(mesh))


@needs_torch(2, 13, "its own redistribute has no second gradient")
@TRANSPORTS
@ranks(4)
def test_gradients_of_the_first_and_second_order(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    torch.manual_seed(0)
    mesh = grid(2, 2)
    weight, batch = torch.randn(5, 6, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)

    def gradients():
        w = distribute_tensor(weight, mesh, [Shard(0), Shard(1)]).requires_grad_()
        x = distribute_tensor(batch, mesh, [Shard(0), Replicate()])
        loss = (x @ w.redistribute(mesh, [Replicate(), Shard(1)])).sin().sum()
        (grad,) = torch.autograd.grad(loss, w, create_graph=True)
        (second,) = torch.autograd.grad((grad * grad).sum(), w)
        return grad.full_tensor().detach(), second.full_tensor()

    theirs, ours = both_ways(gradients)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, "gradients")


@ranks(2)
def test_the_backward_of_from_local_is_moved(rank, size):
    mesh = grid(size)

    def gradient():
        local = torch.full((2, 3), rank + 1.0, requires_grad=True)
        x = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        weights = distribute_tensor(torch.arange(12.0).view(4, 3), mesh, [Shard(1)], src_data_rank=None)
        (x.redistribute(mesh, [Shard(1)]) * weights).sum().backward()
        return local.grad

    theirs, ours = both_ways(gradient)
    assert torch.equal(ours, theirs)
    assert torch.equal(ours, torch.arange(12.0).view(4, 3)[2 * rank : 2 * rank + 2])


@ranks(2)
def test_results_lie_on_the_mesh_they_came_from(rank, size):
    groups = [dist.new_group(backend=engine) for engine in ("gloo", "shardway")]
    meshes = [DeviceMesh.from_group(group, "cpu") for group in groups]
    assert meshes[0] == meshes[1]
    with sw.use_for_dtensor():
        for mesh in meshes:
            source = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)], src_data_rank=None)
            first, second = (source.redistribute(mesh, [Replicate()]) for _ in range(2))
            assert first.device_mesh is mesh
            assert first._spec == second._spec
            assert first._spec is not second._spec


@needs_torch(2, 13, "it cannot detach what it has redistributed")
@ranks(2)
def test_what_is_recorded_is_as_without_the_block(rank, size):
    mesh = grid(size)

    def recorded():
        plain = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)], src_data_rank=None)
        weight = plain.detach().requires_grad_()
        found = []
        for source in (plain, weight, 2 * weight):
            for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with mode():
                    result = source.redistribute(mesh, [Replicate()])
                    found.append((result.requires_grad, result.is_leaf, type(result), result.is_inference()))
        return found

    theirs, ours = both_ways(recorded)
    assert ours == theirs
    assert True in {requires_grad for requires_grad, *_ in ours}


@ranks(2)
def test_inside_a_transform_of_functions_torch_says_what_it_says(rank, size):
    mesh = grid(size)
    source = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)], src_data_rank=None)

    def error():
        with pytest.raises(RuntimeError) as caught:
            torch.func.grad(lambda x: x * source.redistribute(mesh, [Replicate()]).to_local().sum())(torch.ones(()))
        return str(caught.value)

    theirs, ours = both_ways(error)
    assert ours == theirs
    assert "setup_context" in ours


@ranks(2)
def test_another_dtype_is_torchs_affair(rank, size):
    mesh = grid(size)
    source = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)], src_data_rank=None)

    def result():
        return source.redistribute(mesh, [Replicate()], forward_dtype=torch.float64)

    theirs, ours = both_ways(result)
    assert ours._spec == theirs._spec
    assert torch.equal(ours.to_local(), torch.arange(4.0, dtype=torch.float64))


def is_patched():
    found = {caller.redistribute_local_tensor.__module__ for caller in CALLERS} | {_api.Redistribute.__module__}
    assert len(found) == 1
    return found == {"shardway._dtensor_engine"}


@ranks(2)
def test_nothing_stays_after_the_block(rank, size):
    source = distribute_tensor(torch.arange(4.0), grid(2), [Shard(0)], src_data_rank=None)
    with pytest.raises(KeyError), sw.use_for_dtensor():
        assert is_patched()
        with sw.use_for_dtensor():
            source.full_tensor()
        assert is_patched()
        raise KeyError
    assert not is_patched()
    before = counts()
    assert torch.equal(source.full_tensor(), torch.arange(4.0))
    assert counts() == before


@ranks(2)
def test_a_thread_outside_the_block_has_torchs_own(rank, size):
    source = distribute_tensor(torch.arange(4.0), grid(2), [Shard(0)], src_data_rank=None)
    before = counts()
    results = []
    with sw.use_for_dtensor():
        thread = threading.Thread(target=lambda: results.append(source.full_tensor()))
        thread.start()
        thread.join()
        assert counts() == before
        source.full_tensor()
    assert counts()[0] == before[0] + 1
    assert torch.equal(results[0], torch.arange(4.0))


@ranks(2)
def test_a_part_that_does_not_fit_is_the_same_error_on_every_rank(rank, size):
    mesh = grid(2)
    local = torch.ones(3 if rank == 0 else 2)
    source = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=(4,), stride=(1,))
    with sw.use_for_dtensor(), pytest.raises(ValueError, match=r"shape \[3\].*rank 0"):
        source.full_tensor()
    good = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)], src_data_rank=None)
    with sw.use_for_dtensor():
        assert torch.equal(good.full_tensor(), torch.arange(4.0))


def fully_sharded(mesh):
    """By FSDP2 over one dim of the mesh, tensor-parallel over the other."""
    model = tensor_parallel(mesh["tp"])
    for layer in (model.up, model.down, model):
        fully_shard(layer, mesh=mesh["dp"])
    return model


@pytest.mark.parametrize("engine", ["gloo", "shardway"])
@ranks(4)
def test_fsdp_with_tensor_parallelism_trains_alike(rank, size, engine):
    columns, rows = ([0, 2], [1, 3]), ([0, 1], [2, 3])
    dp, _ = dist.new_subgroups_by_enumeration(columns, backend=engine)
    tp, _ = dist.new_subgroups_by_enumeration(rows, backend=engine)
    mesh = DeviceMesh.from_group([dp, tp], "cpu", mesh=torch.arange(4).view(2, 2), mesh_dim_names=("dp", "tp"))
    assert_trains_alike(lambda: fully_sharded(mesh))
