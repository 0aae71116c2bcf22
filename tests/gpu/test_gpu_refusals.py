"""Tensors on a device that the group has no engine for, or on another than the group's: an error on every rank."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

import shardway as sw
from tests.support.gpu_cases import cuda_alone, on_cpu


def says(call, *words):
    """Every rank raises a ValueError with these words; each names itself where the ranks did not meet."""
    try:
        call()
        message = "nothing was raised"
    except ValueError as error:
        message = str(error)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, message)
    for word in words:
        assert all(word in said for said in everyone), f"{word!r} is not in {everyone!r}"


def usable(rank, size):
    x = torch.ones(rank + 1, 2, device="cuda")
    assert on_cpu(sw.all_gather_v(x)[0]).sum() == size * (size + 1)


def cpu_on_cuda(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    x = torch.ones(rank + 1, 2)
    sizes = tuple(range(1, size + 1))
    words = "the tensor is on cpu, for which the group's backend (nccl) has no engine"
    for name, call in {
        "all_gather_v": lambda: sw.all_gather_v(x),
        "gather_v": lambda: sw.gather_v(x, sizes=sizes),
        "reduce_scatter_v": lambda: sw.reduce_scatter_v(x),
        "all_to_all_v": lambda: sw.all_to_all_v(x, [rank + 1] + [0] * (size - 1)),
        "all_reduce": lambda: sw.all_reduce(x),
        "broadcast": lambda: sw.broadcast(x),
        "scatter_v": lambda: sw.scatter_v(x if rank == 0 else None, sizes=[1] + [0] * (size - 1)),
    }.items():
        says(call, f"{name}: ", words)
        usable(rank, size)
    says(lambda: sw.all_gather_v([x]), "all_gather_v: ", "the tensor is on cpu")
    # one rank alone: the others hear of it before they move anything
    says(lambda: sw.all_gather_v(x if rank == 1 else x.cuda()), words, "(rank 1)")
    usable(rank, size)


def cuda_on_cpu(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "shm"  # else tensors of ranks that share a GPU move by CUDA IPC
    sub = dist.new_group(backend="gloo")
    x = torch.ones(rank + 1, 2, device="cuda")
    words = "the tensor is on cuda:0, for which the group's backend (gloo) has no engine"
    for name, call in {
        "all_gather_v": lambda: sw.all_gather_v(x, group=sub),
        "all_gather_v ": lambda: sw.all_gather_v(x, sizes=tuple(range(1, size + 1)), group=sub),
        "all_reduce": lambda: sw.all_reduce(x[:1], group=sub),
        "broadcast": lambda: sw.broadcast(x[:1], group=sub),
        "reduce_scatter_v": lambda: sw.reduce_scatter_v(x[:1], group=sub),
    }.items():
        says(call, f"{name.strip()}: ", words)
    says(lambda: sw.all_gather_v(x if rank == 1 else x.cpu(), group=sub), words, "(rank 1)")
    says(lambda: sw.all_reduce(x[:1] if rank == 1 else x[:1].cpu(), group=sub), words, "(rank 1)")
    assert sw.all_gather_v(x.cpu(), group=sub)[0].sum() == size * (size + 1)
    os.environ["SHARDWAY_TRANSPORT"] = ""


def another_device(rank, size):
    x = torch.ones(rank + 1, 2, device="cuda")
    total = size * (size + 1) // 2
    says(lambda: sw.all_gather_v(x, out=torch.empty(total, 2)), "out is on cpu, but x is on cuda:0")
    says(lambda: sw.all_gather_v([x, x.cpu()]), "x[1]: x[0] is on cuda:0, but this on cpu")
    says(lambda: sw.all_gather_v(x.to("meta")), "all_gather_v: x is on the meta device")
    bound = dist.new_group(backend="nccl")
    sw.all_gather_v(x, group=bound)
    bound.bound_device_id = torch.device("cuda:1")
    says(lambda: sw.all_gather_v(x, group=bound), "the tensor is on cuda:0, but the group is bound to cuda:1")
    usable(rank, size)


def disagreements(rank, size):
    """Of calls with sizes given the ranks compare nothing, unless asked to."""
    x = torch.ones(rank + 1, 2, device="cuda")
    sizes = tuple(range(1, size + 1))
    for transport in ("", "c10d"):
        os.environ["SHARDWAY_TRANSPORT"] = transport
        group = dist.new_group()
        says(lambda group=group: sw.all_gather_v(x.double() if rank else x, group=group), "disagree on dtype")
        says(lambda group=group: sw.all_gather_v(x[:, : rank + 1], group=group), "disagree on shape")
        os.environ["SHARDWAY_CHECK"] = "1"
        for call in (
            lambda group=group: sw.all_gather_v(x.double() if rank else x, sizes=sizes, group=group),
            lambda group=group: sw.all_reduce(x[:1].double() if rank else x[:1], group=group),
        ):
            says(call, "disagree on dtype: float32 on rank 0, float64 on rank 1")
        os.environ["SHARDWAY_CHECK"] = "0"
        assert on_cpu(sw.all_gather_v(x, sizes=sizes, group=group)[0]).sum() == size * (size + 1)


def shared_memory_beside(rank, size):
    """On one host a group of NCCL alone moves CPU tensors too, through shared memory."""
    x = torch.ones(rank + 1, 2)
    assert sw.all_gather_v(x)[0].sum() == size * (size + 1)


@cuda_alone
def test_a_tensor_where_the_group_is_not_is_refused_on_every_rank(run):
    def body(rank, size):
        for part in (cuda_on_cpu, another_device, shared_memory_beside, disagreements, usable):
            part(rank, size)

    run(2, body)
    run(2, cpu_on_cuda)


def both_engines(rank, size):
    for device in ("cuda", "cpu"):
        x = torch.ones(rank + 1, 2, device=device)
        for sizes in (None, tuple(range(1, size + 1))):
            gathered, _ = sw.all_gather_v(x, sizes=sizes)
            assert gathered.device.type == device and gathered.sum() == size * (size + 1)
    says(lambda: sw.all_gather_v(x.to(["cpu", "cuda"][rank % 2])), "disagree on device: cpu on rank 0, cuda on rank 1")


@cuda_alone
def test_a_group_of_two_engines_takes_tensors_of_both_devices(run):
    run(2, both_engines, backend="cpu:gloo,cuda:nccl")
