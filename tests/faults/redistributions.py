"""Redistributions: of one tensor, of addends, of a list, of a DTensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import shardway as sw
from tests.faults.axes import RANKS, Traits
from tests.faults.prepared import LARGE, Place, Prepared, leaf, ragged, values

Make = Callable[[Place], Prepared]


def _unit(place: Place, large: int) -> int:
    return large if place.scale == LARGE else 2


def _whole(unit: int) -> Tensor:
    return torch.cat([values(r, (rows, 6 * unit)) for r, rows in enumerate(ragged(unit))])


def _columns(place: Place, unit: int) -> Tensor:
    """The gradient of a rank's rows: the columns of rank r were weighted with r + 1."""
    rows = ragged(unit)[place.rank]
    return torch.cat([torch.full((rows, 2 * unit), float(r + 1)) for r in range(RANKS)], 1)


def _rows_to_columns(place: Place) -> Prepared:
    unit = _unit(place, 350)
    sizes = ragged(unit)
    shape = (6 * unit, 6 * unit + place.wider)
    x = leaf(values(place.rank, (sizes[place.rank], shape[1]), place), place)
    layout = sw.Layout(shape, place.dtype, sw.Mesh((RANKS,)), [sw.Shard(0, sizes)])
    target = {"layouts": [sw.Replicate()], "exception": [sw.Shard(7)]}.get(place.twist, [sw.Shard(1)])
    return Prepared(
        start=lambda is_async: sw.redistribute(sw.MeshTensor(x, layout), target, async_op=is_async),
        tensors=lambda result: [result.local],
        wanted=lambda: [_whole(unit)[:, 2 * unit * place.rank : 2 * unit * (place.rank + 1)]],
        inputs=[x],
        weights=lambda found: [torch.full_like(y, float(place.rank + 1)) for y in found],
        wanted_gradients=lambda: [_columns(place, unit)],
    )


def _addends_to_whole(place: Place) -> Prepared:
    unit = _unit(place, 350)
    shape = (6 * unit, 6 * unit + place.wider)
    x = leaf(values(place.rank, shape, place), place)
    addends = sw.Partial("max" if place.twist == "reduce" else "sum")
    layout = sw.Layout(shape, place.dtype, sw.Mesh((RANKS,)), [addends])
    target = {"layouts": [sw.Shard(0)], "exception": [sw.Shard(7)]}.get(place.twist, [sw.Replicate()])
    return Prepared(
        start=lambda is_async: sw.redistribute(sw.MeshTensor(x, layout), target, async_op=is_async),
        tensors=lambda result: [result.local],
        wanted=lambda: [torch.stack([values(r, (6 * unit, 6 * unit)) for r in range(RANKS)]).sum(0)],
        inputs=[x],
        wanted_gradients=lambda: [torch.ones_like(x)],
    )


def _list(place: Place) -> Prepared:
    plain = Place(place.rank, "small", "", place.root, place.wants_gradient)
    units = (_unit(plain, 0), _unit(place, 350))
    places = (plain, place)
    xs, layouts = [], []
    for one, unit in zip(places, units, strict=True):
        sizes, shape = ragged(unit), (6 * unit, 6 * unit + one.wider)
        x = leaf(values(one.rank, (sizes[one.rank], shape[1]), one), one)
        layout = sw.Layout(shape, one.dtype, sw.Mesh((RANKS,)), [sw.Shard(0, sizes)])
        xs.append(x)
        layouts.append(layout)
    last = {"layouts": [sw.Replicate()], "exception": [sw.Shard(7)]}.get(place.twist, [sw.Shard(1)])
    targets = [[sw.Shard(1)], last]
    mine = [slice(2 * unit * place.rank, 2 * unit * (place.rank + 1)) for unit in units]
    return Prepared(
        start=lambda is_async: sw.redistribute(
            [sw.MeshTensor(x, layout) for x, layout in zip(xs, layouts, strict=True)], targets, async_op=is_async
        ),
        tensors=lambda result: [one.local for one in result],
        wanted=lambda: [_whole(unit)[:, columns] for unit, columns in zip(units, mine, strict=True)],
        inputs=xs,
        weights=lambda found: [torch.full_like(y, float(place.rank + 1)) for y in found],
        wanted_gradients=lambda: [_columns(place, unit) for unit in units],
    )


_meshes: dict[int, DeviceMesh] = {}


def _mesh() -> DeviceMesh:
    """Of the default group, which it does not communicate for."""
    if id(dist.group.WORLD) not in _meshes:
        _meshes.clear()
        _meshes[id(dist.group.WORLD)] = DeviceMesh("cpu", list(range(RANKS)))
    return _meshes[id(dist.group.WORLD)]


def _dtensor(place: Place) -> Prepared:
    unit = _unit(place, 700)
    shape = (RANKS * unit, RANKS * unit + place.wider)
    x = leaf(values(place.rank, (unit, shape[1]), place), place)
    source = DTensor.from_local(x, _mesh(), [Shard(0)], run_check=False, shape=torch.Size(shape), stride=(shape[1], 1))
    target = {"layouts": [Replicate()], "exception": [Shard(7)]}.get(place.twist, [Shard(1)])
    columns = slice(unit * place.rank, unit * (place.rank + 1))
    return Prepared(
        start=lambda is_async: sw.redistribute(source, target, async_op=is_async),
        tensors=lambda result: [result.to_local()],
        wanted=lambda: [torch.cat([values(r, (unit, RANKS * unit)) for r in range(RANKS)])[:, columns]],
        inputs=[x],
        weights=lambda found: [torch.full_like(y, float(place.rank + 1)) for y in found],
        wanted_gradients=lambda: [torch.cat([torch.full((unit, unit), float(r + 1)) for r in range(RANKS)], 1)],
    )


def forget_meshes() -> None:
    """They hold the group."""
    _meshes.clear()


_SAID = frozenset(("dtype", "shape", "layouts"))
REDISTRIBUTIONS: dict[str, tuple[Traits, Make]] = {
    "redistribute": (Traits("redistribute", _SAID), _rows_to_columns),
    "redistribute sum": (Traits("redistribute", _SAID | {"reduce"}, is_backward_local=True), _addends_to_whole),
    "redistribute list": (Traits("redistribute", _SAID), _list),
    "redistribute DTensor": (Traits("redistribute", _SAID, keeps_group=True, is_backward_forward=True), _dtensor),
}
