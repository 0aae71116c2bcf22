"""In place of `st_moe_pytorch.distributed`: gradients are this rank's own slice."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor, nn
from torch.autograd import Function

import shardway as sw
from shardway.compat._gathers import (
    Sizes,
    all_gather_same_dim,
    all_gather_variable_dim,
    gather,
    gather_sizes,
    long_tensor,
    pad_dim_to,
)

__all__ = [
    "AllGather",
    "AllGatherFunction",
    "all_gather_same_dim",
    "all_gather_variable_dim",
    "default",
    "divisible_by",
    "exists",
    "gather_sizes",
    "has_only_one_value",
    "pad_dim_to",
    "split_by_rank",
]

T = TypeVar("T")


def exists(val: object) -> bool:
    return val is not None


def default(val: T | None, d: T) -> T:
    return d if val is None else val


def divisible_by(num: int, den: int) -> bool:
    return num % den == 0


def has_only_one_value(t: Tensor) -> Tensor:
    """Whether all entries are the same: a bool tensor with no dims."""
    return t.eq(t[0]).all()


class AllGatherFunction(Function):
    """`AllGatherFunction.apply(x, dim, sizes)`: the gathered tensor and every rank's size."""

    @classmethod
    def apply(cls, x: Tensor, dim: int, sizes: Sizes | None) -> tuple[Tensor, Tensor]:
        return gather(x, dim, sizes, "local")


class AllGather(nn.Module):
    """Gathers along `dim`."""

    def __init__(self, *, dim: int = 0) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor, sizes: Sizes | None = None) -> tuple[Tensor, Tensor]:
        return gather(x, self.dim, sizes, "local")  # the Function cannot be compiled


def split_by_rank(x: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """This rank's part of one tensor per rank, or of a tensor with the ranks along dim 0, and the size of each part."""
    part, sizes = sw.split_by_rank(x)
    return part, long_tensor(sizes, part.device)
