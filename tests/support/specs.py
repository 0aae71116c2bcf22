"""Meshes, placements and specs for tests, without a process group: a DeviceMesh can do without."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor.placement_types import Placement


def silent_mesh(
    shape: Sequence[int],
    names: tuple[str, ...] | None = None,
    *,
    ranks: Sequence[int] | None = None,
    rank: int = 0,
    device_type: str = "cpu",
) -> DeviceMesh:
    """A DeviceMesh as `rank` sees it, which describes and does not communicate."""
    grid = torch.tensor(range(math.prod(shape)) if ranks is None else list(ranks)).view(tuple(shape))
    return DeviceMesh(device_type, grid, mesh_dim_names=names, _init_backend=False, _rank=rank)


def meta(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> TensorMeta:
    size = torch.Size(shape)
    return TensorMeta(size, torch.empty(size, device="meta").stride(), dtype)


def spec(
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    shape: Sequence[int],
    dtype: torch.dtype = torch.float32,
    order: Sequence[tuple[int, tuple[int, ...]]] | None = None,
) -> DTensorSpec:
    shard_order = None if order is None else tuple(ShardOrderEntry(*entry) for entry in order)
    return DTensorSpec(mesh, tuple(placements), tensor_meta=meta(shape, dtype), shard_order=shard_order)


def random_placements(draw: random.Random, mesh_ndim: int, ndim: int, *, partial: bool = True) -> list[Placement]:
    choices: list[Placement] = [Replicate(), *(Shard(dim) for dim in range(ndim))]
    if partial:
        choices.append(Partial())
    return [draw.choice(choices) for _ in range(mesh_ndim)]


def random_order(draw: random.Random, placements: Sequence[Placement]) -> list[tuple[int, tuple[int, ...]]]:
    """An order of the shards of each tensor dim, often not the ascending one."""
    mesh_dims: dict[int, list[int]] = {}
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            mesh_dims.setdefault(placement.dim, []).append(mesh_dim)
    return [(dim, tuple(draw.sample(found, len(found)))) for dim, found in sorted(mesh_dims.items())]


def all_placements(mesh_ndim: int, ndim: int) -> list[tuple[Placement, ...]]:
    kinds: list[Placement] = [*(Shard(dim) for dim in range(ndim)), Replicate(), Partial()]
    return list(itertools.product(kinds, repeat=mesh_ndim))
