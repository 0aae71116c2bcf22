"""In place of `spear_tts_pytorch.distributed`: gradients are this rank's own slice; a lone rank gets `(x, None)`."""

from __future__ import annotations

from torch import Tensor
from torch.autograd import Function

from shardway.compat._gathers import Sizes, all_gather_variable_dim, alone, gather, is_distributed, pad_dim_to

__all__ = ["AllGather", "all_gather", "all_gather_variable_dim", "pad_dim_to"]


def all_gather(x: Tensor, dim: int, sizes: Sizes | None) -> tuple[Tensor, Tensor | None]:
    """The gathered tensor and every rank's size."""
    return gather(x, dim, sizes, "local") if is_distributed() else alone(x, "all_gather")


class AllGather(Function):
    """`AllGather.apply(x, dim, sizes)` is all_gather: a plain function, which torch.compile can look into."""

    apply = staticmethod(all_gather)
