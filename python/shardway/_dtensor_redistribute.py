"""DTensors moved by shardway, and MeshTensors as DTensors. Loaded when the first of them is met."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, distributed_c10d
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec

from shardway import _C
from shardway._C import (
    Handle,
    Layout,
    Mesh,
    MeshTensor,
    Partial,
    Plan,
    Replicate,
    Shard,
    Topology,
)
from shardway._dtensor import layout_of, mesh_of, spec_of
from shardway._groups import GroupLike, default_group, level_of_caller
from shardway._redistribute import refuse


def redistribute_dtensors(
    dtensors: Sequence[Any],
    targets: Sequence[Any],
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
    async_op: bool,
) -> list[DTensor] | Handle[list[DTensor]]:
    """Each to its own target."""
    for i, dtensor in enumerate(dtensors):
        if not isinstance(dtensor, DTensor):
            wanted = "MeshTensors or DTensors, all of one kind"
            refuse(f"t[{i}] is a {type(dtensor).__name__}; a list has {wanted}", dtensors, mesh)
    device_mesh = mesh if isinstance(mesh, DeviceMesh) else dtensors[0].device_mesh
    meshes = {id(t._spec.mesh): t._spec.mesh for t in dtensors}
    try:
        kinds = _kinds_of(dtensors, targets, mesh)
        group = _covering_group(list(meshes.values()), device_mesh)
    except ValueError as error:
        refuse(_problem_in(error), dtensors, mesh)
    try:
        async_op = bool(async_op)
    except Exception:
        refuse(f"async_op is a {type(async_op).__name__}, which is neither true nor false", dtensors, mesh)
    is_inside = {key: _is_inside(of_some) for key, of_some in meshes.items()}
    locals_ = [plain_local(t._local_tensor) if is_inside[id(t._spec.mesh)] else None for t in dtensors]
    sources = [kind.layout for kind in kinds]
    problems = (kind.problem for kind in kinds if kind.problem is not None)
    if (problem := next(problems, None)) is not None:
        _C.refuse_redistribute_list(_C.mesh_tensors(locals_[:1], sources[:1], group)[0], problem)
    if async_op:
        handle = _C.redistribute_list(
            _C.mesh_tensors(locals_, sources, group),
            targets,
            mesh,
            topology,
            max_bytes,
            async_op,
            None,
            None,
            None,
            None,
        )
        assert isinstance(handle, Handle)

        def wrapped(moved: list[MeshTensor]) -> list[DTensor]:
            parts, layouts = [t.local for t in moved], [t.layout for t in moved]
            return _wrapped_list(dtensors, parts, layouts, kinds, device_mesh)

        return _C.mapped_handle(handle, wrapped)
    parts, layouts = _C.redistribute_parts(locals_, sources, group, targets, mesh, topology, max_bytes)
    return _wrapped_list(dtensors, parts, layouts, kinds, device_mesh)


@dataclass
class _Kind:
    """What tensors of a list have in common that lie alike and go to the same place: to find it out for each would
    take longer than to move a small one."""

    layout: Layout
    problem: str | None
    spec: DTensorSpec | None = None  # of the results, once there is one


def _kinds_of(dtensors: Sequence[DTensor], targets: Sequence[Any], mesh: object) -> list[_Kind]:
    known: dict[tuple[DTensorSpec, int, bool], _Kind] = {}
    kinds = []
    for dtensor, target in zip(dtensors, targets, strict=True):
        key = dtensor._spec, id(target), dtensor.requires_grad
        kind = known.get(key)
        if kind is None:
            layout = layout_of(dtensor._spec, "redistribute: t's spec")
            kind = known[key] = _Kind(layout, _problem_of(dtensor, layout, target, mesh, None, None))
        kinds.append(kind)
    return kinds


def redistribute_dtensor(
    dtensor: object,
    placements: Any,
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
    plan: Plan | None,
    grad_placements: Any,
    async_op: bool,
) -> DTensor | Handle[DTensor]:
    if not isinstance(dtensor, DTensor):
        refuse(f"t is a {type(dtensor).__name__}, neither a MeshTensor nor a DTensor", (), mesh)
    device_mesh = mesh if isinstance(mesh, DeviceMesh) else dtensor.device_mesh
    try:
        source = _source_of(dtensor, device_mesh)
    except ValueError as error:
        refuse(_problem_in(error), (dtensor,), mesh)
    problem = _problem_of(dtensor, source.layout, placements, mesh, plan, grad_placements)
    if problem is not None:
        _C.refuse_redistribute(source, problem)
    with torch.no_grad():
        moved = _C.redistribute(source, placements, mesh, topology, max_bytes, plan, None, async_op, None, None, None)
    if isinstance(moved, Handle):
        return _C.mapped_handle(moved, lambda result: _wrapped(dtensor, result, device_mesh))
    return _wrapped(dtensor, moved, device_mesh)


def mesh_tensor_of(dtensor: object, group: GroupLike) -> MeshTensor:
    if not isinstance(dtensor, DTensor):
        raise ValueError(f"from_dtensor: {type(dtensor).__name__} is not a DTensor")
    layout = layout_of(dtensor._spec, "from_dtensor: spec")
    local = dtensor.to_local() if _is_inside(dtensor.device_mesh) else None
    return MeshTensor(local, layout, group_of_mesh(dtensor.device_mesh) if group is None else group)


def dtensor_of(tensor: MeshTensor, device_mesh: DeviceMesh) -> DTensor:
    spec = spec_of(tensor.layout, device_mesh)
    if tensor.local is None:
        raise ValueError(f"to_dtensor: rank {tensor.rank} is outside the mesh {tensor.layout.mesh!r}")
    result: DTensor = _FromLocal.apply(tensor.local, tensor, spec)  # type: ignore[no-untyped-call]
    return result


def wrapped_like(dtensor: DTensor, moved: MeshTensor) -> DTensor:
    """As a DTensor on the mesh of another, without a gradient."""
    spec = _spec_after(dtensor, moved.layout, dtensor.device_mesh)
    return _wrapped_as(dtensor, moved.local, moved.layout, spec, records=False)


def _is_inside(device_mesh: DeviceMesh) -> bool:
    return device_mesh.get_coordinate() is not None


def group_of_mesh(device_mesh: DeviceMesh) -> ProcessGroup:
    """The mesh's own group where it has one dim, else one that has exactly its ranks."""
    return device_mesh.get_group() if device_mesh.ndim == 1 else group_of(mesh_of(device_mesh).ranks)


def group_of(ranks: Sequence[int]) -> ProcessGroup:
    """The group that has exactly these ranks. None is made: a ValueError where there is none."""
    world = default_group()
    if world is not None and world.size() == len(ranks):
        return world
    wanted = sorted(ranks)
    for group, numbers in distributed_c10d._world.pg_group_ranks.items():
        if len(numbers) == len(wanted) and sorted(numbers) == wanted:
            return group
    raise ValueError(
        f"redistribute: no process group has exactly the ranks {wanted} of the mesh. Make one on all of them with "
        f"torch.distributed.new_group, or flatten the DeviceMesh"
    )


def waiting_group(problem: str, tensors: Sequence[object], mesh: object) -> ProcessGroup | None:
    """Where the others wait for a rank with a problem; a guess where it shows neither tensor nor DeviceMesh.

    None where nothing is distributed; a ValueError with the problem where the group that is meant is none, which the
    others see by themselves."""
    meant = next((t.device_mesh for t in tensors if isinstance(t, DTensor)), mesh)
    if not isinstance(meant, DeviceMesh):
        world = default_group()
        if world is not None and _is_in_a_part_of(world):
            told = "it is told to the default group; ranks whose tensors have another do not hear of it"
            warnings.warn(f"redistribute: {problem}: {told}", RuntimeWarning, stacklevel=level_of_caller())
        return world
    try:
        return group_of_mesh(meant)
    except (ValueError, RuntimeError):
        raise ValueError(f"redistribute: {problem} (rank {torch.distributed.get_rank()})") from None


def _is_in_a_part_of(world: ProcessGroup) -> bool:
    return any(1 < len(ranks) < world.size() for ranks in distributed_c10d._world.pg_group_ranks.values())


def _problem_in(error: ValueError) -> str:
    """Without op and rank, which are said again."""
    return re.sub(r"^redistribute: |\s*\(rank \d+\)$", "", str(error))


def _source_of(dtensor: DTensor, target: DeviceMesh) -> MeshTensor:
    layout = layout_of(dtensor._spec, "redistribute: t's spec")
    return MeshTensor(_local_of(dtensor), layout, _covering_group([dtensor.device_mesh], target))


def _local_of(dtensor: DTensor) -> Tensor | None:
    """The local part, None outside the mesh."""
    return plain_local(dtensor._local_tensor) if _is_inside(dtensor.device_mesh) else None


def plain_local(local: Tensor) -> Tensor:
    """What a DTensor holds, arrived, and without the gradient, which DTensor's own autograd carries."""
    if type(local) is AsyncCollectiveTensor:
        local = local.wait()
    return local.detach() if local.requires_grad else local


def _covering_group(sources: Sequence[DeviceMesh], target: DeviceMesh) -> ProcessGroup:
    if all(mesh is target for mesh in sources):
        return group_of_mesh(target)
    return group_of(sorted({rank for mesh in (*sources, target) for rank in mesh_of(mesh).ranks}))


def _problem_of(
    dtensor: DTensor, layout: Layout, placements: Any, mesh: object, plan: Plan | None, grad_placements: object
) -> str | None:
    """What cannot be asked of a DTensor, though it could of a MeshTensor."""
    if grad_placements is not None:
        return "grad_placements is given, but the gradient of a DTensor says its own"
    if isinstance(mesh, Mesh):
        return "mesh is a Mesh, but a DTensor lies on a DeviceMesh"
    if placements is None and isinstance(plan, Plan):
        placements = plan.to
    if isinstance(placements, Layout) and placements.mesh != layout.mesh:
        return f"the target lies on {placements.mesh!r}: pass that DeviceMesh as mesh, and placements"
    target = placements.placements if isinstance(placements, Layout) else placements
    if not isinstance(target, Sequence):
        return None  # no placements at all: refused where all are read
    for placement in target:
        if isinstance(placement, Shard) and placement.sizes is not None:
            return f"DTensor has no placement for {placement!r}, whose sizes are given: use a MeshTensor"
    if dtensor.requires_grad and torch.is_grad_enabled() and _C.is_preparing():
        return "t requires grad, but a prepared call has no gradient: pass t.detach(), or use torch.no_grad()"
    combined = [p for p in layout.placements if isinstance(p, Partial) and p.op not in ("sum", "avg")]
    if combined and dtensor.requires_grad and torch.is_grad_enabled():
        return f"{combined[0]!r} has no gradient, but t requires grad: pass t.detach()"
    return None


def _wrapped(dtensor: DTensor, moved: MeshTensor, device_mesh: DeviceMesh) -> DTensor:
    spec = _spec_after(dtensor, moved.layout, device_mesh)
    return _wrapped_as(dtensor, moved.local, moved.layout, spec, torch.is_grad_enabled())


def _wrapped_list(
    dtensors: Sequence[DTensor],
    parts: Sequence[Tensor | None],
    layouts: Sequence[Layout],
    kinds: Sequence[_Kind],
    device_mesh: DeviceMesh,
) -> list[DTensor]:
    records = torch.is_grad_enabled()
    results = []
    for dtensor, part, layout, kind in zip(dtensors, parts, layouts, kinds, strict=True):
        spec = kind.spec
        if spec is None:
            spec = kind.spec = _spec_after(dtensor, layout, device_mesh)
        results.append(_wrapped_as(dtensor, part, layout, spec, records))
    return results


def _spec_after(dtensor: DTensor, layout: Layout, device_mesh: DeviceMesh) -> DTensorSpec:
    spec = spec_of(layout, device_mesh)
    spec.tensor_meta = dtensor._spec.tensor_meta
    return spec


def _wrapped_as(dtensor: DTensor, part: Tensor | None, layout: Layout, spec: DTensorSpec, records: bool) -> DTensor:
    if part is None:  # outside the mesh
        part = dtensor._local_tensor.new_empty(0)
    if records and dtensor.requires_grad:
        result: DTensor = _Moved.apply(dtensor, part, layout, spec)  # type: ignore[no-untyped-call]
        return result
    return DTensor.__new__(DTensor, part, spec, requires_grad=False)


class _Moved(torch.autograd.Function):
    """A DTensor, redistributed. The gradient of the result says how it lies; it goes back to the placements of the
    input, Replicate for Partial."""

    @staticmethod
    def forward(ctx: Any, dtensor: DTensor, part: Tensor, layout: Layout, spec: DTensorSpec) -> DTensor:
        ctx.device_mesh = dtensor.device_mesh
        ctx.layout = layout_of(dtensor._spec)
        ctx.divisor = _combined_averages(ctx.layout, layout)
        return DTensor(part.view_as(part), spec, requires_grad=dtensor.requires_grad)  # type: ignore[no-untyped-call]

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:
        back = _returned(grad, ctx.layout, ctx.device_mesh)
        return back if ctx.divisor == 1 else back / ctx.divisor, None, None, None


class _FromLocal(torch.autograd.Function):
    """A local tensor as a DTensor. Its gradient is the local part of the DTensor's, Replicate for Partial."""

    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, tensor: MeshTensor, spec: DTensorSpec) -> DTensor:
        ctx.layout, ctx.device_mesh = tensor.layout, spec.mesh
        return DTensor(local.view_as(local), spec, requires_grad=local.requires_grad)  # type: ignore[no-untyped-call]

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> Any:
        return _returned(grad, ctx.layout, ctx.device_mesh).to_local(), None, None


def _combined_averages(before: Layout, after: Layout) -> int:
    """By what the addends of averages were divided."""
    stays = before.placements if before.mesh == after.mesh else ()
    return math.prod(
        before.mesh.shape[dim]
        for dim, placement in enumerate(before.placements)
        if isinstance(placement, Partial)
        and placement.op == "avg"
        and not (stays and after.placements[dim] == placement)
    )


def _returned(grad: DTensor, layout: Layout, device_mesh: DeviceMesh) -> DTensor:
    """A gradient in the layout of what it is the gradient of, Replicate for Partial; differentiable."""
    target = layout.with_([Replicate() if p.is_partial() else p for p in layout.placements], layout.order)
    with torch.no_grad():
        source = _source_of(grad, device_mesh)
        moved = _C.redistribute(source, target, None, None, None, None, None, False, None, None, None)
    return _wrapped(grad, moved, device_mesh)
