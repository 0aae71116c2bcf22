"""What bench/dtensor.py compares: DTensor as it is and inside sw.use_for_dtensor(), on gloo and on "shardway"."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import shardway as sw
from bench.timing import Contender

PLAIN_GLOO, BLOCK_GLOO = "DTensor on gloo", "in the block, on gloo"
PLAIN_OURS, BLOCK_OURS = "DTensor on shardway", "in the block, on shardway"
ONE_BY_ONE, AT_ONCE = "one by one", "at once"

PAIRS: dict[str, tuple[Any, Any]] = {
    "S0→S1": (Shard(0), Shard(1)),
    "S0→R": (Shard(0), Replicate()),
    "P→S0": (Partial(), Shard(0)),
    "P→R": (Partial(), Replicate()),
}
FULL, STEP = "full_tensor of 100", "training step"
MANY = 100
PARAMETER, WIDTH, BATCH = (64, 64), 256, 32


@dataclass(frozen=True)
class Meshes:
    """Of all ranks, on gloo and on shardway."""

    gloo: DeviceMesh
    ours: DeviceMesh

    @staticmethod
    def make() -> Meshes:
        logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)  # says how it falls back
        gloo, ours = dist.group.WORLD, dist.new_group(backend="shardway")
        assert gloo is not None
        os.environ["SHARDWAY_TRANSPORT"] = "c10d"  # else shared memory serves this group too
        sw.gather_sizes(torch.ones(1), group=gloo)
        del os.environ["SHARDWAY_TRANSPORT"]
        return Meshes(DeviceMesh.from_group(gloo, "cpu"), DeviceMesh.from_group(ours, "cpu"))


def _inside(call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        with sw.use_for_dtensor():
            return call()

    return run


def four_ways(make: Callable[[DeviceMesh], Callable[[], Any]], meshes: Meshes) -> list[Contender]:
    """A call on either mesh, as it is and in the block; the results are the same."""
    calls = [
        (PLAIN_GLOO, make(meshes.gloo)),
        (BLOCK_GLOO, _inside(make(meshes.gloo))),
        (PLAIN_OURS, make(meshes.ours)),
        (BLOCK_OURS, _inside(make(meshes.ours))),
    ]
    wanted = calls[0][1]()
    for name, call in calls[1:]:
        torch.testing.assert_close(call(), wanted, msg=lambda text, name=name: f"{name}: {text}")
    return [Contender(name, lambda: None, call) for name, call in calls]


def redistribution(before: Any, after: Any, shape: tuple[int, int]) -> Callable[[DeviceMesh], Callable[[], Tensor]]:
    def make(mesh: DeviceMesh) -> Callable[[], Tensor]:
        t = _dtensor(mesh, before, shape)
        return lambda: t.redistribute(mesh, [after]).to_local()

    return make


def full_tensors(mesh: DeviceMesh) -> Callable[[], list[Tensor]]:
    parameters = [_dtensor(mesh, Shard(0), PARAMETER) for _ in range(MANY)]
    return lambda: [p.full_tensor() for p in parameters]


def training_step(mesh: DeviceMesh) -> Callable[[], Tensor]:
    """Of a tensor-parallel MLP whose input and output are sharded by rows."""
    torch.manual_seed(0)
    plan = {
        "0": ColwiseParallel(input_layouts=Shard(0)),
        "2": RowwiseParallel(output_layouts=Shard(0)),
    }
    model = parallelize_module(
        nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH)), mesh, plan
    )
    x = torch.randn(BATCH, WIDTH)

    def step() -> Tensor:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    return step


def many(shape: tuple[int, int], meshes: Meshes) -> list[Contender]:
    """Hundred tensors, each by DTensor's redistribute, and all by one call."""
    found = []
    for mesh, name in ((meshes.gloo, "gloo"), (meshes.ours, "shardway")):
        tensors = [_dtensor(mesh, Shard(0), shape) for _ in range(MANY)]
        one_by_one = _inside(lambda ts=tensors, m=mesh: [t.redistribute(m, [Shard(1)]) for t in ts])
        at_once = lambda ts=tensors: sw.redistribute(ts, [Shard(1)])  # noqa: E731
        for one, other in zip(one_by_one(), at_once(), strict=True):
            assert torch.equal(one.to_local(), other.to_local())
        found.append(Contender(f"{ONE_BY_ONE}, {name}", lambda: None, one_by_one))
        found.append(Contender(f"{AT_ONCE}, {name}", lambda: None, at_once))
    return found


def _dtensor(mesh: DeviceMesh, placement: Any, shape: tuple[int, int]) -> DTensor:
    whole = torch.arange(float(shape[0] * shape[1])).remainder(251).view(shape)
    if placement.is_partial():
        return DTensor.from_local(whole, mesh, [placement], run_check=False)
    return distribute_tensor(whole, mesh, [placement], src_data_rank=None)
