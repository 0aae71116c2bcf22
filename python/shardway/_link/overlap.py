"""Which destinations share memory. Views of one matrix may interleave without sharing an element."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class _Place:
    """Bytes from `begin` to `end` of a storage, of which the tensor may leave some out."""

    name: str
    tensor: Tensor
    begin: int
    end: int


def overlaps(tensors: Mapping[str, Tensor]) -> list[str]:
    """A line for each destination that shares an element with an earlier one, or with itself."""
    by_storage: dict[int, list[_Place]] = {}
    for name, tensor in tensors.items():
        if tensor.numel() > 0:
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(_place(name, tensor))
    return [line for places in by_storage.values() for some in _neighbours(places) for line in _overlaps_in(some)]


def _place(name: str, tensor: Tensor) -> _Place:
    each = tensor.element_size()
    begin = int(tensor.storage_offset()) * each
    last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return _Place(name, tensor, begin, begin + (last + 1) * each)


def _neighbours(places: list[_Place]) -> Iterator[list[_Place]]:
    """Those whose bytes from begin to end meet, in the order given."""
    number = {place.name: i for i, place in enumerate(places)}
    some: list[_Place] = []
    for place in sorted(places, key=lambda place: place.begin):
        if some and place.begin >= max(other.end for other in some):
            yield sorted(some, key=lambda place: number[place.name])
            some = []
        some.append(place)
    yield sorted(some, key=lambda place: number[place.name])


def _overlaps_in(places: list[_Place]) -> Iterable[str]:
    if len(places) == 1 and _is_simple(places[0].tensor):
        return
    first = min(place.begin for place in places)
    unit = math.gcd(*(place.tensor.element_size() for place in places))
    owner = torch.full(((max(place.end for place in places) - first) // unit,), -1, dtype=torch.int32)
    for number, place in enumerate(places):
        mine = _units_of(owner, place, first, unit)
        taken = int(mine.max())
        if taken >= 0:
            yield f"{place.name}: the destination overlaps that of {places[taken].name}"
        mine.fill_(number)
        if not _is_simple(place.tensor) and int((owner == number).sum()) < mine.numel():
            yield f"{place.name}: elements of the destination overlap one another"


def _is_simple(tensor: Tensor) -> bool:
    """Whether each dim strides over all that the smaller strides reach, so that no two elements are one."""
    reach = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1 and stride < reach:
            return False
        reach += stride * (length - 1)
    return True


def _units_of(owner: Tensor, place: _Place, first: int, unit: int) -> Tensor:
    """The places of `owner` that stand for the tensor's bytes."""
    each = place.tensor.element_size() // unit
    strides = [stride * each for stride in place.tensor.stride()]
    return owner.as_strided([*place.tensor.shape, each], [*strides, 1], (place.begin - first) // unit)
