"""In place of `torch.distributed.tensor._collective_utils`: its collectives, its padding, the prices of torch 2.13.

They take torch's DeviceMesh and DTensorSpec, and our Mesh and Layout. A collective runs along one mesh dim, each row
of ranks by itself. On a DeviceMesh it spans that dim's process group. On a Mesh, which has none, it spans `group`, the
default one unless given: every rank of it calls, those outside the mesh with None. Ranks that do not fit together, and
one rank's bad argument, are the same ValueError on all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources

from shardway import _C
from shardway._C import Handle, Layout, Mesh, Topology
from shardway._dtensor import layout_of, mesh_of
from shardway._groups import GroupLike, resolve_group

if TYPE_CHECKING:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

__all__ = [
    "MeshTopoInfo",
    "allgather_cost",
    "allreduce_cost",
    "fill_empty_tensor_to_shards",
    "mesh_broadcast",
    "mesh_scatter",
    "pad_tensor",
    "redistribute_cost",
    "reduce_scatter_cost",
    "shard_dim_alltoall",
    "spec_to_bytes",
    "unpad_tensor",
]

Spec: TypeAlias = "Layout | DTensorSpec"


@overload
def shard_dim_alltoall(
    input: Tensor,
    gather_dim: int,
    shard_dim: int,
    mesh: DeviceMesh | Mesh,
    mesh_dim: int | str,
    *,
    async_op: Literal[False] = False,
    group: GroupLike = None,
) -> Tensor: ...
@overload
def shard_dim_alltoall(
    input: Tensor,
    gather_dim: int,
    shard_dim: int,
    mesh: DeviceMesh | Mesh,
    mesh_dim: int | str,
    *,
    async_op: Literal[True],
    group: GroupLike = None,
) -> Handle[Tensor]: ...
def shard_dim_alltoall(
    input: Tensor,
    gather_dim: int,
    shard_dim: int,
    mesh: DeviceMesh | Mesh,
    mesh_dim: int | str,
    *,
    async_op: bool = False,
    group: GroupLike = None,
) -> Tensor | Handle[Tensor]:
    """What lies in parts along `gather_dim`, of any size per rank, in parts along `shard_dim` instead, as torch.chunk
    cuts. A real all-to-all on every backend; differentiable. A meta tensor communicates nothing and takes the other
    ranks' sizes to be its own."""
    row = _row(mesh, mesh_dim, group, "shard_dim_alltoall")
    return _C.shard_dim_alltoall(input, gather_dim, shard_dim, row.mesh, row.mesh_dim, row.group, async_op)


def mesh_scatter(
    output: Tensor,
    scatter_list: list[Tensor] | None,
    mesh: DeviceMesh | Mesh,
    mesh_dim: int | str = 0,
    async_op: bool = False,
    *,
    group_src: int = 0,
    group: GroupLike = None,
) -> dist.Work | None:
    """Fills every rank's `output` with its tensor of the list that the source has, the first rank along the mesh dim.
    Sizes may differ between the ranks. Nothing is done with meta tensors."""
    row = _row(mesh, mesh_dim, group, "mesh_scatter")
    return _C.mesh_scatter(output, scatter_list, row.mesh, row.mesh_dim, async_op, group_src, row.group)


def mesh_broadcast(
    tensor: Tensor,
    mesh: DeviceMesh | Mesh,
    mesh_dim: int | str = 0,
    async_op: bool = False,
    *,
    group_src: int = 0,
    group: GroupLike = None,
) -> dist.Work | None:
    """Fills every rank's `tensor` with that of the source, the first rank along the mesh dim. Nothing is done with
    meta tensors."""
    row = _row(mesh, mesh_dim, group, "mesh_broadcast")
    return _C.mesh_broadcast(tensor, row.mesh, row.mesh_dim, async_op, group_src, row.group)


def pad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor:
    """With `pad_size` zeros at the end of `pad_dim`; the tensor itself where there are none."""
    return _C.pad_tensor(tensor, pad_dim, pad_size)


def unpad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor:
    """Without the last `pad_size` of `pad_dim`, as a view; the tensor itself where there are none."""
    return _C.unpad_tensor(tensor, pad_dim, pad_size)


def fill_empty_tensor_to_shards(shards: list[Tensor], shard_dim: int, num_empty_tensors: int) -> list[Tensor]:
    """`shards` itself, grown by tensors like the first with length zero along `shard_dim`."""
    shards.extend(_C.fill_empty_tensor_to_shards(shards, shard_dim, num_empty_tensors)[len(shards) :])
    return shards


@dataclass(frozen=True)
class _Row:
    """Where a collective along one mesh dim runs."""

    mesh: Mesh
    mesh_dim: int
    group: GroupLike


def _row(mesh: DeviceMesh | Mesh, mesh_dim: int | str, group: GroupLike, op: str) -> _Row:
    if isinstance(mesh, Mesh):
        return _Row(mesh, _dim_of(mesh, mesh_dim, op), group)
    if not isinstance(mesh, DeviceMesh):
        raise ValueError(f"{op}: mesh={mesh!r} is neither a DeviceMesh nor a Mesh")
    if group is not None:
        raise ValueError(f"{op}: group is given, but a DeviceMesh has the groups of its dims")
    found = resolve_group((mesh, mesh_dim), op)
    ranks = dist.get_process_group_ranks(found)
    return _Row(Mesh((len(ranks),), ranks), 0, found)


def _dim_of(mesh: Mesh, mesh_dim: int | str, op: str) -> int:
    if not isinstance(mesh_dim, str):
        return mesh_dim
    if mesh_dim not in (mesh.names or ()):
        raise ValueError(f"{op}: mesh_dim={mesh_dim!r} is none of {mesh.names}")
    return (mesh.names or ()).index(mesh_dim)


@dataclass
class MeshTopoInfo:
    """Per mesh dim its devices, its bandwidth in GB/s (2^30 bytes) and its latency in microseconds."""

    mesh: DeviceMesh | Mesh
    mesh_dim_devices: list[int]
    mesh_dim_bandwidth: list[float]
    mesh_dim_latency: list[float]

    @staticmethod
    def build_from_mesh(mesh: DeviceMesh | Mesh, topology: Topology | None = None) -> MeshTopoInfo:
        """Cached. Without a topology, assumed figures: a DeviceMesh has as many devices a host as torch says, a Mesh
        LOCAL_WORLD_SIZE, else it is one host."""
        if isinstance(mesh, Mesh):
            return _build(mesh, mesh.names, topology or Topology.default())
        return _build(mesh, mesh.mesh_dim_names, topology)

    def _figures(self) -> _C.MeshTopoInfo:
        return _C.MeshTopoInfo(self.mesh_dim_devices, self.mesh_dim_bandwidth, self.mesh_dim_latency)


@lru_cache(None)
def _build(mesh: DeviceMesh | Mesh, names: tuple[str, ...] | None, topology: Topology | None) -> MeshTopoInfo:
    """`names` are for the cache: they may choose the links, but equal Meshes may differ in them."""
    if isinstance(mesh, Mesh):
        ours = mesh
    else:
        ours = mesh_of(mesh)
        topology = topology or Topology.assumed(_mesh_resources.num_devices_per_host(mesh.device_type))
    topo = _C.MeshTopoInfo.build_from_mesh(ours, topology or Topology.default())
    return MeshTopoInfo(mesh, topo.mesh_dim_devices, topo.mesh_dim_bandwidth, topo.mesh_dim_latency)


def allgather_cost(bytes_gb: float, mesh_topo: MeshTopoInfo, mesh_dim: int) -> float:
    """Microseconds to gather `bytes_gb` in all along one mesh dim."""
    return mesh_topo._figures().allgather_cost(bytes_gb, mesh_dim)


def allreduce_cost(bytes_gb: float, mesh_topo: MeshTopoInfo, mesh_dim: int) -> float:
    return mesh_topo._figures().allreduce_cost(bytes_gb, mesh_dim, "torch_2_13")


def reduce_scatter_cost(bytes_gb: float, mesh_topo: MeshTopoInfo, mesh_dim: int) -> float:
    return mesh_topo._figures().reduce_scatter_cost(bytes_gb, mesh_dim)


def redistribute_cost(current_spec: Spec, target_spec: Spec) -> float:
    """Microseconds, by the steps and prices of torch 2.13; infinite between meshes and where addends would be made of
    shards. `sw.redistribute_cost` prices what shardway runs."""
    if any(not isinstance(spec, Layout) and spec.shard_order is None for spec in (current_spec, target_spec)):
        return _by_torch(current_spec, target_spec)
    try:
        current, target = _layout(current_spec), _layout(target_spec)
    except ValueError:
        return _by_torch(current_spec, target_spec)
    if not isinstance(current_spec, Layout) and not current_spec.mesh._is_current_rank_part_of_mesh():
        return 0.0 if current.mesh == target.mesh else math.inf
    return MeshTopoInfo.build_from_mesh(current_spec.mesh)._figures().redistribute_cost(current, target, "torch_2_13")


def spec_to_bytes(spec: Spec) -> int:
    """The bytes of the whole tensor."""
    if isinstance(spec, Layout):
        return _C.spec_to_bytes(spec)
    if spec.tensor_meta is None:
        raise AssertionError("spec should have tensor meta defined!")
    return spec.tensor_meta.dtype.itemsize * math.prod(spec.shape)


def _layout(spec: Spec) -> Layout:
    return spec if isinstance(spec, Layout) else layout_of(spec)


def _by_torch(current: Spec, target: Spec) -> float:
    """What torch makes of placements that are not a layout: strided shards, masked partials."""
    if isinstance(current, Layout) or isinstance(target, Layout):
        raise ValueError(f"redistribute_cost: {current} and {target} are not both Layouts or both plain DTensorSpecs")
    from torch.distributed.tensor._collective_utils import redistribute_cost as torch_cost

    return float(torch_cost(current, target))
