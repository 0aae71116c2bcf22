"""torch's DeviceMesh, placements and DTensorSpec as ours, and back. Loaded when the first of them is met."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import placement_types as theirs
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry, TensorMeta
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from shardway._C import Layout, Mesh, Partial, Placement, Replicate, Shard

_MOST_KEPT = 4096
_layouts: dict[Any, Layout] = {}


def mesh_of(mesh: object) -> Mesh:
    if not isinstance(mesh, DeviceMesh):
        raise ValueError(f"layout: mesh={mesh!r} is neither a Mesh nor a DeviceMesh")
    return _known_mesh(mesh)


@lru_cache(64)
def _known_mesh(mesh: DeviceMesh) -> Mesh:
    ranks = mesh.mesh
    return Mesh(tuple(ranks.shape), ranks.flatten().tolist(), mesh.mesh_dim_names)


def device_mesh_of(mesh: Mesh, device_type: str) -> DeviceMesh:
    """Makes a process group per mesh dim: every rank of the default group calls it."""
    return DeviceMesh(device_type, torch.tensor(mesh.ranks).view(mesh.shape), mesh_dim_names=mesh.names)


def placement_of(placement: object) -> Placement:
    """One of torch's placements by itself, without the spec that says how strided shards are meant."""
    if type(placement) is theirs.Shard:
        return Shard(placement.dim)
    if type(placement) is theirs.Replicate:
        return Replicate()
    if type(placement) is theirs.Partial:
        return Partial(placement.reduce_op)  # type: ignore[arg-type]  # refused where it is another word
    if isinstance(placement, theirs._StridedShard):
        raise ValueError(
            f"placement {placement!r} is strided: what a rank holds is not a box, unless the stride stands for an "
            f"order of shards; give Shard({placement.dim}) and the order"
        )
    if isinstance(placement, theirs.Partial):
        raise ValueError(
            f"placement {placement!r} is a {type(placement).__name__}: its ranks hold no plain addends; "
            f"redistribute it with torch first"
        )
    raise ValueError(f"layout: placement {placement!r} is not a Shard, Replicate or Partial")


def layout_of(spec: object, what: str = "spec") -> Layout:
    """The layout that a DTensorSpec describes. Remembered."""
    try:
        return _layouts[spec]
    except (KeyError, TypeError):  # TypeError: it cannot be hashed, so it is none
        pass
    if not isinstance(spec, DTensorSpec):
        raise ValueError(f"{what}={spec!r} is neither a Layout nor a DTensorSpec")
    if spec.tensor_meta is None:
        raise ValueError(f"{what}: the spec {spec} has no tensor_meta, so its shape and dtype are unknown")
    placements, order = _placements_and_order(spec)
    layout = Layout(tuple(spec.shape), spec.tensor_meta.dtype, mesh_of(spec.mesh), placements, order)
    _check_strided_boxes(spec, layout)
    if len(_layouts) >= _MOST_KEPT:
        _layouts.clear()
    _layouts[spec] = layout
    return layout


def spec_of(layout: Layout, device_mesh: DeviceMesh | None) -> DTensorSpec:
    if device_mesh is None:
        device_mesh = _silent_mesh(layout.mesh)
    elif mesh_of(device_mesh) != layout.mesh:
        raise ValueError(f"to_spec: {device_mesh} is another mesh than the layout's {layout.mesh!r}")
    placements: list[Any] = []
    for placement in layout.placements:
        if isinstance(placement, Shard):
            if placement.sizes is not None:
                raise ValueError(
                    f"to_spec: DTensor has no placement for {placement!r}, whose sizes are given; "
                    f"keep the Layout, and a MeshTensor for the data"
                )
            placements.append(theirs.Shard(placement.dim))
        else:
            placements.append(theirs.Partial(placement.op) if isinstance(placement, Partial) else theirs.Replicate())
    shard_order = tuple(ShardOrderEntry(dim, mesh_dims) for dim, mesh_dims in enumerate(layout.order) if mesh_dims)
    shape = torch.Size(layout.shape)
    stride = tuple(math.prod(max(1, length) for length in shape[dim + 1 :]) for dim in range(len(shape)))
    meta = TensorMeta(shape, stride, layout.dtype)
    return DTensorSpec(device_mesh, tuple(placements), tensor_meta=meta, shard_order=shard_order)


def _silent_mesh(mesh: Mesh) -> DeviceMesh:
    """Equal to a DeviceMesh of these ranks, but without process groups: it describes and cannot communicate."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else mesh.ranks[0]
    return _mesh_seen_by(rank, mesh)


def _mesh_seen_by(rank: int, mesh: Mesh) -> DeviceMesh:
    ranks = torch.tensor(mesh.ranks).view(mesh.shape)
    return DeviceMesh("cpu", ranks, mesh_dim_names=mesh.names, _init_backend=False, _rank=rank)


def _placements_and_order(spec: DTensorSpec) -> tuple[list[Placement], list[tuple[int, ...]]]:
    shard_order = spec.shard_order
    placements: list[Any] = list(spec.placements)
    strided = {p.dim: p for p in placements if isinstance(p, theirs._StridedShard)}
    if strided:
        shard_order = _decoded_order(spec, strided)
        placements = [Shard(p.dim) if isinstance(p, theirs._StridedShard) else p for p in placements]
    order: list[tuple[int, ...]] = [()] * len(spec.shape)
    for entry in shard_order:
        order[entry.tensor_dim] = tuple(entry.mesh_dims)
    return [p if isinstance(p, Shard) else placement_of(p) for p in placements], order


def _decoded_order(spec: DTensorSpec, strided: dict[int, Any]) -> Any:
    """The order of shards that the strided ones stand for. Where no order has these strides, what a rank holds is no
    box."""
    if not spec.use_strided_shard_as_shard_order:
        raise ValueError(
            f"placement {next(iter(strided.values()))!r} of {spec} is strided and stands for no order of shards: "
            f"what a rank holds is not a box"
        )
    shard_order = spec._maybe_convert_StridedShard_to_shard_order(spec.placements, spec.mesh)
    if shard_order is None:
        raise ValueError(
            f"placements {spec.placements} on a mesh of {tuple(spec.mesh.shape)}: no order of shards has these "
            f"split factors; what a rank holds is not a box"
        )
    return shard_order


def _check_strided_boxes(spec: DTensorSpec, layout: Layout) -> None:
    """Where a length does not divide evenly, torch's strided shards are boxes for most meshes and lengths, not for all.
    Those of FSDP over tensor parallelism are what the order of shards says; torch has to see them alike."""
    for placement in spec.placements:
        if not isinstance(placement, theirs._StridedShard):
            continue
        dim = placement.dim
        parts = math.prod(layout.mesh.size(mesh_dim) for mesh_dim in layout.order[dim])
        if spec.shape[dim] % parts and not _has_boxes_of(layout, spec):
            raise ValueError(
                f"placement {placement!r} splits dim {dim} of length {spec.shape[dim]} into {parts} parts: with this "
                f"uneven strided shard what torch has on a rank is not a box"
            )


def _has_boxes_of(layout: Layout, spec: DTensorSpec) -> bool:
    for rank in layout.mesh.ranks:
        offset, extent = layout.box(rank)
        seen = _mesh_seen_by(rank, layout.mesh)
        shape, begin = compute_local_shape_and_global_offset(spec.shape, seen, spec.placements)
        if tuple(shape) != extent or (0 not in extent and tuple(begin) != offset):
            return False
    return True
