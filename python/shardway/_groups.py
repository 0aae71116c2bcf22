"""What a caller may pass as `group`, as the process group that it means."""

from __future__ import annotations

import os
import sys
import warnings
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed import ProcessGroup, distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

GroupLike: TypeAlias = ProcessGroup | str | DeviceMesh | tuple[DeviceMesh, int | str] | None


def default_group() -> ProcessGroup | None:
    """The one that torch.distributed has at this moment: not only the group comes and goes, torch's threaded tests
    replace what holds it."""
    return distributed_c10d._world.default_pg


def resolve_group(group: GroupLike, op: str) -> ProcessGroup | None:
    """The process group, or None when nothing is distributed. A ValueError when this rank is not in it."""
    if group is None:
        found = default_group()
        if found is None:
            warn_if_alone(op)
        return found
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, str):
        return _by_name(group, op)
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise _refusal(op, f"group is a mesh of {group.ndim} dims; pass (mesh, dim) to say along which")
        return _along(group, 0, op)
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return _along(group[0], group[1], op)
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise _refusal(op, "this rank is not in the group")
    raise _refusal(op, f"group={group!r} is not a process group, the name of one, a mesh of one dim, or (mesh, dim)")


_has_warned = False
_OWN_FOLDERS = tuple(os.path.dirname(str(file)) + os.sep for file in (__file__, torch.__file__))


def warn_if_alone(op: str) -> None:
    """Warns, once in a process, of a call that sees one rank where the environment promises more."""
    global _has_warned
    ranks = os.environ.get("WORLD_SIZE", "")
    if _has_warned or not ranks.isdecimal() or int(ranks) < 2:
        return
    _has_warned = True
    problem = f"{op}: WORLD_SIZE={ranks} is set, but torch.distributed is not initialised"
    effect = "this call, and those after it, see one rank and give their input back"
    cure = "call torch.distributed.init_process_group first"
    warnings.warn(f"{problem}: {effect}; {cure}", RuntimeWarning, stacklevel=level_of_caller())


def level_of_caller() -> int:
    """The stacklevel, for a warning of the function that asks, of the first frame that is neither shardway's nor
    torch's."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN_FOLDERS):
        frame, level = frame.f_back, level + 1
    return level


def _by_name(name: str, op: str) -> ProcessGroup:
    try:
        return _resolve_process_group(name)  # type: ignore[arg-type]  # torch's GroupName is a str
    except (RuntimeError, ValueError, KeyError) as error:
        raise _refusal(op, f"no group is named {name!r} on this rank") from error


def _along(mesh: DeviceMesh, dim: int | str, op: str) -> ProcessGroup:
    if mesh.get_coordinate() is None:
        raise _refusal(op, "this rank is not in the mesh")
    try:
        return mesh.get_group(dim)
    except (RuntimeError, KeyError, IndexError) as error:
        raise _refusal(op, f"dim {dim!r} is not one of the mesh's {mesh.mesh_dim_names or mesh.ndim}") from error


def _refusal(op: str, problem: str) -> ValueError:
    where = f" (rank {dist.get_rank()})" if dist.is_initialized() else ""
    return ValueError(f"{op}: {problem}{where}")


def global_ranks(group: ProcessGroup | None) -> list[int] | None:
    """Those of the group's ranks; None where they are 0, 1, …"""
    if group is None or group is default_group():
        return None
    return dist.get_process_group_ranks(group)


def group_and_ranks(group: GroupLike, op: str) -> tuple[ProcessGroup | None, list[int] | None]:
    """The process group and the global ranks of its ranks: 0, 1, … in one that torch.distributed has not registered. A
    MeshTensor may be made where nothing is distributed, to be looked at."""
    found = default_group() if group is None and op == "MeshTensor" else resolve_group(group, op)
    if found is None:
        return None, None
    known = distributed_c10d._world.pg_group_ranks.get(found)
    return found, list(range(found.size()) if known is None else known)
