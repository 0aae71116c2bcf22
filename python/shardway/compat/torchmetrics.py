"""In place of `torchmetrics.utilities.distributed`: for `Metric(dist_sync_fn=gather_all_tensors)`, without padding."""

from __future__ import annotations

import torch
from torch import Tensor

import shardway as sw
from shardway._groups import GroupLike, resolve_group

__all__ = ["gather_all_tensors"]


def gather_all_tensors(result: Tensor, group: GroupLike = None) -> list[Tensor]:
    """The tensors of all ranks, which may differ in every dim. A gradient reaches the one of this rank only."""
    found = resolve_group(group, "gather_all_tensors")
    if found is None:
        return [result]
    shape = torch.tensor(result.shape, device=result.device, dtype=torch.long)
    (shapes, elements), (dims, counts) = sw.all_gather_v([shape, result.detach().reshape(-1)], group=found)
    gathered = [
        part.view(of_rank.tolist()) for part, of_rank in zip(elements.split(counts), shapes.split(dims), strict=True)
    ]
    gathered[found.rank()] = result
    return gathered
