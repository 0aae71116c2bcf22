"""Collectives of tensors whose size differs per rank: differentiable, on any torch.distributed group, no padding."""

import torch

from shardway._built_for import TORCH_VERSION

if torch.__version__.split("+")[0] != TORCH_VERSION.split("+")[0]:
    raise ImportError(
        f"this shardway was built for torch {TORCH_VERSION}, but torch {torch.__version__} is installed: "
        f"install that torch, or build shardway again with pip install --no-build-isolation"
    )

from shardway._C import RaggedHandle, TensorHandle, __version__
from shardway._collectives import (
    all_gather_v,
    all_to_all_v,
    gather_sizes,
    reduce_scatter_v,
    split_by_rank,
)
from shardway._memory import empty_cache, memory_stats
from shardway._modules import AllGather

__all__ = [
    "AllGather",
    "RaggedHandle",
    "TensorHandle",
    "__version__",
    "all_gather_v",
    "all_to_all_v",
    "empty_cache",
    "gather_sizes",
    "memory_stats",
    "reduce_scatter_v",
    "split_by_rank",
]
