"""redistribute on a rank that has no part of some tensor and was not told how it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shardway import _C
from shardway._C import Handle, Layout, MeshTensor
from shardway._groups import GroupLike, resolve_group


def is_absent(t: object) -> bool:
    """Whether a tensor is missing: None, or a list that has a None."""
    return t is None or (isinstance(t, (list, tuple)) and any(each is None for each in t))


def redistribute_absent(
    t: Any,
    placements: Any,
    mesh: Any,
    topology: Any,
    max_bytes: Any,
    plan: Any,
    grad_placements: Any,
    async_op: Any,
    group: GroupLike,
    out: Any,
    relabel: Any,
) -> Any:
    """Asks the other ranks how the tensors lie, and then does as they do."""
    from shardway._redistribute import redistribute, refuse

    given = [] if t is None else list(t)
    group = _group_of(given, group)
    is_list, layouts = _C.hear_layouts([_layout_of(each, group) for each in given], group)
    sources = [
        _source_of(i, each, layout, group)
        for i, (each, layout) in enumerate(zip(given or [None] * len(layouts), layouts, strict=True))
    ]
    options: dict[str, Any] = {"mesh": mesh, "topology": topology, "max_bytes": max_bytes, "async_op": async_op}
    options |= {"out": out, "relabel": relabel}
    if not is_list:
        moved = redistribute(sources[0], placements, plan=plan, grad_placements=grad_placements, **options)
        return _like_mesh(moved, mesh)
    if plan is not None or grad_placements is not None:
        refuse("plan and grad_placements are for one tensor, but t is a list", sources, mesh)
    return _like_mesh(redistribute(sources, placements, **options), mesh)


def _group_of(given: Sequence[Any], group: GroupLike) -> GroupLike:
    found = next((each.group for each in given if isinstance(each, MeshTensor)), None) if group is None else group
    return resolve_group(found, "redistribute")


def _layout_of(each: object, group: GroupLike) -> Layout | None:
    if each is None:
        return None
    if isinstance(each, MeshTensor):
        return each.layout
    spec = getattr(each, "_spec", None)
    if spec is None:
        problem = f"t has a {type(each).__name__}, which is neither a MeshTensor nor a DTensor nor None"
        _C.refuse_redistribute_in(group, problem)
    from shardway._dtensor import layout_of

    try:
        return layout_of(spec, "t's spec")
    except ValueError as error:
        _C.refuse_redistribute_in(group, str(error))


def _source_of(i: int, each: Any, layout: Layout, group: GroupLike) -> MeshTensor:
    if each is None:
        return MeshTensor(None, layout, group)
    if isinstance(each, MeshTensor):
        return each
    from shardway._dtensor_redistribute import plain_local

    if each.requires_grad and torch.is_grad_enabled():
        problem = f"t[{i}] requires grad, which a list of DTensors with None does not carry: pass t[{i}].detach()"
        _C.refuse_redistribute_in(group, problem)
    is_inside = each.device_mesh.get_coordinate() is not None
    return MeshTensor(plain_local(each._local_tensor) if is_inside else None, layout, group)


def _like_mesh(moved: Any, mesh: Any) -> Any:
    """DTensors where `mesh` is a DeviceMesh; else as they are."""
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(mesh, DeviceMesh):
        return moved
    if isinstance(moved, list):
        return [_as_dtensor(each, mesh) for each in moved]
    if isinstance(moved, Handle):
        return _C.mapped_handle(moved, lambda result: _like_mesh(result, mesh))
    return _as_dtensor(moved, mesh)


def _as_dtensor(moved: MeshTensor, mesh: Any) -> Any:
    from torch.distributed.tensor import DTensor

    from shardway._dtensor import spec_of

    part = moved.local
    if part is None:  # outside the mesh, as DTensor has it
        part = torch.empty(0, dtype=moved.dtype)
    return DTensor.__new__(DTensor, part.detach(), spec_of(moved.layout, mesh), requires_grad=False)
