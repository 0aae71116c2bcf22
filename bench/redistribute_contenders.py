"""The ways to move a tensor from one layout to another that bench/redistribute.py compares, on one tensor of f32."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

import shardway as sw
from bench.ragged_contenders import rewrite
from bench.timing import Contender

OURS = "shardway"
SHARED = "shardway, tensors in shared memory"
ON_GLOO = "shardway on gloo"
PEER = "DTensor on gloo"
COPY = "plain copy"

FLOAT_BYTES = 4
S0, S1, R, P = sw.Shard(0), sw.Shard(1), sw.Replicate(), sw.Partial()


@dataclass(frozen=True)
class Op:
    """From where to where. A ragged source has 1:3:5:... of the rows per rank."""

    name: str
    before: tuple[sw.Placement, ...]
    after: tuple[sw.Placement, ...]
    is_ragged: bool = False

    def mesh_shape(self, ranks: int) -> tuple[int, ...]:
        return (ranks,) if len(self.before) == 1 else (2, ranks // 2)

    @property
    def moves_shards(self) -> bool:
        return all(placement.is_shard() for placement in (*self.before, *self.after))


SHARD_TO_SHARD, GATHER, SCATTER_SUM, SUM, SLICE = (
    Op("S0→S1", (S0,), (S1,)),
    Op("S0→R", (S0,), (R,)),
    Op("P→S0", (P,), (S0,)),
    Op("P→R", (P,), (R,)),
    Op("R→S0", (R,), (S0,)),
)
SWAP = Op("S0,S1→S1,S0", (S0, S1), (S1, S0))
RAGGED = Op("ragged→even", (S0,), (S0,), is_ragged=True)
OPS = [SHARD_TO_SHARD, GATHER, SCATTER_SUM, SUM, SLICE, SWAP, RAGGED]


@dataclass(frozen=True)
class Groups:
    """Of all ranks: one that goes through shared memory, one that stays on gloo, and torch's meshes."""

    shared: dist.ProcessGroup
    gloo: dist.ProcessGroup
    meshes: dict[tuple[int, ...], DeviceMesh]

    @staticmethod
    def make(ranks: int) -> Groups:
        logging.getLogger("torch.distributed.tensor._collective_utils").setLevel(
            logging.ERROR
        )  # says how it falls back
        shared, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
        assert shared is not None
        for group, transport in ((shared, "shm"), (gloo, "c10d")):
            with _transport(transport):  # decided by the first call
                sw.gather_sizes(torch.ones(1), group=group)
        shapes = {op.mesh_shape(ranks) for op in ops_on(ranks)}
        return Groups(shared, gloo, {shape: init_device_mesh("cpu", shape) for shape in sorted(shapes)})


@contextmanager
def _transport(name: str) -> Iterator[None]:
    os.environ["SHARDWAY_TRANSPORT"] = name
    yield
    del os.environ["SHARDWAY_TRANSPORT"]


def ops_on(ranks: int) -> list[Op]:
    return [op for op in OPS if len(op.before) == 1 or (ranks >= 4 and ranks % 2 == 0)]


class Case:
    """One rank's part of a tensor before and after, and what a single process would have made of it."""

    def __init__(self, op: Op, rank: int, ranks: int, shape: tuple[int, int]) -> None:
        self.op, self.rank, self.ranks, self.shape = op, rank, ranks, shape
        before: tuple[sw.Placement, ...] = op.before
        if op.is_ragged:
            rows = [shape[0] * (2 * r + 1) // ranks**2 for r in range(ranks)]
            before = (sw.Shard(0, (*rows[:-1], shape[0] - sum(rows[:-1]))),)
        self.before = sw.Layout(shape, torch.float32, sw.Mesh(op.mesh_shape(ranks)), before)
        self.after = self.before.with_(op.after)

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self.after.box(self.rank)[1]

    @property
    def result_bytes(self) -> int:
        return self.result_shape[0] * self.result_shape[1] * FLOAT_BYTES

    @property
    def input_bytes(self) -> int:
        rows, columns = self.before.box(self.rank)[1]
        return rows * columns * FLOAT_BYTES

    def fill(self, local: Tensor) -> None:
        """Small integers, so that sums in f32 are exact; an addend is the rank's number plus one times the tensor."""
        local.copy_(self._part(self.before))
        if self.op.before[0].is_partial():
            local.mul_(self.rank + 1)

    def check(self, who: str, result: Tensor) -> None:
        wanted = self._part(self.after)
        if self.op.before[0].is_partial():
            wanted *= self.ranks * (self.ranks + 1) // 2
        if not torch.equal(result, wanted):
            raise AssertionError(f"{who} moved {self.op.name} of {self.shape} wrongly on rank {self.rank}")

    def _part(self, layout: sw.Layout) -> Tensor:
        (row, column), (rows, columns) = layout.box(self.rank)
        by_row = torch.arange(row, row + rows) % 251
        return by_row.float().unsqueeze(1) + (torch.arange(column, column + columns) % 31).float()


def contenders(case: Case, groups: Groups) -> list[Contender]:
    """Those of the case, each checked once against the reference, which also warms it up."""
    local = torch.empty(case.before.box(case.rank)[1])
    found = [_ours(OURS, case, local, groups.shared), _ours(ON_GLOO, case, local, groups.gloo)]
    if case.op is SHARD_TO_SHARD:
        found.append(_ours(SHARED, case, sw.empty(*local.shape), groups.shared))
    if not case.op.is_ragged:
        found.append(_dtensor(case, local, groups.meshes[case.op.mesh_shape(case.ranks)]))
    source, target = torch.zeros(case.result_shape), torch.zeros(case.result_shape)
    return [*found, Contender(COPY, lambda: rewrite(source), lambda: target.copy_(source))]


def _ours(name: str, case: Case, local: Tensor, group: dist.ProcessGroup) -> Contender:
    t = sw.MeshTensor(local, case.before, group)
    return _checked(name, case, local, lambda: sw.redistribute(t, case.after.placements).local)


def _dtensor(case: Case, local: Tensor, mesh: DeviceMesh) -> Contender:
    before, after = (layout.to_spec(mesh).placements for layout in (case.before, case.after))
    stride = (case.shape[1], 1)
    t = DTensor.from_local(local, mesh, before, run_check=False, shape=torch.Size(case.shape), stride=stride)
    return _checked(PEER, case, local, lambda: t.redistribute(placements=after).to_local())


def _checked(name: str, case: Case, local: Tensor, call: Callable[[], Tensor | None]) -> Contender:
    case.fill(local)
    result = call()
    assert result is not None
    case.check(name, result)
    return Contender(name, lambda: rewrite(local), call)
