"""In place of `mirasol_pytorch.distributed`: gradients are this rank's own slice, and a lone rank is an error."""

from __future__ import annotations

from torch import Tensor
from torch.autograd import Function

from shardway.compat._gathers import Sizes, all_gather_variable_dim, gather, is_distributed, pad_dim_to

__all__ = ["AllGather", "all_gather", "all_gather_variable_dim", "get_is_distributed", "pad_dim_to"]


def get_is_distributed() -> bool:
    """Whether the default group has several ranks."""
    return is_distributed()


def all_gather(x: Tensor, dim: int, sizes: Sizes | None) -> tuple[Tensor, Tensor]:
    """The gathered tensor and every rank's size."""
    if not get_is_distributed():
        raise AssertionError("all_gather: the default group must have several ranks")
    return gather(x, dim, sizes, "local")


class AllGather(Function):
    """`AllGather.apply(x, dim, sizes)` is all_gather: a plain function, which torch.compile can look into."""

    apply = staticmethod(all_gather)
