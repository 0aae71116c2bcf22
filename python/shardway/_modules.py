"""The collectives as modules. They hold no parameters."""

from __future__ import annotations

from torch import Tensor, nn

from shardway._collectives import (
    OpLike,
    Ragged,
    SizesLike,
    all_gather_v,
    all_reduce,
    all_to_all_v,
    reduce_scatter_v,
)
from shardway._groups import GroupLike
from shardway._rooted import broadcast, gather_v, scatter_v


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


class ReduceScatter(nn.Module):
    """reduce_scatter_v as a module: `ReduceScatter(dim)(x, sizes)` gives this rank's part."""

    def __init__(self, dim: int = 0, *, op: OpLike = "sum", group: GroupLike = None) -> None:
        super().__init__()
        self.dim = dim
        self.op = op
        self.group = group

    def forward(self, x: Tensor, sizes: SizesLike | None = None) -> Tensor:
        return reduce_scatter_v(x, sizes, self.dim, op=self.op, group=self.group)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, op={self.op!r}"


class AllToAll(nn.Module):
    """all_to_all_v as a module: `AllToAll(dim)(x, send_sizes)` gives what arrived and the size of each block."""

    def __init__(self, dim: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.dim = dim
        self.group = group

    def forward(self, x: Tensor, send_sizes: SizesLike, recv_sizes: SizesLike | None = None) -> Ragged:
        return all_to_all_v(x, send_sizes, self.dim, recv_sizes=recv_sizes, group=self.group)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class AllReduce(nn.Module):
    """all_reduce as a module: `AllReduce()(x)` gives the sum of all ranks' tensors."""

    def __init__(self, *, op: OpLike = "sum", grad: str = "sum", group: GroupLike = None) -> None:
        super().__init__()
        self.op = op
        self.grad = grad
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        return all_reduce(x, op=self.op, grad=self.grad, group=self.group)

    def extra_repr(self) -> str:
        return f"op={self.op!r}, grad={self.grad!r}"


class Broadcast(nn.Module):
    """broadcast as a module: `Broadcast(src)(x)` gives the tensor of rank `src`."""

    def __init__(self, src: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.src = src
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        return broadcast(x, self.src, group=self.group)

    def extra_repr(self) -> str:
        return f"src={self.src}"


class Gather(nn.Module):
    """gather_v as a module: `Gather(dst, dim)(x)` gives the gathered tensor, on `dst`, and the sizes."""

    def __init__(self, dst: int = 0, dim: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.dst = dst
        self.dim = dim
        self.group = group

    def forward(self, x: Tensor, sizes: SizesLike | None = None) -> Ragged:
        return gather_v(x, self.dst, self.dim, sizes=sizes, group=self.group)

    def extra_repr(self) -> str:
        return f"dst={self.dst}, dim={self.dim}"


class Scatter(nn.Module):
    """scatter_v as a module: `Scatter(src, dim)(x, sizes)` gives this rank's part of what `src` has."""

    def __init__(self, src: int = 0, dim: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.src = src
        self.dim = dim
        self.group = group

    def forward(self, x: Tensor | None, sizes: SizesLike | None = None) -> Tensor:
        return scatter_v(x, self.src, self.dim, sizes=sizes, group=self.group)

    def extra_repr(self) -> str:
        return f"src={self.src}, dim={self.dim}"
