"""The functions that the replaced files define alike. Sizes are LongTensors on the input's device."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

import shardway as sw
from shardway._collectives import GradLike
from shardway._groups import warn_if_alone

Sizes = Tensor | Sequence[int]

_spans_ranks: WeakKeyDictionary[dist.ProcessGroup, bool] = WeakKeyDictionary()


def is_distributed() -> bool:
    """Whether the default group has several ranks: remembered for as long as that group lives."""
    world = dist.group.WORLD
    if world is None:
        return False
    known = _spans_ranks.get(world)
    if known is None:
        known = _spans_ranks[world] = world.size() > 1
    return known


def alone(x: Tensor, op: str) -> tuple[Tensor, None]:
    """What a lone rank gets where it is no error."""
    if dist.group.WORLD is None and not is_compiling():
        warn_if_alone(op)
    return x, None


def long_tensor(sizes: Sizes, device: torch.device) -> Tensor:
    return sizes if isinstance(sizes, Tensor) else torch.tensor(sizes, device=device, dtype=torch.long)


def gather(x: Tensor, dim: int, sizes: Sizes | None, grad: GradLike) -> tuple[Tensor, Tensor]:
    gathered, found = sw.all_gather_v(x, dim, sizes=sizes, grad=grad)
    return gathered, long_tensor(found if sizes is None else sizes, x.device)


def all_gather_variable_dim(t: Tensor, dim: int = 0, sizes: Sizes | None = None) -> tuple[Tensor, Tensor]:
    """The tensors of all ranks, one after the other along `dim`, and their sizes. No gradient passes."""
    return gather(t.detach(), dim, sizes, "local")


def all_gather_same_dim(t: Tensor) -> list[Tensor]:
    """The tensors of all ranks, which have one shape (none but equal shapes may be given). No gradient passes."""
    ranks = dist.get_world_size() if is_distributed() else 1
    gathered, _ = sw.all_gather_v(t.detach().unsqueeze(0), sizes=(1,) * ranks, grad="local")
    return list(gathered.unbind())


def gather_sizes(t: Tensor, *, dim: int) -> Tensor:
    """Every rank's size along `dim`."""
    return long_tensor(sw.gather_sizes(t, dim), t.device)


def pad_dim_to(t: Tensor, length: int, dim: int = 0) -> Tensor:
    """`t` with zeros behind it along `dim`, `length` long there."""
    missing = length - t.shape[dim]
    inner_dims = t.ndim - 1 - dim % t.ndim
    return F.pad(t, [0, 0] * inner_dims + [0, missing])
