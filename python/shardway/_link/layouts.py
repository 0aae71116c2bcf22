"""Tensors and layouts as JSON: shape, dtype, the mesh's shape and ranks, placements, the order of shards."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from shardway._C import Layout, MeshTensor, Partial, Placement, Shard

from .load import Load
from .wire import Message


def described(value: object, rank: int, size: int) -> tuple[Message, Tensor | None]:
    """What the role's other ranks and the other jobs need to know of a tensor, and this rank's part of it."""
    if isinstance(value, MeshTensor):
        if value.rank >= 0 and value.rank != rank:
            raise ValueError(f"it is of rank {value.rank}, but this process has connected as rank {rank}")
        return _described(value.layout, value.local, rank, size)
    if _is_dtensor(value):
        return _described_dtensor(value, rank, size)
    if isinstance(value, Load):
        return _described_load(value, size), None
    if isinstance(value, Tensor):
        _check_tensor(value)
        return {"shape": list(value.shape), "dtype": _dtype_name(value.dtype)}, value.detach()
    raise ValueError(f"it is a {type(value).__name__}, not a DTensor, MeshTensor or Tensor")


def _described_load(load: Load, size: int) -> Message:
    load.check()
    _check_mesh(load.layout, size)
    return {**entry_of(load.layout), "dtype": _dtype_name(load.dtype), "max_bytes": load.max_bytes}


def _is_dtensor(value: object) -> bool:
    """Whose module is loaded where there is one, and takes long to load."""
    loaded = sys.modules.get("torch.distributed.tensor")
    return loaded is not None and isinstance(value, loaded.DTensor)


def _described_dtensor(dtensor: Any, rank: int, size: int) -> tuple[Message, Tensor | None]:
    layout = Layout.from_spec(dtensor._spec)
    return _described(layout, dtensor._local_tensor if rank in layout.mesh.ranks else None, rank, size)


def _described(layout: Layout, local: Tensor | None, rank: int, size: int) -> tuple[Message, Tensor | None]:
    _check_mesh(layout, size)
    if (rank in layout.mesh.ranks) != (local is not None):
        raise ValueError("it has no local part" if local is None else "this rank is outside its mesh, but has a part")
    if local is not None:
        _check_tensor(local)
        if tuple(local.shape) != layout.box(rank)[1]:
            raise ValueError(f"its part has shape {tuple(local.shape)}, but the layout says {layout.box(rank)[1]}")
        if local.dtype != layout.dtype:
            raise ValueError(f"its part is {local.dtype}, but the layout says {layout.dtype}")
    return entry_of(layout), None if local is None else local.detach()


def _check_mesh(layout: Layout, size: int) -> None:
    beyond = [number for number in layout.mesh.ranks if number >= size]
    if beyond:
        raise ValueError(f"its mesh has rank {beyond[0]}, but the role has {size} ranks")


def _check_tensor(tensor: Tensor) -> None:
    if tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided or tensor.is_quantized:
        raise ValueError(f"it is on {tensor.device}, {tensor.layout}: a link moves dense tensors of the CPU or a GPU")


def entry_of(layout: Layout) -> Message:
    return {
        "shape": list(layout.shape),
        "dtype": _dtype_name(layout.dtype),
        "mesh_shape": list(layout.mesh.shape),
        "mesh": list(layout.mesh.ranks),
        "placements": [_said(placement) for placement in layout.placements],
        "order": [list(dims) for dims in layout.order],
    }


def _said(placement: Placement) -> list[Any]:
    if isinstance(placement, Shard):
        return ["S", placement.dim, None if placement.sizes is None else list(placement.sizes)]
    return ["P", placement.op] if isinstance(placement, Partial) else ["R"]


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
