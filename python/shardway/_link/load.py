"""Destinations that are functions: what comes for them, in which portions, and who is told if one fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from shardway._C import Layout

DEFAULT_MAX_BYTES = 512 << 20

Pieces: TypeAlias = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # by name, as they come


@dataclass(frozen=True)
class Load:
    """A destination of `subscribe` that is a function: to quantise, to prepack, an engine's `load_weights`.

    In `receive` each rank's piece of the tensor is put together in a buffer and handed over by
    `function(name, tensor)`, name by name in the order in which the role declares them (the order of its first rank
    that names a tensor). The tensor is of the link and is valid during the call only: what must stay has to be
    copied. A rank outside the layout's mesh is handed nothing.

    If the function raises, `receive` raises that error on this rank after the version has come. The role's other ranks
    and the publisher raise a DistBackendError that quotes it, and `target.incomplete` says so until the next version.

    Attributes:
        layout: Which piece each rank of the role gets. Its mesh has ranks of this role.
        dtype: Of the tensor that the function is given. Where it is not the publisher's, `subscribe` needs cast=True.
        function: Called in the thread that calls `receive`, without gradients. What it returns is ignored.
        max_bytes: Of the buffer. Pieces of a rank that do not fit into it together come one portion after the other.
            One piece that does not fit is an error of `subscribe`. A dtype that changes needs the piece twice. Where
            Loads that come together differ in it, the least counts.

    Example:
        >>> layout = sw.Layout((4, 4), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
        >>> load = sw.Load(layout, torch.bfloat16, lambda name, piece: print(name, piece.shape))
    """

    layout: Layout
    dtype: torch.dtype
    function: Callable[[str, Tensor], object]
    max_bytes: int = DEFAULT_MAX_BYTES

    def check(self) -> None:
        """A ValueError says what is wrong. It is found by `subscribe`, which can tell all ranks."""
        if not isinstance(self.layout, Layout):
            raise ValueError(f"the layout of its Load is a {type(self.layout).__name__}, not a Layout")
        if not isinstance(self.dtype, torch.dtype):
            raise ValueError(f"the dtype of its Load is a {type(self.dtype).__name__}, not a torch.dtype")
        if not callable(self.function):
            raise ValueError(f"the function of its Load is a {type(self.function).__name__}, which cannot be called")
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise ValueError(f"max_bytes={self.max_bytes!r} of its Load is not a positive number of bytes")


class Loader:
    """Hands what has come to the functions of a rank's Loads, in one buffer that all portions use. After a failure it
    only takes part: the other ranks still move the rest of the version."""

    def __init__(self, loads: Mapping[str, Load]) -> None:
        self._loads = loads
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._cast = torch.empty(0, dtype=torch.uint8)
        self.failure: Exception | None = None
        self.failed_name = ""

    def make_room(self, portions: Iterable[Pieces]) -> None:
        """For the largest portion, and for the largest piece whose dtype changes."""
        for pieces in portions:
            self._buffer = _at_least(self._buffer, bytes_of(pieces))
            for name, (shape, dtype) in pieces.items():
                wanted = self._loads[name].dtype
                if dtype != wanted:
                    self._cast = _at_least(self._cast, math.prod(shape) * wanted.itemsize)

    def begin(self) -> None:
        """Another version."""
        self.failure = None

    def places(self, pieces: Pieces) -> dict[str, Tensor]:
        """Where in the buffer pieces that come together lie. Those with large elements come first, so that all are
        aligned with nothing between them."""
        found, begin = {}, 0
        for name, (shape, dtype) in sorted(pieces.items(), key=lambda item: -item[1][1].itemsize):
            end = begin + math.prod(shape) * dtype.itemsize
            found[name] = self._buffer[begin:end].view(dtype).view(shape)
            begin = end
        return found

    def take(self, came: Mapping[str, Tensor]) -> None:
        for name, tensor in came.items():
            if self.failure is not None:
                return
            load = self._loads[name]
            try:
                with torch.no_grad():
                    load.function(name, self._as_wanted(tensor, load.dtype))
            except Exception as error:
                self.failure, self.failed_name = error, name

    def _as_wanted(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if tensor.dtype == dtype:
            return tensor
        count = tensor.numel() * dtype.itemsize
        return self._cast[:count].view(dtype).view(tensor.shape).copy_(tensor)


def bytes_of(pieces: Pieces) -> int:
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in pieces.values())


def _at_least(buffer: Tensor, count: int) -> Tensor:
    return buffer if buffer.numel() >= count else torch.empty(count, dtype=torch.uint8)
