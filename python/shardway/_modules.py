"""The collectives as modules."""

from __future__ import annotations

from torch import Tensor, nn

from shardway._collectives import Ragged, SizesLike, all_gather_v
from shardway._groups import GroupLike


class AllGather(nn.Module):
    """all_gather_v as a module: `AllGather(dim)(x)` gives the gathered tensor and the sizes."""

    def __init__(self, dim: int = 0, *, grad: str = "sum", group: GroupLike = None) -> None:
        super().__init__()
        self.dim = dim
        self.grad = grad
        self.group = group

    def forward(self, x: Tensor, sizes: SizesLike | None = None) -> Ragged:
        return all_gather_v(x, self.dim, sizes=sizes, grad=self.grad, group=self.group)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, grad={self.grad!r}"
