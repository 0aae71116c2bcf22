"""The collectives as torch.compile and torch.export see them: operators of torch.ops.shardway, on sizes that may be
symbols. What the functions promise holds, but for what docs/compile.md says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from shardway._groups import GroupLike, resolve_group
from shardway._operators import keep_order_in_inductor

_ops = torch.ops.shardway


class Place(NamedTuple):
    """This rank's place in a group."""

    group: str
    rank: int
    ranks: int
    global_ranks: tuple[int, ...]


class Done:
    """Stands for a `Handle` in a compiled function, where a call with `async_op=True` is over when it returns."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def wait(self) -> Any:
        return self.result

    def is_completed(self) -> bool:
        return True


def _place(group: GroupLike, op: str) -> Place | None:
    """None where nothing is distributed. Found once per trace."""
    members = resolve_group(group, op)
    if members is None or members.size() == 1:
        return None
    keep_order_in_inductor()
    return Place(members.group_name, members.rank(), members.size(), tuple(dist.get_process_group_ranks(members)))


# what torch.compiler.assume_constant_result sets, which would load the whole compiler at import
_place._dynamo_marked_constant = True  # type: ignore[attr-defined]


def all_gather_v(
    x: Tensor | Sequence[Tensor], dim: int, sizes: Any, grad: str, out: Tensor | None, group: GroupLike, async_op: bool
) -> Any:
    """A list is gathered tensor by tensor."""
    if not isinstance(x, Tensor):
        results = [all_gather_v(t, dim, s, grad, out, group, False) for t, s in _with_sizes(x, sizes)]
        return _handed_out(_two_lists(results), async_op)
    place = _place(group, "all_gather_v")
    own = _along(x, dim, "all_gather_v", place)
    if place is None:
        return _handed_out((_into(x, out), (own,)), async_op)
    known = _given("sizes", sizes, "all_gather_v", place)
    if known is None:
        known = _heard(_ops.all_gather_v_sizes(x, dim, grad, place.group), place.rank, own)
    gathered = _ops.all_gather_v(x, known, dim, grad, place.group)
    return _handed_out((_into(gathered, out), tuple(known)), async_op)


def reduce_scatter_v(
    x: Tensor | Sequence[Tensor], sizes: Any, dim: int, op: str, out: Tensor | None, group: GroupLike, async_op: bool
) -> Any:
    if not isinstance(x, Tensor):
        results = [reduce_scatter_v(t, s, dim, op, out, group, False) for t, s in _with_sizes(x, sizes)]
        return _handed_out(results, async_op)
    place = _place(group, "reduce_scatter_v")
    _along(x, dim, "reduce_scatter_v", place)
    if place is None:
        return _handed_out(_into(x, out), async_op)
    known = _given("sizes", sizes, "reduce_scatter_v", place)
    return _handed_out(_into(_ops.reduce_scatter_v(x, known, dim, op, place.group), out), async_op)


def all_to_all_v(
    x: Tensor | Sequence[Tensor],
    send_sizes: Any,
    dim: int,
    recv_sizes: Any,
    out: Tensor | None,
    group: GroupLike,
    async_op: bool,
) -> Any:
    if not isinstance(x, Tensor):
        results = [
            all_to_all_v(t, send_sizes[i], dim, s, out, group, False)
            for i, (t, s) in enumerate(_with_sizes(x, recv_sizes))
        ]
        return _handed_out(_two_lists(results), async_op)
    place = _place(group, "all_to_all_v")
    own = _along(x, dim, "all_to_all_v", place)
    if place is None:
        return _handed_out((_into(x, out), (own,)), async_op)
    send = _given("send_sizes", send_sizes, "all_to_all_v", place)
    if send is None:
        raise _refusal("all_to_all_v", "send_sizes is None: say how many rows go to each rank", place)
    recv = _given("recv_sizes", recv_sizes, "all_to_all_v", place)
    if recv is None:
        recv = _heard(_ops.all_to_all_v_sizes(x, send, dim, place.group), place.rank, send[place.rank])
    return _handed_out((_into(_ops.all_to_all_v(x, send, recv, dim, place.group), out), tuple(recv)), async_op)


def all_reduce(x: Tensor, op: str, grad: str, out: Tensor | None, group: GroupLike, async_op: bool) -> Any:
    place = _place(group, "all_reduce")
    return _handed_out(_into(x if place is None else _ops.all_reduce(x, op, grad, place.group), out), async_op)


def broadcast(x: Tensor, src: int, group_src: int | None, group: GroupLike, async_op: bool) -> Any:
    place = _place(group, "broadcast")
    if place is None:
        return _handed_out(x, async_op)
    return _handed_out(_ops.broadcast(x, _root("src", src, group_src, "broadcast", place), place.group), async_op)


def gather_v(
    x: Tensor | Sequence[Tensor],
    dst: int,
    group_dst: int | None,
    dim: int,
    sizes: Any,
    group: GroupLike,
    async_op: bool,
) -> Any:
    if not isinstance(x, Tensor):
        results = [gather_v(t, dst, group_dst, dim, s, group, False) for t, s in _with_sizes(x, sizes)]
        return _handed_out(_two_lists(results), async_op)
    place = _place(group, "gather_v")
    own = _along(x, dim, "gather_v", place)
    if place is None:
        return _handed_out((x, (own,)), async_op)
    root = _root("dst", dst, group_dst, "gather_v", place)
    known = _given("sizes", sizes, "gather_v", place)
    if known is None:
        known = _heard(_ops.gather_v_sizes(x, root, dim, place.group), place.rank, own)
    return _handed_out((_ops.gather_v(x, known, root, dim, place.group), tuple(known)), async_op)


def scatter_v(
    x: Tensor | Sequence[Tensor] | None,
    src: int,
    group_src: int | None,
    dim: int,
    sizes: Any,
    group: GroupLike,
    async_op: bool,
) -> Any:
    if x is not None and not isinstance(x, Tensor):
        if len(x) == 0:
            raise ValueError(
                "scatter_v: x is an empty list, which says nothing of shapes and dtypes: in a compiled function pass "
                "tensors without rows"
            )
        results = [scatter_v(t, src, group_src, dim, s, group, False) for t, s in _with_sizes(x, sizes)]
        return _handed_out(results, async_op)
    place = _place(group, "scatter_v")
    if place is None:
        return _handed_out(x, async_op)
    root = _root("src", src, group_src, "scatter_v", place)
    if x is None:
        problem = "x is None, which says nothing of shape and dtype: in a compiled function pass a tensor without rows"
        raise _refusal("scatter_v", problem, place)
    _along(x, dim, "scatter_v", place)
    given = _given("sizes", sizes, "scatter_v", place) if place.rank == root else None
    rows = x if place.rank == root else x.narrow(dim, 0, 0)
    known = _heard(_ops.scatter_v_sizes(rows, given, root, dim, place.group))
    return _handed_out(_ops.scatter_v(rows, known, root, dim, place.group), async_op)


def gather_sizes(x: Tensor, dim: int, group: GroupLike) -> tuple[int, ...]:
    place = _place(group, "gather_sizes")
    own = _along(x, dim, "gather_sizes", place)
    if place is None:
        return (own,)
    return tuple(_heard(_ops.gather_sizes(x, dim, place.group), place.rank, own))


def split_by_rank(parts: Sequence[Tensor] | Tensor, group: GroupLike) -> tuple[Tensor, tuple[int, ...]]:
    place = _place(group, "split_by_rank")
    rank, ranks = (0, 1) if place is None else (place.rank, place.ranks)
    if len(parts) != ranks:
        raise ValueError(f"split_by_rank: there are {len(parts)} parts for {ranks} ranks (rank {rank})")
    return parts[rank], tuple(part.shape[0] for part in parts)


def _two_lists(results: list[tuple[Tensor, tuple[int, ...]]]) -> tuple[list[Tensor], list[tuple[int, ...]]]:
    return [tensor for tensor, _ in results], [sizes for _, sizes in results]


def _with_sizes(xs: Sequence[Tensor], sizes: Any) -> list[tuple[Tensor, Any]]:
    return [(x, None if sizes is None else sizes[i]) for i, x in enumerate(xs)]


def _heard(told: Tensor, rank: int | None = None, own: int = 0) -> list[int]:
    """Sizes that the ranks told one another, of which this rank's is known before."""
    sizes = told.tolist()
    for size in sizes:
        torch._check(size >= 0)  # type: ignore[no-untyped-call]
    if rank is not None:
        sizes[rank] = own
    return sizes


def _given(name: str, sizes: Any, op: str, place: Place) -> list[int] | None:
    if sizes is None:
        return None
    known = _heard(sizes) if isinstance(sizes, Tensor) else list(sizes)
    if len(known) != place.ranks:
        raise _refusal(op, f"{name} has {len(known)} entries for {place.ranks} ranks", place)
    return known


def _along(x: Tensor, dim: int, op: str, place: Place | None) -> int:
    """The extent along `dim`, which is one of the tensor's."""
    if not -x.dim() <= dim < x.dim():
        where = 0 if place is None else place.rank
        raise ValueError(f"{op}: dim={dim} is out of range for a {x.dim()}-d tensor (rank {where})")
    return x.shape[dim]


def _root(name: str, number: int, in_group: int | None, op: str, place: Place) -> int:
    if in_group is not None:
        return in_group
    if number not in place.global_ranks:
        raise _refusal(op, f"{name}={number} is not in the group, whose ranks are {place.global_ranks}", place)
    return place.global_ranks.index(number)


def _into(result: Tensor, out: Tensor | None) -> Tensor:
    """The caller's `out` holds the values; what has a gradient is the result."""
    if out is None:
        return result
    out.copy_(result.detach())
    return result if result.requires_grad else out


def _handed_out(result: Any, async_op: bool) -> Any:
    return Done(result) if async_op else result


def _refusal(op: str, problem: str, place: Place) -> ValueError:
    return ValueError(f"{op}: {problem} (rank {place.rank})")
