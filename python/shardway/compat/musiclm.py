"""In place of `musiclm_pytorch.distributed`: gradients are this rank's own slice or, if so asked, that of the sum."""

from __future__ import annotations

from torch import Tensor, nn
from torch.autograd import Function

from shardway.compat._gathers import (
    Sizes,
    all_gather_same_dim,
    all_gather_variable_dim,
    alone,
    gather,
    is_distributed,
    pad_dim_to,
)

__all__ = ["AllGather", "AllGatherFunction", "all_gather_same_dim", "all_gather_variable_dim", "pad_dim_to"]


def _gathered(x: Tensor, dim: int, sizes: Sizes | None, all_reduce_grads: bool) -> tuple[Tensor, Tensor]:
    return gather(x, dim, sizes, "sum" if all_reduce_grads else "local")


class AllGatherFunction(Function):
    """`AllGatherFunction.apply(x, dim, sizes, all_reduce_grads)`: the gathered tensor and every rank's size."""

    @classmethod
    def apply(cls, x: Tensor, dim: int, sizes: Sizes | None, all_reduce_grads: bool) -> tuple[Tensor, Tensor]:
        return _gathered(x, dim, sizes, all_reduce_grads)


class AllGather(nn.Module):
    """Gathers along `dim`; a lone rank gets `(x, None)`."""

    def __init__(self, dim: int, *, all_reduce_grads: bool = False) -> None:
        super().__init__()
        self.dim = dim
        self.all_reduce_grads = all_reduce_grads

    @property
    def is_distributed(self) -> bool:
        return is_distributed()

    def forward(self, x: Tensor, sizes: Sizes | None = None) -> tuple[Tensor, Tensor | None]:
        if not self.is_distributed:
            return alone(x, "AllGather")
        return _gathered(x, self.dim, sizes, self.all_reduce_grads)  # the Function cannot be compiled
