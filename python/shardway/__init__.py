"""Collectives of tensors whose size differs per rank: differentiable, on any torch.distributed group, no padding."""

import os as _os
from contextlib import suppress as _suppress

import torch as _torch

from shardway._built_for import TORCH_VERSION as _TORCH_VERSION

if _torch.__version__.split(".")[:2] != _TORCH_VERSION.split(".")[:2]:
    raise ImportError(
        f"this shardway was built for torch {_TORCH_VERSION}, but torch {_torch.__version__} is installed: "
        f"build it again, pip install --no-build-isolation --force-reinstall --no-deps ., or install that torch"
    )

from shardway import _backend as _backend
from shardway._C import (
    Alternative,
    BackendOptions,
    Handle,
    Layout,
    Link,
    Mesh,
    MeshTensor,
    Partial,
    Placement,
    Plan,
    Relabelling,
    Replicate,
    Shard,
    Step,
    Topology,
    __version__,
)
from shardway._checkpoint import for_checkpoint
from shardway._collectives import (
    all_gather_v,
    all_reduce,
    all_to_all_v,
    gather_sizes,
    reduce_scatter_v,
    split_by_rank,
)
from shardway._link import JobLink, Load, ModelPlan, Source, Target, connect
from shardway._memory import empty, empty_cache, memory_stats, use_shared_allocator
from shardway._modules import AllGather, AllReduce, AllToAll, Broadcast, Gather, ReduceScatter, Scatter
from shardway._owners import Owners, to_owners
from shardway._plan import clear_plans, draw, plan, redistribute_cost
from shardway._prepare import PreparedCall, prepare
from shardway._redistribute import distribute, redistribute, use_for_dtensor
from shardway._rooted import broadcast, gather_v, scatter_v
from shardway._shrink import shrink
from shardway._stats import dump_last_calls, last_calls, stats
from shardway._trace import Trace, trace

# A file that was measured on another machine is told once. One that cannot be read is told when it is used.
if _os.environ.get("SHARDWAY_TOPOLOGY"):
    with _suppress(ValueError):
        Topology.default()

# For cmake -DCMAKE_PREFIX_PATH=…, as torch.utils.cmake_prefix_path is: find_package(shardway CONFIG) looks there.
cmake_prefix_path: str = _os.path.dirname(_os.path.abspath(__file__))

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "Alternative",
    "BackendOptions",
    "Broadcast",
    "Gather",
    "Handle",
    "JobLink",
    "Layout",
    "Link",
    "Load",
    "Mesh",
    "MeshTensor",
    "ModelPlan",
    "Owners",
    "Partial",
    "Placement",
    "Plan",
    "PreparedCall",
    "ReduceScatter",
    "Relabelling",
    "Replicate",
    "Scatter",
    "Shard",
    "Source",
    "Step",
    "Target",
    "Topology",
    "Trace",
    "__version__",
    "all_gather_v",
    "all_reduce",
    "all_to_all_v",
    "broadcast",
    "clear_plans",
    "cmake_prefix_path",
    "connect",
    "distribute",
    "draw",
    "dump_last_calls",
    "empty",
    "empty_cache",
    "for_checkpoint",
    "gather_sizes",
    "gather_v",
    "last_calls",
    "memory_stats",
    "plan",
    "prepare",
    "redistribute",
    "redistribute_cost",
    "reduce_scatter_v",
    "scatter_v",
    "shrink",
    "split_by_rank",
    "stats",
    "to_owners",
    "trace",
    "use_for_dtensor",
    "use_shared_allocator",
]
