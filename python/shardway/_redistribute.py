"""Tensors that lie on a mesh of ranks, moved from one layout to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from torch import Tensor

from shardway import _C
from shardway._absent import is_absent, redistribute_absent
from shardway._C import Handle, Layout, Mesh, MeshTensor, Plan, Topology
from shardway._groups import GroupLike

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

    from shardway._C import PlacementLike


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
    relabel: bool | Sequence[int] | None = None,
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
    relabel: bool | Sequence[int] | None = None,
) -> Handle[MeshTensor]: ...
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
) -> Handle[DTensor]: ...
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
    relabel: bool | Sequence[int] | None = None,
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
    relabel: bool | Sequence[int] | None = None,
) -> Handle[list[MeshTensor]]: ...
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
) -> Handle[list[DTensor]]: ...
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
    relabel: bool | Sequence[int] | None = None,
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
    relabel: bool | Sequence[int] | None = None,
) -> Any:
    """The same tensor in other placements, on this mesh or another: the same kind of tensor as `t`.

    Every rank of the tensor's group calls it. The ranks first compare what they are about to do. An unchanged layout
    gives the tensor itself; otherwise the result shares no memory with `t`.

    Backward redistributes the gradient of the result to the placements of `t`, with Replicate for Partial;
    docs/gradients.md has the rule. It is a collective: every rank of the group runs it.

    Args:
        t: A MeshTensor, a DTensor, or a list of either: all of a list move in one exchange per step. A rank that has no
            part may pass None, alone or in a list: it learns from the others how the tensor lies. Its group is `group`,
            else that of a MeshTensor in the list, else the default group; its result is a DTensor where `mesh` is a
            DeviceMesh, else a MeshTensor.
        placements: One per dim of the target's mesh; a Layout, which can say an order of shards; or None where `plan`
            is given. For a list, those of all, or a list with those of each.
        mesh: The target's mesh; None is the tensor's own.
        topology: What communication costs, as in `plan`.
        max_bytes: No step needs more memory than this on any rank.
        plan: The plan to run, for one tensor; None is the cheapest.
        grad_placements: How the gradient of the result lies, for one MeshTensor; None is as the result, with Replicate
            for Partial.
        async_op: Return a handle at once; its `wait()` returns the tensor.
        group: After a death, the group of the living ranks, as `shrink` gives it: each part comes from a living rank
            that holds it. Without `mesh` the result is on the living ranks of a mesh of one dim. It has no gradient.
        copies: With such a group, the same tensor in other layouts, a MeshTensor or several; for a list, an entry per
            tensor.
        out: For a list of MeshTensors, where the parts of the results are written: an entry per tensor, of the part's
            shape and dtype, or None for a result in memory of its own. An entry may be any view; it shares memory
            neither with another nor with the tensors. A prepared call writes there in every run.
        relabel: For MeshTensors, lets the ranks of the result's mesh be chosen so that fewer bytes move: True lets them
            change places, a list says which ranks to choose from. `layout.mesh.ranks` of the result says who stands
            where. Results of a list whose meshes have the same ranks are relabelled alike. `plan(…, relabel=…)` says
            what it saves.

    Returns:
        The tensor, or the list of them, in the new layout.

    Raises:
        ValueError: An argument is invalid, ranks disagree, or addends would have to be made; on every rank. After a
            death: no living rank holds some part, which the error names.
        DistBackendError: A rank was lost or did not answer within the group's timeout.

    Example:
        >>> layout = sw.Layout((4, 2), torch.float32, sw.Mesh((1,)), [sw.Shard(0)])
        >>> t = sw.MeshTensor(torch.ones(4, 2), layout)
        >>> sw.redistribute(t, [sw.Replicate()]).local.shape
        torch.Size([4, 2])
    """
    if isinstance(t, MeshTensor):
        if out is not None:
            _C.refuse_redistribute(t, "out is for a list: pass [t], on every rank")
        return _C.redistribute(
            t, placements, mesh, topology, max_bytes, plan, grad_placements, async_op, group, copies, relabel
        )
    if is_absent(t):
        if copies is not None:
            refuse("copies are for ranks that know how the tensors lie, but t is None", (), mesh, group)
        if relabel and not isinstance(mesh, (Mesh, NoneType)):
            refuse(
                "relabel is for MeshTensors, but mesh is a DeviceMesh, whose ranks have their places", (), mesh, group
            )
        return redistribute_absent(
            t, placements, mesh, topology, max_bytes, plan, grad_placements, async_op, group, out, relabel
        )
    if isinstance(t, (list, tuple)):
        if plan is not None or grad_placements is not None:
            refuse("plan and grad_placements are for one tensor, but t is a list", t, mesh, group)
        return _redistribute_list(t, placements, mesh, topology, max_bytes, async_op, group, copies, out, relabel)
    if group is not None or copies is not None or out is not None or relabel:
        refuse("group, copies, out and relabel are for MeshTensors: see MeshTensor.from_dtensor", [t], mesh, group)
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
    relabel: Any,
) -> Any:
    if not tensors:
        refuse("t is an empty list", tensors, mesh, group)
    is_for_each = isinstance(placements, Sequence) and any(isinstance(p, (Sequence, Layout)) for p in placements)
    targets = list(placements) if is_for_each else [placements] * len(tensors)
    if len(targets) != len(tensors):
        refuse(f"there are placements for {len(targets)} tensors, but t has {len(tensors)}", tensors, mesh, group)
    if all(isinstance(t, MeshTensor) for t in tensors):
        return _C.redistribute_list(tensors, targets, mesh, topology, max_bytes, async_op, group, copies, out, relabel)
    if group is not None or copies is not None or out is not None or relabel:
        refuse("group, copies, out and relabel are for MeshTensors: see MeshTensor.from_dtensor", tensors, mesh, group)
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

    Args:
        tensor: The whole tensor. With `src`, only that rank needs it; the others may pass None.
        mesh: Where it goes: a Mesh or a DeviceMesh.
        placements: One per dim of the mesh.
        src: The global rank that sends shape, dtype and to each rank its part. None: every rank has the tensor and
            copies its part out of it, and nothing but a comparison is communicated.
        group: The ranks that take part; None is the default group.

    Returns:
        This rank's part with its layout.

    Raises:
        ValueError: An argument is invalid, or ranks disagree; on every rank.

    Example:
        >>> t = sw.distribute(torch.ones(4, 2), sw.Mesh((1,)), [sw.Shard(0)])
        >>> t.local.shape
        torch.Size([4, 2])
    """
    return _C.distribute(tensor, mesh, placements, src, group)


@contextmanager
def use_for_dtensor() -> Iterator[None]:
    """Inside the block DTensor's own redistributes run on shardway, forward and backward.

    That is `DTensor.redistribute` and `full_tensor`, those that matmuls and parallel modules need, and the backward of
    `from_local`. How DTensor chooses its shardings stays torch's choice. `stats()["dtensor"]` counts what was moved
    and, by reason, what was left to torch: traced code, `async_op=True`, whatever an active TorchDispatchMode is to
    see, placements that are no boxes, addends to be made, meshes whose ranks no process group has or whose group is
    written in Python. Blocks may be nested, and those of other threads do not matter. Every rank of a mesh is in a
    block, and in such a mode, or none is.

    Returns:
        A context manager.

    Example:
        >>> with sw.use_for_dtensor():
        ...     pass
    """
    from shardway._dtensor_engine import close_block, open_block

    open_block()
    try:
        yield
    finally:
        close_block()
