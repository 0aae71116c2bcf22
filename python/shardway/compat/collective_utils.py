"""In place of `torch.distributed.tensor._collective_utils`, the cost functions: the prices of torch 2.13.

They take torch's DeviceMesh and DTensorSpec, and our Mesh and Layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from torch.distributed.device_mesh import DeviceMesh, _mesh_resources

from shardway import _C
from shardway._C import Layout, Mesh, Topology
from shardway._dtensor import layout_of, mesh_of

if TYPE_CHECKING:
    from torch.distributed.tensor._dtensor_spec import DTensorSpec

__all__ = [
    "MeshTopoInfo",
    "allgather_cost",
    "allreduce_cost",
    "redistribute_cost",
    "reduce_scatter_cost",
    "spec_to_bytes",
]

Spec: TypeAlias = "Layout | DTensorSpec"


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
    """What torch makes of placements that are no layout: strided shards, masked partials."""
    if isinstance(current, Layout) or isinstance(target, Layout):
        raise ValueError(f"redistribute_cost: {current} and {target} are not both Layouts or both plain DTensorSpecs")
    from torch.distributed.tensor._collective_utils import redistribute_cost as torch_cost

    return float(torch_cost(current, target))
