"""Destinations that are functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shardway._C import Layout

DEFAULT_MAX_BYTES = 512 << 20


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
