"""The algorithm that shardway replaces: pad to the longest, gather, concatenate, mask the padding out.

The torch calls, and their order, are those of the files that people copy from project to project; only the two
einops reshapes are plain views here. Tests compare with it and benchmarks measure it, so nothing in it is made
slower or faster. `sizes`, where given, is a LongTensor with one entry per rank.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function


def pad_dim_to(t: Tensor, length: int, dim: int = 0) -> Tensor:
    """Zeros behind `t` along `dim`, so that it is `length` long there."""
    missing = length - t.shape[dim]
    dims_behind = -dim - 1 if dim < 0 else t.ndim - dim - 1
    return F.pad(t, (*((0, 0) * dims_behind), 0, missing))


def exchange_sizes(t: Tensor, dim: int) -> Tensor:
    size = torch.tensor(t.shape[dim], device=t.device, dtype=torch.long)
    sizes = [torch.empty_like(size, device=t.device, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    return torch.stack(sizes)


def gather_equal(t: Tensor) -> list[Tensor]:
    parts = [torch.empty_like(t, device=t.device, dtype=t.dtype) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, t)
    return parts


def gather_padded(t: Tensor, dim: int, sizes: Tensor) -> Tensor:
    longest = int(sizes.amax().item())
    padded = pad_dim_to(t, longest, dim=dim)
    parts = [torch.empty(padded.shape, device=t.device, dtype=padded.dtype) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, padded)
    joined = torch.cat(parts, dim=dim)

    position = torch.arange(longest, device=t.device)
    mask = position.view(1, -1) < sizes.view(-1, 1)
    mask = mask.view(-1)
    position = torch.arange(mask.shape[-1], device=t.device)
    return joined.index_select(dim, position[mask])


def pad_gather_mask(t: Tensor, dim: int = 0, sizes: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """As mirasol and spear-tts do it: padded and masked whatever the sizes are."""
    if sizes is None:
        sizes = exchange_sizes(t, dim)
    return gather_padded(t, dim, sizes), sizes


def pad_gather_mask_unless_equal(t: Tensor, dim: int = 0, sizes: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """As musiclm does it: a plain gather where all sizes are the same."""
    if sizes is None:
        sizes = exchange_sizes(t, dim)
    if torch.unique(sizes).numel() == 1:
        return torch.cat(gather_equal(t), dim=dim), sizes
    return gather_padded(t, dim, sizes), sizes


class LocalSliceGather(Function):
    """`apply(x, dim, sizes)`; backward keeps this rank's slice of its own gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, sizes: Tensor | None) -> tuple[Tensor, Tensor]:
        gathered, sizes = pad_gather_mask(x, dim=dim, sizes=sizes)
        ctx.sizes = sizes.tolist()
        ctx.dim = dim
        return gathered, sizes

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None]:
        return grad.split(ctx.sizes, dim=ctx.dim)[dist.get_rank()], None, None


class AllReduceGather(Function):
    """`apply(x, dim, sizes)`; backward sums the gradients of all ranks, in place, and keeps this rank's slice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, sizes: Tensor | None) -> tuple[Tensor, Tensor]:
        gathered, sizes = pad_gather_mask_unless_equal(x, dim=dim, sizes=sizes)
        ctx.dim = dim
        ctx.sizes = sizes.tolist()
        return gathered, sizes

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None]:
        dist.all_reduce(grad)
        return grad.split(ctx.sizes, dim=ctx.dim)[dist.get_rank()], None, None
