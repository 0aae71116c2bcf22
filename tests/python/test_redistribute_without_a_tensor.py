"""What one rank passes to redistribute in place of a tensor, or beside it, is the same error on all, at once."""

from __future__ import annotations

import os
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import shardway as sw
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])
TARGET = [Replicate()]


class Undecided:
    def __bool__(self):
        raise RuntimeError("neither")


def mesh_tensor(rank, size, device_mesh):
    layout = sw.Layout((6, 4), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    return sw.MeshTensor(torch.ones(layout.box(rank)[1]), layout)


def dtensor(rank, size, device_mesh):
    return distribute_tensor(torch.ones(6, 4), device_mesh, [Shard(0)], src_data_rank=None)


# what rank 1 passes instead of (t, TARGET), and words of the message
OF_ONE = {
    "None": (lambda t: {"t": None}, "t is None, but this rank is in the mesh of"),
    "a tensor": (lambda t: {"t": torch.ones(2)}, "t is a Tensor, neither"),
    "a list": (
        lambda t: {"t": [t]},
        "what is moved: the tensor: f32.* S0 on rank 0, the number of tensors: 1 on rank 1",
    ),
    "an empty list": (lambda t: {"t": []}, "t is an empty list"),
    "no placements": (lambda t: {"placements": None}, "placements is None"),
    "a mesh for placements": (lambda t: {"placements": sw.Mesh((2,))}, r"placements is a Mesh: did you mean mesh=\?"),
    "too many placements": (lambda t: {"placements": TARGET * 2}, "2 placements for a 1-d mesh"),
    "bad placements": (lambda t: {"placements": [sw.Shard(2)]}, "S2"),
    "no mesh": (lambda t: {"mesh": "cpu"}, "'cpu' is neither a Mesh"),
    "topology": (lambda t: {"topology": 3}, "topology=3 is not a Topology"),
    "max_bytes": (lambda t: {"max_bytes": "8"}, "max_bytes='8' is not a 64-bit integer"),
    "plan": (lambda t: {"plan": 1}, "plan=1 is not a Plan"),
    "grad_placements": (lambda t: {"grad_placements": 1}, "grad_placements|placements=1 is not a sequence"),
    "async_op": (lambda t: {"async_op": Undecided()}, "async_op is a Undecided, which is neither true nor false"),
}
OF_LIST = {
    "None": (lambda t: {"t": None}, r"t\[0\] is None, but this rank is in the mesh of"),
    "None within": (lambda t: {"t": [t, None]}, r"t\[1\] is None, but"),
    "None first": (lambda t: {"t": [None, t]}, r"t\[0\] is None, but"),
    "an empty list": (lambda t: {"t": []}, "t is an empty list"),
    "one tensor less": (lambda t: {"t": [t]}, "the number of tensors: 2 on rank 0, 1 on rank 1"),
    "too many placements": (lambda t: {"placements": [TARGET] * 3}, "placements for 3 tensors, but t has 2"),
    "no placements": (lambda t: {"placements": None}, "placements is None"),
    "plan": (lambda t: {"plan": 1}, "plan and grad_placements are for one tensor"),
    "max_bytes": (lambda t: {"max_bytes": "8"}, "max_bytes='8' is not a 64-bit integer"),
    "async_op": (lambda t: {"async_op": Undecided()}, "async_op is a Undecided"),
}


@pytest.mark.parametrize("kind", [mesh_tensor, dtensor], ids=["MeshTensor", "DTensor"])
@TRANSPORTS
@ranks(2)
def test_one_ranks_mistake_is_the_same_error_on_all(rank, size, transport, kind):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    t = kind(rank, size, DeviceMesh("cpu", list(range(size))))
    for good, mistakes in ((t, OF_ONE), ([t, t], OF_LIST)):
        for name, (mistake, words) in mistakes.items():
            arguments = {"t": good, "placements": TARGET}
            if rank == 1:
                arguments.update(mistake(t))
            message = message_of(lambda: sw.redistribute(**arguments))  # noqa: B023
            assert_says(message, ["redistribute: ", words], name)
            assert "rank 1" in message, message
    assert_usable(rank, size)


@TRANSPORTS
@ranks(3)
def test_a_part_that_does_not_fit_is_told(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = DeviceMesh("cpu", list(range(size)))
    local = torch.ones(3 if rank == 2 else 2, 4)
    t = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=(6, 4), stride=(4, 1))
    for call in (lambda: sw.redistribute(t, TARGET), lambda: sw.redistribute([t, t], TARGET)):
        assert_says(message_of(call), [r"local has shape \[3, 4\]", r"rank 2\)$"], "a part")
    assert_usable(rank, size)


@ranks(4)
def test_without_a_tensor_the_group_of_the_mesh_is_told_else_the_default_group(rank, size):
    halves = DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("a", "b"))
    half = halves["b"]
    t = distribute_tensor(torch.ones(6), half, [Shard(0)], src_data_rank=None)
    with pytest.raises(ValueError, match=r"t is a int.*\(rank 1\)"):
        sw.redistribute(3 if rank % 2 else t, TARGET, mesh=half)
    with pytest.raises(ValueError, match=r"t is None, but this rank is in the mesh .*\(rank 1\)"):
        sw.redistribute(None if rank % 2 else t, TARGET, group=half if rank % 2 else None)
    whole = distribute_tensor(torch.ones(6), halves, [Shard(0), Replicate()], src_data_rank=None)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        message = message_of(lambda: sw.redistribute(3 if rank == 3 else whole, TARGET * 2))
    assert [(w.filename, "told to the default group" in str(w.message)) for w in warned] == [(__file__, True)] * (
        rank == 3
    )
    assert_says(message, [r"t is a int", r"\(rank 3\)"], "the default group")
    message = message_of(lambda: sw.redistribute(None if rank == 3 else whole, TARGET * 2))
    assert_says(message, ["t is None, but this rank is in the mesh", r"\(rank 3\)"], "the default group")
    assert_usable(rank, size)


@ranks(4)
def test_a_mesh_that_no_group_has_is_refused_by_its_ranks_alone(rank, size):
    mesh = DeviceMesh("cpu", torch.tensor([[0, 1, 2]]), _init_backend=False)
    if rank < 3:
        t = DTensor.from_local(torch.ones(2), mesh, [Replicate(), Shard(0)], run_check=False)
        with pytest.raises(ValueError, match=rf"no process group has exactly the ranks.*\(rank {rank}\)"):
            sw.redistribute(t, TARGET * 2)
    assert_usable(rank, size)


@TRANSPORTS
@ranks(2)
def test_what_is_no_list_of_tensors_is_told_too(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    x = torch.ones(2, 3)
    for op in (sw.all_gather_v, sw.reduce_scatter_v):
        message = message_of(lambda: op([x, None] if rank else [x, x]))  # noqa: B023
        assert message == f"{op.__name__}: x[1] is a NoneType, not a tensor (rank 1)"
        message = message_of(lambda: op(None if rank else x))  # noqa: B023
        assert message == f"{op.__name__}: x is a NoneType, not a tensor (rank 1)"
    message = message_of(lambda: sw.all_reduce(x, async_op=Undecided() if rank else False))
    assert message == "all_reduce: async_op is a Undecided, which is neither true nor false (rank 1)"
    assert_usable(rank, size)


def test_without_a_group_it_is_a_plain_error():
    for t in (None, [], [None], torch.ones(2)):
        with pytest.raises(ValueError, match="redistribute: t"):
            sw.redistribute(t, TARGET)
    assert not dist.is_initialized()
