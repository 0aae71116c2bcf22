"""Redistributes of DTensor that `sw.use_for_dtensor` leaves to torch: which, why, and with the same results."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _redistribute, distribute_tensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import shardway as sw
from tests.support.dtensor_blocks import both_ways, counts, grid
from tests.support.ranks import ranks
from tests.support.versions import needs_torch


def left_to_torch():
    return sw.stats()["dtensor"]["left_to_torch"]


@needs_torch(2, 13, "it cannot flatten a sharded dim")
@ranks(4)
def test_what_is_left_to_torch_is_counted_by_reason(rank, size):
    whole = torch.arange(24.0)
    replica = distribute_tensor(whole, grid(4), [Replicate()], src_data_rank=None)
    to_addends = DTensorSpec(replica.device_mesh, (Partial(),), tensor_meta=replica._spec.tensor_meta)
    strided = distribute_tensor(whole.view(4, 6), grid(2, 2), [Shard(0), Shard(1)], src_data_rank=None).view(24)
    with sw.use_for_dtensor():
        addend = _redistribute.redistribute_local_tensor(whole, replica._spec, to_addends)
        assert torch.equal(strided.full_tensor(), whole)
    assert torch.equal(addend, whole / 4)
    assert left_to_torch() == {
        "addends are to be made": 1,
        "a placement is neither a box nor an addend of the tensor": 1,
    }


@ranks(4)
def test_a_spec_with_another_number_of_dims_than_its_part_is_left_to_torch(rank, size):
    vector = distribute_tensor(torch.ones(8), grid(size), [Shard(0)], src_data_rank=None)
    weight = distribute_tensor(torch.arange(64.0).view(8, 8), grid(size), [Shard(1)], src_data_rank=None)

    def product():  # torch multiplies as matrices, takes the dim off in place and leaves it in the spec
        return nn.functional.linear(vector, weight).full_tensor().flatten()

    without, within = both_ways(product)
    assert torch.equal(without, torch.arange(64.0).view(8, 8).sum(1))
    assert torch.equal(within, without)


@ranks(5)
def test_a_mesh_that_no_group_has_is_left_to_torch(rank, size):
    mesh = grid(2, 2)  # a part of the world: it has a group per dim and none of all its ranks
    if rank == 4:
        return
    whole = torch.arange(6.0)
    source = distribute_tensor(whole, mesh, [Replicate(), Shard(0)], src_data_rank=None)
    with sw.use_for_dtensor():
        assert torch.equal(source.full_tensor(), whole)
    assert left_to_torch() == {"no process group has exactly the ranks of the mesh": 1}


@ranks(2)
def test_an_asynchronous_redistribute_is_left_to_torch_and_waits_for_nobody(rank, size):
    mesh = grid(size)
    source = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)], src_data_rank=None)
    weight = source.detach().requires_grad_()
    source.redistribute(mesh, [Replicate()], async_op=True).to_local()  # the first one takes torch long
    with sw.use_for_dtensor():
        for x in (source, weight):
            dist.barrier()
            time.sleep(1.5 * rank)
            start = time.monotonic()
            result = x.redistribute(mesh, [Replicate()], async_op=True)
            assert time.monotonic() - start < 1.0
            assert torch.equal(result.to_local(), torch.arange(4.0))
    assert left_to_torch() == {"async_op=True": 2}


class Listener(TorchDispatchMode):
    """Hears which collectives run."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if "c10d" in str(operator):
            self.heard.append(str(operator))
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [CommDebugMode, Listener, FlopCounterMode, DebugMode])
@ranks(2)
def test_a_dispatch_mode_sees_what_it_would_without_the_block(rank, size, mode):
    mesh = grid(size)
    rows = distribute_tensor(torch.arange(8.0).view(4, 2), mesh, [Shard(0)], src_data_rank=None)
    columns = rows.redistribute(mesh, [Shard(1)])

    def seen():
        weight = columns.detach().requires_grad_()
        mode_ = mode(display=False) if mode is FlopCounterMode else mode()
        with mode_:
            rows.redistribute(mesh, [Shard(1)])
            (rows.t() @ weight).redistribute(mesh, [Replicate()]).to_local().sum().backward()
        if mode is CommDebugMode:
            assert mode_.get_total_counts() > 0
            return mode_.get_comm_counts()
        if mode is Listener:
            assert mode_.heard
            return mode_.heard
        return mode_.get_total_flops() if mode is FlopCounterMode else mode_.debug_string()

    before = counts()
    theirs, ours = both_ways(seen)
    assert ours == theirs
    passes_dtensors_by = mode is not FlopCounterMode  # that one sees a DTensor's matmul, and nothing within it
    assert (counts()[0] == before[0]) == passes_dtensors_by
    (reason,) = left_to_torch()
    assert reason.removeprefix("_") == f"{mode.__name__} is to see the operators"


def run_alone(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LOCAL_TENSORS = """
import torch, torch.distributed as dist
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
import shardway as sw

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
with LocalTensorMode(4), sw.use_for_dtensor():
    mesh = init_device_mesh("cpu", (2, 2))
    whole = torch.arange(15.0).view(5, 3)
    d = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    for rank, local in d.redistribute(mesh, [Replicate(), Shard(0)]).to_local()._local_tensors.items():
        print(rank, local.tolist() == whole.chunk(2)[rank % 2].tolist())
print(sw.stats()["dtensor"])
"""


def test_ranks_that_one_process_plays_are_left_to_torch():
    *rows, counted = run_alone(LOCAL_TENSORS)
    assert rows == [f"{rank} True" for rank in range(4)]
    assert "'moved': 0" in counted and "LocalTensorMode is to see the operators" in counted


THREADED = """
import threading, torch, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg
import shardway as sw

torch._C._distributed_c10d._set_thread_isolation_mode(True)
_install_threaded_pg()
store = dist.HashStore()
sums = {}

def run(rank):
    dist.init_process_group("threaded", rank=rank, world_size=2, store=store)
    mesh = DeviceMesh("cpu", [0, 1])
    d = distribute_tensor(torch.arange(6.0).view(3, 2), mesh, [Shard(0)], src_data_rank=None)
    with sw.use_for_dtensor():
        sums[rank] = d.redistribute(mesh, [Replicate()]).to_local().sum().item()

threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join(20)
print(sums[0], sums[1], sw.stats()["dtensor"])
"""


def test_a_mesh_whose_group_is_written_in_python_is_left_to_torch():
    (line,) = run_alone(THREADED)
    assert line.startswith("15.0 15.0 ") and "'moved': 0" in line
    assert "the group of the mesh is a ProcessLocalGroup" in line
