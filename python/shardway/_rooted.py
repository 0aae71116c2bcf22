"""The collectives with one rank that gives or takes. Every rank of the group calls them in the same order.

`src` and `dst` are global ranks, as in torch.distributed; `group_src` and `group_dst` are ranks of the group instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

from torch import Tensor
from torch.compiler import is_compiling

from shardway import _C, _traced
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
) -> _C.TensorHandle: ...
def broadcast(
    x: Tensor, src: int = 0, *, group_src: int | None = None, group: GroupLike = None, async_op: bool = False
) -> Tensor | _C.TensorHandle:
    """The tensor of rank `src`, on every rank, as a new tensor. The others bring one of the same shape and dtype.

    Backward adds all ranks' gradients up on `src`; the others get zeros.
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
) -> _C.RaggedHandle: ...
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
) -> _C.RaggedListHandle: ...
def gather_v(
    x: Tensor | Sequence[Tensor],
    dst: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | Sequence[SizesLike] | None = None,
    group_dst: int | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Ragged | RaggedList | _C.RaggedHandle | _C.RaggedListHandle:
    """On rank `dst` the tensors of all ranks, one after the other along `dim`, on the others one without rows; and on
    every rank the size of each.

    Backward is scatter_v of the gradient that `dst` has; every rank runs it.

    A list of tensors is gathered in one exchange, and gives the list of results and the list of their sizes.
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
) -> _C.TensorHandle: ...
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
) -> _C.TensorListHandle: ...
def scatter_v(
    x: Tensor | Sequence[Tensor] | None,
    src: int = 0,
    dim: int = 0,
    *,
    sizes: SizesLike | Sequence[SizesLike] | None = None,
    group_src: int | None = None,
    group: GroupLike = None,
    async_op: bool = False,
) -> Tensor | list[Tensor] | _C.TensorHandle | _C.TensorListHandle:
    """This rank's part, along `dim`, of the tensor of rank `src`, which is cut by `sizes`, or as torch.chunk cuts.

    `x` and `sizes` matter on `src` alone, which tells the others shape, dtype and sizes: they pass None. Backward is
    gather_v of the gradients to `src`; every rank runs it. To differentiate that gradient again, the others pass an `x`
    without rows that requires grad.

    A list of tensors is scattered in one exchange, and gives a list; the others pass an empty list, or one of such
    tensors without rows.
    """
    if is_compiling():
        return _traced.scatter_v(x, src, group_src, dim, sizes, group, async_op)  # type: ignore[no-any-return]
    members = resolve_group(group, "scatter_v")
    ranks = global_ranks(members)
    if type(x) is not Tensor and is_list(x):
        return _C.scatter_v_list(x, src, group_src, dim, sizes, members, ranks, async_op)  # type: ignore[arg-type]
    return _C.scatter_v(x, src, group_src, dim, sizes, members, ranks, async_op)  # type: ignore[arg-type]
