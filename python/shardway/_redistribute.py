"""Tensors that lie on a mesh of ranks, moved from one layout to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from torch import Tensor

from shardway import _C
from shardway._absent import is_absent, redistribute_absent
from shardway._C import Layout, Mesh, MeshTensor, MeshTensorHandle, MeshTensorListHandle, Plan, Topology
from shardway._groups import GroupLike

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

    from shardway._C import PlacementLike
    from shardway._dtensor_redistribute import DTensorHandle, DTensorListHandle


@overload
def redistribute(
    t: MeshTensor,
    placements: Sequence[PlacementLike] | Layout | None = None,
    *,
    mesh: Mesh | DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    plan: Plan | None = None,
    grad_placements: Sequence[PlacementLike] | None = None,
    async_op: Literal[False] = False,
    group: GroupLike = None,
    copies: MeshTensor | Sequence[MeshTensor] | None = None,
) -> MeshTensor: ...
@overload
def redistribute(
    t: MeshTensor,
    placements: Sequence[PlacementLike] | Layout | None = None,
    *,
    mesh: Mesh | DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    plan: Plan | None = None,
    grad_placements: Sequence[PlacementLike] | None = None,
    async_op: Literal[True],
    group: GroupLike = None,
    copies: MeshTensor | Sequence[MeshTensor] | None = None,
) -> MeshTensorHandle: ...
@overload
def redistribute(
    t: DTensor,
    placements: Sequence[PlacementLike] | Layout | None = None,
    *,
    mesh: DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    plan: Plan | None = None,
    grad_placements: None = None,
    async_op: Literal[False] = False,
) -> DTensor: ...
@overload
def redistribute(
    t: DTensor,
    placements: Sequence[PlacementLike] | Layout | None = None,
    *,
    mesh: DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    plan: Plan | None = None,
    grad_placements: None = None,
    async_op: Literal[True],
) -> DTensorHandle: ...
@overload
def redistribute(
    t: Sequence[MeshTensor],
    placements: Sequence[PlacementLike] | Layout | Sequence[Sequence[PlacementLike] | Layout],
    *,
    mesh: Mesh | DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    async_op: Literal[False] = False,
    group: GroupLike = None,
    copies: Sequence[MeshTensor | Sequence[MeshTensor] | None] | None = None,
    out: Sequence[Tensor | None] | None = None,
) -> list[MeshTensor]: ...
@overload
def redistribute(
    t: Sequence[MeshTensor],
    placements: Sequence[PlacementLike] | Layout | Sequence[Sequence[PlacementLike] | Layout],
    *,
    mesh: Mesh | DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    async_op: Literal[True],
    group: GroupLike = None,
    copies: Sequence[MeshTensor | Sequence[MeshTensor] | None] | None = None,
    out: Sequence[Tensor | None] | None = None,
) -> MeshTensorListHandle: ...
@overload
def redistribute(
    t: Sequence[DTensor],
    placements: Sequence[PlacementLike] | Layout | Sequence[Sequence[PlacementLike] | Layout],
    *,
    mesh: DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    async_op: Literal[False] = False,
) -> list[DTensor]: ...
@overload
def redistribute(
    t: Sequence[DTensor],
    placements: Sequence[PlacementLike] | Layout | Sequence[Sequence[PlacementLike] | Layout],
    *,
    mesh: DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    async_op: Literal[True],
) -> DTensorListHandle: ...
@overload
def redistribute(
    t: Sequence[MeshTensor | None] | Sequence[DTensor | None] | None,
    placements: Sequence[PlacementLike] | Layout | Sequence[Sequence[PlacementLike] | Layout] | None = None,
    *,
    mesh: Mesh | DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    plan: Plan | None = None,
    grad_placements: Sequence[PlacementLike] | None = None,
    async_op: bool = False,
    group: GroupLike = None,
    out: Sequence[Tensor | None] | None = None,
) -> Any: ...
def redistribute(
    t: MeshTensor | DTensor | Sequence[MeshTensor | None] | Sequence[DTensor | None] | None,
    placements: Any = None,
    *,
    mesh: Mesh | DeviceMesh | None = None,
    topology: Topology | None = None,
    max_bytes: int | None = None,
    plan: Plan | None = None,
    grad_placements: Sequence[PlacementLike] | None = None,
    async_op: bool = False,
    group: GroupLike = None,
    copies: Any = None,
    out: Any = None,
) -> Any:
    """The same tensor in other placements, on this mesh or another: the same kind of tensor as `t`.

    Every rank of the tensor's group calls it. The cheapest plan runs, or the given one; the ranks first compare what
    they are about to do, and a disagreement or one rank's bad argument is the same ValueError on all of them.
    A rank that has no part of the tensor may pass None for it, alone or in a list: it learns from the others how the
    tensor lies. Its group is `group`, else that of a MeshTensor in the list, else the default group; its result is a
    DTensor where `mesh` is a DeviceMesh, else a MeshTensor. A rank that has a part and passes None is refused, on all.
    `placements` may also be a Layout, which can say an order of shards, or None where a plan is given. With
    `max_bytes` no step needs more on any rank. An unchanged layout gives the tensor itself; otherwise the result
    shares no memory with `t`.

    Backward redistributes the gradient of the result, which has the result's placements with Replicate for Partial
    or `grad_placements`, to those of `t`; docs/gradients.md. It is a collective: every rank of the group runs it.

    A list of tensors gives a list: all move in one exchange per step. `placements` are those of all, or a list
    with those of each; neither `plan` nor `grad_placements` is for lists.

    After a death `group` is that of the living ranks, as `shrink` gives it: each part of a MeshTensor comes from a
    living rank that holds it, by a replica or by one of `copies`: the same tensor in other layouts, a MeshTensor or
    several, for a list an entry per tensor. What nobody holds any more is a ValueError on every rank that names the
    lost boxes. Without `mesh` the result is on the living ranks of a mesh of one dim. It has no gradient.

    With `out`, for a list of MeshTensors, the parts of the results are written there: an entry per tensor, of the
    part's shape and dtype, None for a result in memory of its own and on a rank that has no part. An entry may be any
    view; it shares memory neither with another nor with the tensors. A prepared call writes there in every run.
    """
    if isinstance(t, MeshTensor):
        if out is not None:
            _C.refuse_redistribute(t, "out is for a list: pass [t], on every rank")
        return _C.redistribute(t, placements, mesh, topology, max_bytes, plan, grad_placements, async_op, group, copies)
    if is_absent(t):
        if copies is not None:
            refuse("copies are for ranks that know how the tensors lie, but t is None", (), mesh, group)
        return redistribute_absent(
            t, placements, mesh, topology, max_bytes, plan, grad_placements, async_op, group, out
        )
    if isinstance(t, (list, tuple)):
        if plan is not None or grad_placements is not None:
            refuse("plan and grad_placements are for one tensor, but t is a list", t, mesh, group)
        return _redistribute_list(t, placements, mesh, topology, max_bytes, async_op, group, copies, out)
    if group is not None or copies is not None or out is not None:
        refuse("group, copies and out are for MeshTensors: see MeshTensor.from_dtensor", [t], mesh, group)
    from shardway._dtensor_redistribute import redistribute_dtensor

    return redistribute_dtensor(t, placements, mesh, topology, max_bytes, plan, grad_placements, async_op)


def _redistribute_list(
    tensors: Sequence[Any],
    placements: Any,
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
    async_op: bool,
    group: GroupLike,
    copies: Any,
    out: Any,
) -> Any:
    if not tensors:
        refuse("t is an empty list", tensors, mesh, group)
    is_for_each = isinstance(placements, Sequence) and any(isinstance(p, (Sequence, Layout)) for p in placements)
    targets = list(placements) if is_for_each else [placements] * len(tensors)
    if len(targets) != len(tensors):
        refuse(f"there are placements for {len(targets)} tensors, but t has {len(tensors)}", tensors, mesh, group)
    if all(isinstance(t, MeshTensor) for t in tensors):
        return _C.redistribute_list(tensors, targets, mesh, topology, max_bytes, async_op, group, copies, out)
    if group is not None or copies is not None or out is not None:
        refuse("group, copies and out are for MeshTensors: see MeshTensor.from_dtensor", tensors, mesh, group)
    from shardway._dtensor_redistribute import redistribute_dtensors

    return redistribute_dtensors(tensors, targets, mesh, topology, max_bytes, async_op)


def refuse(problem: str, tensors: Sequence[object], mesh: object, group: GroupLike = None) -> NoReturn:
    """Raises a problem of this rank on every rank that waits for it: on those of the group that was given, of the first
    of `tensors` that is one, of the mesh that was given, or of the default group."""
    if group is not None:
        _C.refuse_redistribute_in(group, problem)
    for t in tensors:
        if isinstance(t, MeshTensor):
            _C.refuse_redistribute_list(t, problem)
    from shardway._dtensor_redistribute import waiting_group

    _C.refuse_redistribute_in(waiting_group(problem, tensors, mesh), problem)


def distribute(
    tensor: Tensor | None,
    mesh: Mesh | DeviceMesh,
    placements: Sequence[PlacementLike],
    *,
    src: int | None = None,
    group: GroupLike = None,
) -> MeshTensor:
    """A whole tensor put on a mesh. Every rank of the group calls it.

    With `src`, a global rank, that rank sends shape, dtype and to each rank its part; the others may pass None.
    Without, every rank has the tensor and copies its part out of it, and nothing but a comparison is communicated.
    """
    return _C.distribute(tensor, mesh, placements, src, group)


@contextmanager
def use_for_dtensor() -> Iterator[None]:
    """Inside the block DTensor's own redistributes run on shardway, forward and backward.

    That is `DTensor.redistribute` and `full_tensor`, those that matmuls and parallel modules need, and the backward
    of `from_local`. How DTensor chooses its shardings is torch's as before. `stats()["dtensor"]` counts what was
    moved and, by reason, what was left to torch: traced code, `async_op=True`, whatever an active TorchDispatchMode
    is to see, placements that are no boxes, addends to be made, meshes whose ranks no process group has or whose group
    is written in Python. Blocks may be nested, and those of other threads do not matter; every rank of a mesh is in a
    block, and in such a mode, or none is.
    """
    from shardway._dtensor_engine import close_block, open_block

    open_block()
    try:
        yield
    finally:
        close_block()
