"""DTensor inside and outside of `sw.use_for_dtensor`, for tests that compare the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch.distributed.device_mesh import DeviceMesh

import shardway as sw

Result = TypeVar("Result")


def counts() -> tuple[int, int]:
    """Redistributes that were moved, and those that were left to torch."""
    found = sw.stats()["dtensor"]
    return found["moved"], sum(found["left_to_torch"].values())


def both_ways(run: Callable[[], Result]) -> tuple[Result, Result]:
    """What `run` gives without and within a block."""
    without = run()
    with sw.use_for_dtensor():
        return without, run()


def grid(*shape: int) -> DeviceMesh:
    return DeviceMesh("cpu", torch.arange(torch.Size(shape).numel()).view(shape))
