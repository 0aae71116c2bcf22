"""The collectives of shardway: how a rank calls each, and what it must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import shardway as sw
from tests.faults.axes import RANKS, Traits
from tests.faults.prepared import LARGE, MEDIUM, Place, Prepared, Room, constant_parts, leaf, ragged, values

EACH = range(RANKS)
Make = Callable[[Place], Prepared]


def _unit(place: Place, large: int) -> int:
    return {LARGE: large, MEDIUM: 24}.get(place.scale, 2)


def weights_of(place: Place) -> Callable[[list[Tensor]], list[Tensor]]:
    return lambda found: [torch.full_like(y, float(place.rank + 1)) for y in found]


def gather(place: Place, is_given: bool) -> Prepared:
    """Tensors of unit, 2 unit and 3 unit rows; as many columns as the faulty rank has rows, for it may name dim 1."""
    unit = _unit(place, 640)
    sizes, columns = ragged(unit), 2 * unit
    x = leaf(values(place.rank, (sizes[place.rank], columns + place.wider), place), place)
    said = (sizes[0] + 1, *sizes[1:]) if place.twist == "splits" else sizes
    known: dict[str, Any] = {"sizes": said} if is_given else {}
    rows = sum(said)
    rooms = [] if place.wants_gradient else [Room((rows, columns + place.wider), place.dtype)]
    if rooms and place.dim == 1:
        rooms = [Room((2 * unit, rows), place.dtype)]
    return Prepared(
        start=lambda is_async: sw.all_gather_v(
            x, place.dim, out=rooms[0].view if rooms else None, async_op=is_async, **known
        ),
        tensors=lambda result: [result[0]],
        wanted=lambda: [torch.cat([values(r, (sizes[r], columns)) for r in EACH])],
        inputs=[x],
        rooms=rooms,
        weights=weights_of(place),
        wanted_gradients=lambda: [torch.full_like(x, 6.0)],
    )


def gather_to_root(place: Place, is_given: bool) -> Prepared:
    unit = _unit(place, 640)
    sizes, columns = ragged(unit), 2 * unit
    x = leaf(values(place.rank, (sizes[place.rank], columns + place.wider), place), place)
    said = (sizes[0] + 1, *sizes[1:]) if place.twist == "splits" else sizes
    known: dict[str, Any] = {"sizes": said} if is_given else {}
    whole = lambda: torch.cat([values(r, (sizes[r], columns)) for r in EACH])  # noqa: E731
    return Prepared(
        start=lambda is_async: sw.gather_v(x, place.named_root, place.dim, async_op=is_async, **known),
        tensors=lambda result: [result[0]],
        wanted=lambda: [whole() if place.rank == place.root else torch.empty(0, columns)],
        inputs=[x],
        weights=weights_of(place),
        wanted_gradients=lambda: [torch.full_like(x, float(place.root + 1))],
    )


def reduce_scatter(place: Place, is_given: bool) -> Prepared:
    unit = _unit(place, 350)
    sizes = ragged(unit) if is_given else (2 * unit,) * RANKS
    said = (sizes[1], sizes[0], sizes[2]) if place.twist == "splits" else sizes
    shape = (6 * unit, 6 * unit + place.wider)
    x = leaf(values(place.rank, shape, place), place)
    rows = said[place.rank]
    out_shape = (rows, shape[1]) if place.dim != 1 else (shape[0], rows)
    rooms = [] if place.wants_gradient else [Room(out_shape, place.dtype)]

    def wanted() -> list[Tensor]:
        whole = torch.stack([values(r, (6 * unit, 6 * unit)) for r in EACH]).sum(0)
        return [whole.split(sizes)[place.rank]]

    return Prepared(
        start=lambda is_async: sw.reduce_scatter_v(
            x,
            said if is_given else None,
            place.dim,
            op=place.reduction,
            out=rooms[0].view if rooms else None,
            async_op=is_async,
        ),
        tensors=lambda result: [result],
        wanted=wanted,
        inputs=[x],
        rooms=rooms,
        weights=weights_of(place),
        wanted_gradients=lambda: [constant_parts(sizes, (6 * unit,))],
    )


def swap(place: Place, is_given: bool) -> Prepared:
    """Every rank sends unit, 2 unit and 3 unit rows."""
    unit = _unit(place, 350)
    sizes = ragged(unit)
    mine = sizes[place.rank]
    arriving = (mine + 1 if place.twist == "splits" else mine, mine, mine)
    shape = (6 * unit, 6 * unit + place.wider)
    x = leaf(values(place.rank, shape, place), place)
    rows = sum(arriving)
    rooms = (
        [] if place.wants_gradient else [Room((rows, shape[1]) if place.dim != 1 else (shape[0], rows), place.dtype)]
    )
    known: dict[str, Any] = {"recv_sizes": arriving} if is_given else {}
    return Prepared(
        start=lambda is_async: sw.all_to_all_v(
            x, sizes, place.dim, out=rooms[0].view if rooms else None, async_op=is_async, **known
        ),
        tensors=lambda result: [result[0]],
        wanted=lambda: [torch.cat([values(r, (6 * unit, 6 * unit)).split(sizes)[place.rank] for r in EACH])],
        inputs=[x],
        rooms=rooms,
        weights=weights_of(place),
        wanted_gradients=lambda: [constant_parts(sizes, (6 * unit,))],
    )


def scatter(place: Place) -> Prepared:
    unit = _unit(place, 350)
    sizes = ragged(unit)
    is_root = place.rank == place.named_root
    rows = 6 * unit if is_root else 0
    x = leaf(values(place.rank, (rows, 6 * unit)), place)
    given = x if is_root or place.wants_gradient else None
    return Prepared(
        start=lambda is_async: sw.scatter_v(
            given, place.named_root, place.dim, sizes=sizes if is_root else None, async_op=is_async
        ),
        tensors=lambda result: [result],
        wanted=lambda: [values(place.root, (6 * unit, 6 * unit)).split(sizes)[place.rank]],
        inputs=[x],
        weights=weights_of(place),
        wanted_gradients=lambda: [constant_parts(sizes, (6 * unit,))[:rows]],
    )


def _all_reduce(place: Place) -> Prepared:
    shape = (_unit(place, 1100), 4096 + place.wider) if place.scale == LARGE else (_unit(place, 0), 8 + place.wider)
    x = leaf(values(place.rank, shape, place), place)
    rooms = [] if place.wants_gradient else [Room(shape, place.dtype)]
    grad = "average" if place.twist == "exception" else "sum"
    return Prepared(
        start=lambda is_async: sw.all_reduce(
            x, op=place.reduction, grad=grad, out=rooms[0].view if rooms else None, async_op=is_async
        ),
        tensors=lambda result: [result],
        wanted=lambda: [torch.stack([values(r, shape) for r in EACH]).sum(0)],
        inputs=[x],
        rooms=rooms,
        weights=weights_of(place),
        wanted_gradients=lambda: [torch.full_like(x, 6.0)],
    )


def _broadcast(place: Place) -> Prepared:
    shape = (_unit(place, 1100), 4096 + place.wider) if place.scale == LARGE else (_unit(place, 0), 8 + place.wider)
    x = leaf(values(place.rank, shape, place), place)
    given = x.to_sparse() if place.twist == "exception" else x
    return Prepared(
        start=lambda is_async: sw.broadcast(given, place.named_root, async_op=is_async),
        tensors=lambda result: [result],
        wanted=lambda: [values(place.root, shape)],
        inputs=[x],
        weights=weights_of(place),
        wanted_gradients=lambda: [torch.full_like(x, 6.0 if place.rank == place.root else 0.0)],
    )


def _sizes(place: Place) -> Prepared:
    unit = _unit(place, 640)
    sizes = ragged(unit)
    x = values(place.rank, (sizes[place.rank], 2 * unit), place)
    return Prepared(
        start=lambda _: sw.gather_sizes(x, place.dim),
        tensors=lambda result: [torch.tensor(result)],
        wanted=lambda: [torch.tensor(sizes)],
        inputs=[x],
    )


def traits_of(kind: str, *differs_in: str, **others: bool) -> Traits:
    return Traits(kind, frozenset(differs_in), has_root="root" in differs_in, **others)


MOVES = ("dtype", "shape", "dim")
CALLS: dict[str, tuple[Traits, Make]] = {
    "all_gather_v": (traits_of("collective", *MOVES), lambda p: gather(p, False)),
    "all_gather_v given": (traits_of("collective", *MOVES, "splits", is_given=True), lambda p: gather(p, True)),
    "reduce_scatter_v": (traits_of("collective", *MOVES, "reduce"), lambda p: reduce_scatter(p, False)),
    "reduce_scatter_v given": (
        traits_of("collective", *MOVES, "reduce", "splits", is_given=True),
        lambda p: reduce_scatter(p, True),
    ),
    "all_to_all_v": (traits_of("collective", *MOVES), lambda p: swap(p, False)),
    "all_to_all_v given": (traits_of("collective", *MOVES, "splits", is_given=True), lambda p: swap(p, True)),
    "gather_v": (traits_of("collective", *MOVES, "root"), lambda p: gather_to_root(p, False)),
    "gather_v given": (
        traits_of("collective", *MOVES, "root", "splits", is_given=True),
        lambda p: gather_to_root(p, True),
    ),
    "scatter_v": (traits_of("collective", "dim", "root"), scatter),
    "all_reduce": (traits_of("collective", "dtype", "shape", "reduce"), _all_reduce),
    "broadcast": (traits_of("collective", "dtype", "shape", "root"), _broadcast),
    "gather_sizes": (traits_of("collective", has_gradient=False, has_async=False), _sizes),
}
