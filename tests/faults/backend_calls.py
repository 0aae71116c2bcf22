"""torch.distributed's calls on the backend "shardway": how a rank makes each, and what it must get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.faults.axes import RANKS, Traits
from tests.faults.prepared import LARGE, Place, Prepared, Room, values

EACH = range(RANKS)
Make = Callable[[Place], Prepared]


def _count(place: Place) -> int:
    """Elements of one rank's part; three of them are 16 MiB."""
    return 1_500_000 if place.scale == LARGE else 4


def _op(place: Place) -> Any:
    if _is_bad(place):
        return dist.ReduceOp.BAND  # of floats
    return dist.ReduceOp.MAX if place.twist == "reduce" else dist.ReduceOp.SUM


def _is_bad(place: Place) -> bool:
    """Whether the rank gives what no call takes, and torch hands on: the backend refuses it and tells the others."""
    return place.twist == "exception"


def _root(place: Place) -> int:
    return 7 if _is_bad(place) else place.named_root


def _listed(tensors: list[Tensor], place: Place) -> list[Tensor]:
    return tensors[:-1] if _is_bad(place) else tensors


def _prepared(
    start: Callable[[bool], Any], rooms: Sequence[Room], wanted: Callable[[], list[Tensor]], *inputs: Tensor
) -> Prepared:
    return Prepared(
        start=start,
        tensors=lambda _: [room.view for room in rooms],
        wanted=wanted,
        inputs=list(inputs),
        rooms=list(rooms),
    )


def _in_place(place: Place, call: Callable[[Tensor, bool], Any], wanted: Callable[[list[Tensor]], Tensor]) -> Prepared:
    shape = (RANKS * _count(place) + place.wider,)
    room = Room(shape, place.dtype, values(place.rank, shape, place))
    return _prepared(
        lambda is_async: call(room.view, is_async), [room], lambda: [wanted([values(r, shape) for r in EACH])]
    )


def _all_reduce(place: Place) -> Prepared:
    return _in_place(
        place,
        lambda x, is_async: dist.all_reduce(x, _op(place), async_op=is_async),
        lambda xs: torch.stack(xs).sum(0),
    )


def _broadcast(place: Place) -> Prepared:
    return _in_place(
        place,
        lambda x, is_async: dist.broadcast(x, _root(place), async_op=is_async),
        lambda xs: xs[place.root],
    )


def _reduce(place: Place) -> Prepared:
    """What the others find in their tensors is not said; ours leaves them as they are."""
    return _in_place(
        place,
        lambda x, is_async: dist.reduce(x, place.named_root, _op(place), async_op=is_async),
        lambda xs: torch.stack(xs).sum(0) if place.rank == place.root else xs[place.rank],
    )


def _all_gather(place: Place) -> Prepared:
    shape = (_count(place) + place.wider,)
    x = values(place.rank, shape, place)
    rooms = [Room(shape, place.dtype) for _ in EACH]
    return _prepared(
        lambda is_async: dist.all_gather(_listed([room.view for room in rooms], place), x, async_op=is_async),
        rooms,
        lambda: [values(r, shape) for r in EACH],
        x,
    )


def _all_gather_into_tensor(place: Place) -> Prepared:
    shape = (_count(place) + place.wider,)
    x = values(place.rank, shape, place)
    room = Room((RANKS * shape[0] + (1 if _is_bad(place) else 0),), place.dtype)
    return _prepared(
        lambda is_async: dist.all_gather_into_tensor(room.view, x, async_op=is_async),
        [room],
        lambda: [torch.cat([values(r, shape) for r in EACH])],
        x,
    )


def _gather(place: Place) -> Prepared:
    shape = (_count(place) + place.wider,)
    x = values(place.rank, shape, place)
    is_root = place.rank == _root(place)
    rooms = [Room(shape, place.dtype) for _ in EACH] if is_root else []
    return _prepared(
        lambda is_async: dist.gather(
            x, [room.view for room in rooms] if is_root else None, _root(place), async_op=is_async
        ),
        rooms,
        lambda: [values(r, shape) for r in EACH] if place.rank == place.root else [],
        x,
    )


def _scatter(place: Place) -> Prepared:
    shape = (_count(place) + place.wider,)
    is_root = place.rank == _root(place)
    xs = [values(place.root + 10 * r, shape, place) for r in EACH] if is_root else []
    room = Room(shape, place.dtype)
    return _prepared(
        lambda is_async: dist.scatter(room.view, xs if is_root else None, _root(place), async_op=is_async),
        [room],
        lambda: [values(place.root + 10 * place.rank, shape)],
        *xs,
    )


def _reduce_scatter(place: Place) -> Prepared:
    shape = (_count(place) + place.wider,)
    xs = [values(place.rank + 10 * r, shape, place) for r in EACH]
    room = Room(shape, place.dtype)
    return _prepared(
        lambda is_async: dist.reduce_scatter(room.view, _listed(xs, place), _op(place), async_op=is_async),
        [room],
        lambda: [torch.stack([values(r + 10 * place.rank, shape) for r in EACH]).sum(0)],
        *xs,
    )


def _reduce_scatter_tensor(place: Place) -> Prepared:
    count = _count(place) + place.wider
    x = values(place.rank, (RANKS * count,), place)
    room = Room((count,), place.dtype)
    return _prepared(
        lambda is_async: dist.reduce_scatter_tensor(room.view, x, _op(place), async_op=is_async),
        [room],
        lambda: [torch.stack([values(r, x.shape) for r in EACH]).sum(0).chunk(RANKS)[place.rank]],
        x,
    )


def _all_to_all_single(place: Place) -> Prepared:
    count = _count(place)
    x = values(place.rank, (RANKS * count,), place)
    taken = [count + 1 if place.twist == "splits" else count, count, count]
    room = Room((sum(taken),), place.dtype)
    given = [count, count, count + 1] if _is_bad(place) else [count] * RANKS
    return _prepared(
        lambda is_async: dist.all_to_all_single(room.view, x, taken, given, async_op=is_async),
        [room],
        lambda: [torch.cat([values(r, x.shape).chunk(RANKS)[place.rank] for r in EACH])],
        x,
    )


def _all_to_all(place: Place) -> Prepared:
    """Rank r gives r + 1 parts of a size to each, so that lists are of unequal sizes."""
    sizes = [_count(place) + r for r in EACH]
    xs = [values(place.rank + 10 * r, (sizes[place.rank] + place.wider,), place) for r in EACH]
    rooms = [Room((sizes[r] + (place.wider if r == place.rank else 0),), place.dtype) for r in EACH]
    return _prepared(
        lambda is_async: dist.all_to_all([room.view for room in rooms], _listed(xs, place), async_op=is_async),
        rooms,
        lambda: [values(r + 10 * place.rank, (sizes[r],)) for r in EACH],
        *xs,
    )


def _barrier(place: Place) -> Prepared:
    return _prepared(lambda is_async: dist.barrier(async_op=is_async), [], list)


def _message(place: Place) -> Prepared:
    """Every rank sends to the next and receives from the one before."""
    shape = (RANKS * _count(place) + place.wider,)
    x = values(place.rank, shape, place)
    room = Room(shape, place.dtype)
    before, after = (place.rank - 1) % RANKS, (place.rank + 1) % RANKS

    def start(is_async: bool) -> Any:
        dist.send(x, 7 if _is_bad(place) else after)
        return dist.irecv(room.view, before) if is_async else dist.recv(room.view, before)

    return _prepared(start, [room], lambda: [values(before, shape)], x)


def _traits(*differs_in: str, **others: bool) -> Traits:
    return Traits("backend", frozenset(differs_in), has_gradient=False, has_root="root" in differs_in, **others)


BACKEND_CALLS: dict[str, tuple[Traits, Make]] = {
    "dist.all_reduce": (_traits("dtype", "shape", "reduce"), _all_reduce),
    "dist.broadcast": (_traits("dtype", "shape", "root"), _broadcast),
    "dist.reduce": (_traits("dtype", "shape", "root", "reduce"), _reduce),
    "dist.all_gather": (_traits("dtype", "shape"), _all_gather),
    "dist.all_gather_into_tensor": (_traits("dtype", "shape"), _all_gather_into_tensor),
    "dist.gather": (_traits("dtype", "shape", "root"), _gather),
    "dist.scatter": (_traits("dtype", "shape", "root"), _scatter),
    "dist.reduce_scatter": (_traits("dtype", "shape", "reduce"), _reduce_scatter),
    "dist.reduce_scatter_tensor": (_traits("dtype", "shape", "reduce"), _reduce_scatter_tensor),
    "dist.all_to_all_single": (_traits("dtype", "splits"), _all_to_all_single),
    "dist.all_to_all": (_traits("dtype", "shape"), _all_to_all),
    "dist.barrier": (_traits(takes_arguments=False), _barrier),
    "dist.send and recv": (_traits("dtype", "shape", is_message=True), _message),
}
