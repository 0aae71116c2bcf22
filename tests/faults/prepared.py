"""A call that is ready to be made by one rank, with the memory that it may and may not write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.faults.axes import RANKS

PATTERN = 0xA5
GUARD_BYTES = 4096  # on both sides; a multiple of every alignment
SMALL, MEDIUM, LARGE = "small", "medium", "large"


@dataclass(frozen=True)
class Place:
    """Which rank makes the call, how large it is, and what the rank says otherwise than the others."""

    rank: int
    scale: str = SMALL
    twist: str = ""
    root: int = 0
    wants_gradient: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.twist == "dtype" else torch.float32

    @property
    def wider(self) -> int:
        """How much the tensor exceeds its size in a dim that the ranks must agree on."""
        return 1 if self.twist == "shape" else 0

    @property
    def dim(self) -> int:
        return {"dim": 1, "exception": 9}.get(self.twist, 0)

    @property
    def named_root(self) -> int:
        return (self.root + 2) % RANKS if self.twist == "root" else self.root

    @property
    def reduction(self) -> str:
        return "max" if self.twist == "reduce" else "sum"


class Room:
    """A destination within guard bytes, all filled with a pattern."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, value: Tensor | None = None) -> None:
        wanted = torch.empty(shape, dtype=dtype, device="meta")
        bytes_ = wanted.numel() * wanted.element_size()
        self._raw = torch.full((bytes_ + 2 * GUARD_BYTES,), PATTERN, dtype=torch.uint8)
        self.view = self._raw[GUARD_BYTES : GUARD_BYTES + bytes_].view(dtype).view(shape)
        if value is not None:
            self.view.copy_(value)
        self._before = self.view.clone().view(torch.uint8)

    @property
    def is_untouched(self) -> bool:
        return torch.equal(self.view.view(torch.uint8), self._before)

    @property
    def are_guards_whole(self) -> bool:
        edges = (self._raw[:GUARD_BYTES], self._raw[-GUARD_BYTES:])
        return all(bool(edge.eq(PATTERN).all()) for edge in edges)


@dataclass
class Prepared:
    start: Callable[[bool], Any]  # with async_op: gives what it gives
    tensors: Callable[[Any], list[Tensor]]  # of what the call gave
    wanted: Callable[[], list[Tensor]]
    inputs: list[Tensor]
    rooms: list[Room] = field(default_factory=list)
    wanted_gradients: Callable[[], list[Tensor]] = list  # of the inputs
    weights: Callable[[list[Tensor]], list[Tensor]] = lambda found: [torch.ones_like(y) for y in found]
    finish: Callable[[Any], Any] = lambda handle: handle.wait()

    def __post_init__(self) -> None:
        self._before = [x.detach().clone() for x in self.inputs]

    @property
    def are_inputs_unchanged(self) -> bool:
        return all(torch.equal(x.detach(), old) for x, old in zip(self.inputs, self._before, strict=True))

    def backward(self, result: Any) -> None:
        found = self.tensors(result)
        roots = [(y, w) for y, w in zip(found, self.weights(found), strict=True) if y.requires_grad]
        torch.autograd.backward([y for y, _ in roots], [w for _, w in roots])

    def raise_in_backward(self, result: Any) -> None:
        """An exception of the rank's own, before its gradient reaches the collective. Nothing of the graph is under way
        then: what is, torch keeps until the thread's next backward, with the group."""

        def refuse(_: Tensor) -> Tensor:
            raise RuntimeError("a hook of this rank failed")

        total = torch.stack([y.sum() for y in self.tensors(result)]).sum()
        total.register_hook(refuse)
        total.backward()

    @property
    def has_gradients(self) -> bool:
        return any(x.grad is not None for x in self.inputs)

    def is_right(self, result: Any) -> bool:
        found, wanted = self.tensors(result), self.wanted()
        return len(found) == len(wanted) and all(
            y.shape == w.shape and torch.equal(y.detach(), w.to(y.dtype)) for y, w in zip(found, wanted, strict=True)
        )

    def are_gradients_right(self) -> bool:
        pairs = zip(self.inputs, self.wanted_gradients(), strict=True)
        return all(x.grad is not None and torch.equal(x.grad, w) for x, w in pairs if x.requires_grad and x.numel())


def values(rank: int, shape: Sequence[int], place: Place | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """What a rank brings: whole numbers, so that sums are exact in any order; other ranks know them."""
    kind = dtype or (place.dtype if place else torch.float32)
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count, dtype=torch.int32).remainder_(97) + 100 * rank).to(kind).view(list(shape))


def leaf(x: Tensor, place: Place) -> Tensor:
    return x.requires_grad_() if place.wants_gradient and x.is_floating_point() else x


def ragged(unit: int) -> tuple[int, int, int]:
    return (unit, 2 * unit, 3 * unit)


def constant_parts(sizes: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Rank r's rows are r + 1: what a backward finds whose weights are the ranks' numbers."""
    return torch.cat([torch.full((rows, *shape), float(r + 1)) for r, rows in enumerate(sizes)])
