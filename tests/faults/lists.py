"""The collectives of lists: two tensors in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

import shardway as sw
from tests.faults.axes import Traits
from tests.faults.calls import MOVES, Make, gather, gather_to_root, reduce_scatter, scatter, swap, traits_of, weights_of
from tests.faults.prepared import Place, Prepared, ragged


def _listed(one: Make, of_list: Callable[[list[Prepared], Place, bool], Any]) -> Make:
    """Two tensors in one call: one that every rank brings alike, and one of the single call, which may be twisted."""

    def make(place: Place) -> Prepared:
        plain = Place(place.rank, "small", "", place.root, place.wants_gradient)
        parts = [one(plain), one(place)]

        def tensors(result: Any) -> list[Tensor]:
            return list(result[0]) if isinstance(result, tuple) else list(result)

        return Prepared(
            start=lambda is_async: of_list(parts, place, is_async),
            tensors=tensors,
            wanted=lambda: [y for part in parts for y in part.wanted()],
            inputs=[x for part in parts for x in part.inputs],
            weights=weights_of(place),
            wanted_gradients=lambda: [g for part in parts for g in part.wanted_gradients()],
        )

    return make


def _inputs(parts: list[Prepared]) -> list[Tensor]:
    return [part.inputs[0] for part in parts]


def _gather_list(parts: list[Prepared], place: Place, is_async: bool) -> Any:
    return sw.all_gather_v(_inputs(parts), place.dim, async_op=is_async)


def _gather_list_to_root(parts: list[Prepared], place: Place, is_async: bool) -> Any:
    return sw.gather_v(_inputs(parts), place.named_root, place.dim, async_op=is_async)


def _reduce_scatter_list(parts: list[Prepared], place: Place, is_async: bool) -> Any:
    return sw.reduce_scatter_v(_inputs(parts), None, place.dim, op=place.reduction, async_op=is_async)


def _swap_list(parts: list[Prepared], place: Place, is_async: bool) -> Any:
    sizes = [ragged(x.shape[0] // 6) for x in _inputs(parts)]
    return sw.all_to_all_v(_inputs(parts), sizes, place.dim, async_op=is_async)


def _scatter_list(parts: list[Prepared], place: Place, is_async: bool) -> Any:
    is_root = place.rank == place.named_root
    xs = _inputs(parts) if is_root or place.wants_gradient else []
    sizes = [ragged(x.shape[0] // 6) for x in xs] if is_root else None
    return sw.scatter_v(xs, place.named_root, place.dim, sizes=sizes, async_op=is_async)


LISTS: dict[str, tuple[Traits, Make]] = {
    "list all_gather_v": (traits_of("list", *MOVES), _listed(lambda p: gather(p, False), _gather_list)),
    "list reduce_scatter_v": (
        traits_of("list", *MOVES, "reduce"),
        _listed(lambda p: reduce_scatter(p, False), _reduce_scatter_list),
    ),
    "list all_to_all_v": (traits_of("list", *MOVES), _listed(lambda p: swap(p, False), _swap_list)),
    "list gather_v": (
        traits_of("list", *MOVES, "root"),
        _listed(lambda p: gather_to_root(p, False), _gather_list_to_root),
    ),
    "list scatter_v": (traits_of("list", "dim", "root"), _listed(scatter, _scatter_list)),
}
