"""The collectives with one rank that gives or takes. Every rank of the group calls them in the same order.

`src` and `dst` are global ranks, as in torch.distributed; `group_src` and `group_dst` are ranks of the group instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from torch import Tensor
from torch.compiler import is_compiling

from shardway import _C, _traced
from shardway._C import Handle
from shardway._collectives import Ragged, RaggedList, SizesLike, is_list
from shardway._groups import GroupLike, global_ranks, resolve_group


@overload
def broadcast(
    x: Tensor,
    src: int = 0,
    *,
    group_src: int | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> Tensor: ...
@overload
def broadcast(
    x: Tensor, src: int = 0, *, group_src: int | None = None, group: GroupLike = None, async_op: Literal[True]
) -> Handle[Tensor]: ...
def broadcast(
    x: Tensor, src: int = 0, *, group_src: int | None = None, group: GroupLike = None, async_op: bool = False
) -> Tensor | Handle[Tensor]:
    """The tensor of rank `src`, on every rank, as a new tensor.

    Backward adds all ranks' gradients up on `src`; the others get zeros.

    Args:
        x: On `src` the tensor; on the others one of the same shape and dtype, whose values do not matter.
        src: The global rank that has the tensor.
        group_src: The same as a rank of the group, instead of `src`.
        group: The ranks that take part; None is the default group. Also a name, a DeviceMesh of one dim, or (mesh,
            dim).
        async_op: Return a handle at once; its `wait()` returns what the plain call would.

    Returns:
        The tensor.

    Raises:
        ValueError: An argument is invalid, or ranks disagree. Where ranks compared the call, all of them raise it, and
            the group stays usable.
        DistBackendError: A rank was lost or did not answer within the group's timeout; the group is over.

    Example:
        >>> sw.broadcast(torch.tensor([1, 2]), src=0)
        tensor([1, 2])
    """
    if is_compiling():
        return _traced.broadcast(x, src, group_src, group, async_op)  # type: ignore[no-any-return]
    members = resolve_group(group, "broadcast")
    return _C.broadcast(x, src, group_src, members, global_ranks(members), async_op)


@overload
def gather_v(
    x: Tensor,
    dst: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | None = None,
    group_dst: int | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> Ragged: ...
@overload
def gather_v(
    x: Tensor,
    dst: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | None = None,
    group_dst: int | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[Ragged]: ...
@overload
def gather_v(
    x: Sequence[Tensor],
    dst: int = 0,
    dim: int = 0,
    *,
    sizes: Sequence[SizesLike] | None = None,
    group_dst: int | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> RaggedList: ...
@overload
def gather_v(
    x: Sequence[Tensor],
    dst: int = 0,
    dim: int = 0,
    *,
    sizes: Sequence[SizesLike] | None = None,
    group_dst: int | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[RaggedList]: ...
def gather_v(
    x: Tensor | Sequence[Tensor],
    dst: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | Sequence[SizesLike] | None = None,
    group_dst: int | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Ragged | RaggedList | Handle[Ragged] | Handle[RaggedList]:
    """On rank `dst` the tensors of all ranks, one after the other along `dim`; on the others a tensor without rows.

    Backward is scatter_v of the gradient that `dst` has; every rank runs it.

    Args:
        x: This rank's tensor, of any length along `dim`. A list of tensors is gathered in one exchange.
        dst: The global rank that gets them.
        dim: The dim along which the tensors are joined.
        sizes: Every rank's length along `dim`, if known. For a list, an entry per tensor.
        group_dst: The same as `dst`, as a rank of the group, instead of it.
        group: The ranks that take part; None is the default group. Also a name, a DeviceMesh of one dim, or (mesh,
            dim).
        async_op: Return a handle at once; its `wait()` returns what the plain call would.

    Returns:
        The gathered tensor, and on every rank a tuple with the size of every rank. For a list, two lists.

    Raises:
        ValueError: An argument is invalid, or ranks disagree. Where ranks compared the call, all of them raise it, and
            the group stays usable.
        DistBackendError: A rank was lost or did not answer within the group's timeout; the group is over.

    Example:
        >>> gathered, sizes = sw.gather_v(torch.ones(3, 2), dst=0)
        >>> sizes
        (3,)
    """
    if is_compiling():
        return _traced.gather_v(x, dst, group_dst, dim, sizes, group, async_op)  # type: ignore[no-any-return]
    members = resolve_group(group, "gather_v")
    ranks = global_ranks(members)
    if type(x) is not Tensor and is_list(x):
        return _C.gather_v_list(x, dst, group_dst, dim, sizes, members, ranks, async_op)  # type: ignore[arg-type]
    return _C.gather_v(x, dst, group_dst, dim, sizes, members, ranks, async_op)  # type: ignore[arg-type]


@overload
def scatter_v(
    x: Tensor | None,
    src: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | None = None,
    group_src: int | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> Tensor: ...
@overload
def scatter_v(
    x: Tensor | None,
    src: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | None = None,
    group_src: int | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[Tensor]: ...
@overload
def scatter_v(
    x: Sequence[Tensor],
    src: int = 0,
    dim: int = 0,
    *,
    sizes: Sequence[SizesLike] | None = None,
    group_src: int | None = None,
    group: GroupLike = None,
    async_op: Literal[False] = False,
) -> list[Tensor]: ...
@overload
def scatter_v(
    x: Sequence[Tensor],
    src: int = 0,
    dim: int = 0,
    *,
    sizes: Sequence[SizesLike] | None = None,
    group_src: int | None = None,
    group: GroupLike = None,
    async_op: Literal[True],
) -> Handle[list[Tensor]]: ...
def scatter_v(
    x: Tensor | Sequence[Tensor] | None,
    src: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | Sequence[SizesLike] | None = None,
    group_src: int | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Tensor | list[Tensor] | Handle[Tensor] | Handle[list[Tensor]]:
    """This rank's part, along `dim`, of the tensor of rank `src`.

    Backward is gather_v of the gradients to `src`; every rank runs it. To differentiate that gradient again, the others
    pass an `x` without rows that requires grad.

    Args:
        x: On `src` the tensor, or a list of tensors, which is scattered in one exchange. The others pass None, or an
            empty list; `src` tells them shape, dtype and sizes.
        src: The global rank that has the tensor.
        dim: The dim that is cut.
        sizes: On `src`, the length of every rank's part; without it the tensor is cut as torch.chunk cuts.
        group_src: The same as `src`, as a rank of the group, instead of it.
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
        >>> sw.scatter_v(torch.arange(3), src=0, sizes=[3])
        tensor([0, 1, 2])
    """
    if is_compiling():
        return _traced.scatter_v(x, src, group_src, dim, sizes, group, async_op)  # type: ignore[no-any-return]
    members = resolve_group(group, "scatter_v")
    ranks = global_ranks(members)
    if type(x) is not Tensor and is_list(x):
        return _C.scatter_v_list(x, src, group_src, dim, sizes, members, ranks, async_op)  # type: ignore[arg-type]
    return _C.scatter_v(x, src, group_src, dim, sizes, members, ranks, async_op)  # type: ignore[arg-type]
