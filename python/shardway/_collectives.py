"""The collectives that every rank gives to and takes from. Every rank of the group calls them in the same order.

Leaving the sizes out costs one small exchange, in which the ranks compare dtype, shape, dim and op: a rank with
bad arguments, or two that disagree, is a ValueError on every rank, and the group stays usable. With sizes given
nothing is exchanged or compared, unless the ranks share a host, where it costs next to nothing, or
SHARDWAY_CHECK=1 is in every rank's environment. all_reduce, which has no sizes, compares CPU tensors as if sizes were
left out, and tensors on a device as if they were given.

Without a group, or with one rank, a call gives its input back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, overload

import torch.distributed as dist
from torch import Tensor
from torch.compiler import is_compiling

from shardway import _C, _traced
from shardway._C import Handle
from shardway._groups import GroupLike, resolve_group

SizesLike: TypeAlias = Sequence[int] | Tensor
OpLike: TypeAlias = Literal["sum", "avg", "mean", "min", "max", "product"] | dist.ReduceOp | dist.ReduceOp.RedOpType
GradLike: TypeAlias = Literal["sum", "mean", "local"]
Ragged: TypeAlias = tuple[Tensor, tuple[int, ...]]
RaggedList: TypeAlias = tuple[list[Tensor], list[tuple[int, ...]]]


@overload
def all_gather_v(
    x: Tensor,
    dim: int = 0,
    *,
    sizes: SizesLike | None = None,
    grad: GradLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> Ragged: ...
@overload
def all_gather_v(
    x: Tensor,
    dim: int = 0,
    *,
    sizes: SizesLike | None = None,
    grad: GradLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[Ragged]: ...
@overload
def all_gather_v(
    x: Sequence[Tensor],
    dim: int = 0,
    *,
    sizes: Sequence[SizesLike] | None = None,
    grad: GradLike = "sum",
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> RaggedList: ...
@overload
def all_gather_v(
    x: Sequence[Tensor],
    dim: int = 0,
    *,
    sizes: Sequence[SizesLike] | None = None,
    grad: GradLike = "sum",
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[RaggedList]: ...
def all_gather_v(
    x: Tensor | Sequence[Tensor],
    dim: int = 0,
    *,
    sizes: SizesLike | Sequence[SizesLike] | None = None,
    grad: GradLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Ragged | RaggedList | Handle[Ragged] | Handle[RaggedList]:
    """The tensors of all ranks concatenated along `dim` in rank order, and the size of each.

    Args:
        x: This rank's tensor, of any length along `dim`, zero included; the other dims are the same on all ranks. A
            list of tensors, of any shapes and dtypes, is gathered in one exchange, and its gradients travel in one.
        dim: The dim along which the tensors are joined.
        sizes: Every rank's length along `dim`, if known: then no sizes are exchanged. For a list, an entry per tensor.
        grad: What backward does with the other ranks' gradients of this rank's rows. "sum" adds them, which is the
            adjoint (reduce_scatter_v): every rank runs backward. "mean" divides that by the ranks. "local" drops them
            and communicates nothing.
        out: Where the result is written; not for lists.
        group: The ranks that take part; None is the default group. Also a name, a DeviceMesh of one dim, or (mesh,
            dim).
        async_op: Return a handle at once; its `wait()` returns what the plain call would.

    Returns:
        The gathered tensor and a tuple with the size of every rank. For a list, the list of results and the list of
        their sizes. Without a group, or with one rank, `x` itself.

    Raises:
        ValueError: An argument is invalid, or ranks disagree. Where ranks compared the call, all of them raise it, and
            the group stays usable.
        DistBackendError: A rank was lost or did not answer within the group's timeout; the group is over.

    Example:
        >>> gathered, sizes = sw.all_gather_v(torch.ones(3, 2))
        >>> gathered.shape, sizes
        (torch.Size([3, 2]), (3,))
    """
    if is_compiling():
        return _traced.all_gather_v(x, dim, sizes, grad, out, group, async_op)  # type: ignore[no-any-return]
    members = resolve_group(group, "all_gather_v")
    if type(x) is not Tensor and is_list(x):
        return _C.all_gather_v_list(x, dim, sizes, grad, out, members, async_op)  # type: ignore[arg-type]
    return _C.all_gather_v(x, dim, sizes, grad, out, members, async_op)  # type: ignore[arg-type, misc]


@overload
def reduce_scatter_v(
    x: Tensor,
    sizes: SizesLike | None = None,
    dim: int = 0,
    *,
    op: OpLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> Tensor: ...
@overload
def reduce_scatter_v(
    x: Tensor,
    sizes: SizesLike | None = None,
    dim: int = 0,
    *,
    op: OpLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[Tensor]: ...
@overload
def reduce_scatter_v(
    x: Sequence[Tensor],
    sizes: Sequence[SizesLike] | None = None,
    dim: int = 0,
    *,
    op: OpLike = "sum",
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> list[Tensor]: ...
@overload
def reduce_scatter_v(
    x: Sequence[Tensor],
    sizes: Sequence[SizesLike] | None = None,
    dim: int = 0,
    *,
    op: OpLike = "sum",
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[list[Tensor]]: ...
def reduce_scatter_v(
    x: Tensor | Sequence[Tensor],
    sizes: SizesLike | Sequence[SizesLike] | None = None,
    dim: int = 0,
    *,
    op: OpLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Tensor | list[Tensor] | Handle[Tensor] | Handle[list[Tensor]]:
    """This rank's part, along `dim`, of all ranks' tensors combined by `op`.

    Addends are taken in rank order, so the bits are the same in every call. The adjoint of sum and avg is all_gather_v;
    min, max and product have none.

    Args:
        x: The tensor to combine, of one shape on all ranks. A list of tensors, of any shapes and dtypes, is reduced in
            one exchange.
        sizes: The length of every rank's part; without it the tensor is cut as torch.chunk cuts. For a list, an entry
            per tensor.
        dim: The dim that is cut.
        op: "sum", "avg" (or "mean"), "min", "max", "product", or a ReduceOp.
        out: Where the result is written; not for lists.
        group: The ranks that take part; None is the default group. Also a name, a DeviceMesh of one dim, or (mesh,
            dim).
        async_op: Return a handle at once; its `wait()` returns what the plain call would.

    Returns:
        This rank's part; a list of them for a list.

    Raises:
        ValueError: An argument is invalid, or ranks disagree. Where ranks compared the call, all of them raise it, and
            the group stays usable.
        DistBackendError: A rank was lost or did not answer within the group's timeout; the group is over.

    Example:
        >>> sw.reduce_scatter_v(torch.arange(4), sizes=[4])
        tensor([0, 1, 2, 3])
    """
    name = _op_name(op)
    if is_compiling():
        return _traced.reduce_scatter_v(x, sizes, dim, name, out, group, async_op)  # type: ignore[no-any-return]
    members = resolve_group(group, "reduce_scatter_v")
    if type(x) is not Tensor and is_list(x):
        return _C.reduce_scatter_v_list(x, sizes, dim, name, out, members, async_op)  # type: ignore[arg-type]
    return _C.reduce_scatter_v(x, sizes, dim, name, out, members, async_op)  # type: ignore[arg-type, misc]


@overload
def all_to_all_v(
    x: Tensor,
    send_sizes: SizesLike,
    dim: int = 0,
    *,
    recv_sizes: SizesLike | None = None,
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> Ragged: ...
@overload
def all_to_all_v(
    x: Tensor,
    send_sizes: SizesLike,
    dim: int = 0,
    *,
    recv_sizes: SizesLike | None = None,
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[Ragged]: ...
@overload
def all_to_all_v(
    x: Sequence[Tensor],
    send_sizes: Sequence[SizesLike],
    dim: int = 0,
    *,
    recv_sizes: Sequence[SizesLike] | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> RaggedList: ...
@overload
def all_to_all_v(
    x: Sequence[Tensor],
    send_sizes: Sequence[SizesLike],
    dim: int = 0,
    *,
    recv_sizes: Sequence[SizesLike] | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[RaggedList]: ...
def all_to_all_v(
    x: Tensor | Sequence[Tensor],
    send_sizes: SizesLike | Sequence[SizesLike],
    dim: int = 0,
    *,
    recv_sizes: SizesLike | Sequence[SizesLike] | None = None,
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Ragged | RaggedList | Handle[Ragged] | Handle[RaggedList]:
    """Sends block r of `x` along `dim` to rank r, and gives what arrived, in rank order.

    The adjoint is the same exchange with the sizes swapped.

    Args:
        x: The blocks for all ranks, one after the other. A list of tensors moves in one exchange.
        send_sizes: How many rows go to each rank. For a list, an entry per tensor.
        dim: The dim that is cut and joined.
        recv_sizes: How many rows come from each rank, if known: then no sizes are exchanged.
        out: Where the result is written; not for lists.
        group: The ranks that take part; None is the default group. Also a name, a DeviceMesh of one dim, or (mesh,
            dim).
        async_op: Return a handle at once; its `wait()` returns what the plain call would.

    Returns:
        What arrived, and a tuple with the size of every rank's block. For a list, two lists.

    Raises:
        ValueError: An argument is invalid, or ranks disagree. Where ranks compared the call, all of them raise it, and
            the group stays usable.
        DistBackendError: A rank was lost or did not answer within the group's timeout; the group is over.

    Example:
        >>> arrived, counts = sw.all_to_all_v(torch.arange(3), send_sizes=[3])
        >>> arrived, counts
        (tensor([0, 1, 2]), (3,))
    """
    if is_compiling():
        return _traced.all_to_all_v(x, send_sizes, dim, recv_sizes, out, group, async_op)  # type: ignore[no-any-return]
    members = resolve_group(group, "all_to_all_v")
    if type(x) is not Tensor and is_list(x):
        return _C.all_to_all_v_list(x, send_sizes, dim, recv_sizes, out, members, async_op)  # type: ignore[arg-type]
    return _C.all_to_all_v(x, send_sizes, dim, recv_sizes, out, members, async_op)  # type: ignore[arg-type, misc]


@overload
def all_reduce(
    x: Tensor,
    *,
    op: OpLike = "sum",
    grad: GradLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> Tensor: ...
@overload
def all_reduce(
    x: Tensor,
    *,
    op: OpLike = "sum",
    grad: GradLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[Tensor]: ...
def all_reduce(
    x: Tensor,
    *,
    op: OpLike = "sum",
    grad: GradLike = "sum",
    out: Tensor | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Tensor | Handle[Tensor]:
    """All ranks' tensors, which have one shape, combined by `op`.

    Addends are taken in rank order, so the bits are the same on every rank and in every call.

    Args:
        x: This rank's addend. It is not changed.
        op: "sum", "avg" (or "mean"), "min", "max", "product", or a ReduceOp.
        grad: What backward does. "sum" adds the gradients of all ranks, which is the adjoint; "mean" divides that by
            the ranks; "local" keeps this rank's own. min, max and product have no gradient.
        out: Where the result is written.
        group: The ranks that take part; None is the default group. Also a name, a DeviceMesh of one dim, or (mesh,
            dim).
        async_op: Return a handle at once; its `wait()` returns what the plain call would.

    Returns:
        The combination, on every rank.

    Raises:
        ValueError: An argument is invalid, or ranks disagree. Where ranks compared the call, all of them raise it, and
            the group stays usable.
        DistBackendError: A rank was lost or did not answer within the group's timeout; the group is over.

    Example:
        >>> sw.all_reduce(torch.tensor([1.0, 2.0]), op="max")
        tensor([1., 2.])
    """
    if is_compiling():
        return _traced.all_reduce(x, _op_name(op), grad, out, group, async_op)  # type: ignore[no-any-return]
    return _C.all_reduce(x, _op_name(op), grad, out, resolve_group(group, "all_reduce"), async_op)


def gather_sizes(x: Tensor, dim: int = 0, *, group: GroupLike = None) -> tuple[int, ...]:
    """Every rank's size along `dim`. The other dims may differ between the ranks.

    Args:
        x: This rank's tensor.
        dim: The dim that is measured.
        group: The ranks that take part; None is the default group. Also a name, a DeviceMesh of one dim, or (mesh,
            dim).

    Returns:
        A size per rank.

    Raises:
        ValueError: An argument is invalid, or ranks disagree. Where ranks compared the call, all of them raise it, and
            the group stays usable.
        DistBackendError: A rank was lost or did not answer within the group's timeout; the group is over.

    Example:
        >>> sw.gather_sizes(torch.ones(3, 2), dim=1)
        (2,)
    """
    if is_compiling():
        return _traced.gather_sizes(x, dim, group)
    return _C.gather_sizes(x, dim, resolve_group(group, "gather_sizes"))


def split_by_rank(parts: Sequence[Tensor] | Tensor, *, group: GroupLike = None) -> Ragged:
    """This rank's part of something that has one part per rank. Communicates nothing.

    Args:
        parts: A sequence with one tensor per rank, or a tensor with the ranks along dim 0.
        group: The ranks that take part; None is the default group.

    Returns:
        This rank's part, and the number of rows of every rank's part.

    Raises:
        ValueError: The number of parts is not the number of ranks.

    Example:
        >>> sw.split_by_rank([torch.ones(3)])
        (tensor([1., 1., 1.]), (3,))
    """
    if is_compiling():
        return _traced.split_by_rank(parts, group)
    return _C.split_by_rank(parts, resolve_group(group, "split_by_rank"))


def is_list(x: object) -> bool:
    """Whether x is meant as a list of tensors. What is neither that nor a tensor is refused as no tensor."""
    return isinstance(x, list | tuple) and (not x or any(isinstance(item, Tensor) for item in x))


_OP_NAMES = ("sum", "avg", "min", "max", "product")


def _op_name(op: OpLike) -> str:
    if isinstance(op, str):
        return op
    if not isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType):
        return repr(op)
    for name in _OP_NAMES:
        if op == getattr(dist.ReduceOp.RedOpType, name.upper()):
            return name
    return str(op)
