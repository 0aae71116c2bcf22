from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Literal, NoReturn, TypeAlias, overload

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, ErrorType, Store
from torch.distributed import ProcessGroup, Work
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.placement_types import Placement as TorchPlacement

from shardway._groups import GroupLike

__version__: str

class BackendOptions(Backend.Options):
    def __init__(self, timeout: timedelta = ...) -> None: ...

class ProcessGroupShardway(Backend):
    def __init__(
        self, store: Store, rank: int, size: int, options: BackendOptions, met: Survivors | None = None
    ) -> None: ...
    def get_error(self) -> ErrorType: ...

def make_backend(
    store: Store, rank: int, size: int, options: BackendOptions, make_gloo: Callable[[str], Backend]
) -> Backend: ...

class Survivors:
    @property
    def rank(self) -> int: ...
    @property
    def id(self) -> int: ...
    @property
    def members(self) -> list[int]: ...
    def told(self, mine: str) -> list[str]: ...
    def shrunk(self, timeout: timedelta | None) -> Survivors: ...
    def serve(self, group: ProcessGroup) -> None: ...

def survivors_of(group: ProcessGroup, timeout: timedelta | None) -> Survivors | None: ...
def disown_group(group: ProcessGroup) -> None: ...
def has_engine(group: ProcessGroup) -> bool: ...

class RaggedHandle:
    def wait(self) -> tuple[Tensor, tuple[int, ...]]: ...

class TensorHandle:
    def wait(self) -> Tensor: ...

class RaggedListHandle:
    def wait(self) -> tuple[list[Tensor], list[tuple[int, ...]]]: ...

class TensorListHandle:
    def wait(self) -> list[Tensor]: ...

Sizes = Sequence[int] | Tensor

@overload
def all_gather_v(
    x: Tensor,
    dim: int,
    sizes: Sizes | None,
    grad: str,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: Literal[False],
) -> tuple[Tensor, tuple[int, ...]]: ...
@overload
def all_gather_v(
    x: Tensor, dim: int, sizes: Sizes | None, grad: str, out: Tensor | None, group: ProcessGroup | None, async_op: bool
) -> tuple[Tensor, tuple[int, ...]] | RaggedHandle: ...
@overload
def reduce_scatter_v(
    x: Tensor,
    sizes: Sizes | None,
    dim: int,
    op: str,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: Literal[False],
) -> Tensor: ...
@overload
def reduce_scatter_v(
    x: Tensor, sizes: Sizes | None, dim: int, op: str, out: Tensor | None, group: ProcessGroup | None, async_op: bool
) -> Tensor | TensorHandle: ...
@overload
def all_to_all_v(
    x: Tensor,
    send_sizes: Sizes,
    dim: int,
    recv_sizes: Sizes | None,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: Literal[False],
) -> tuple[Tensor, tuple[int, ...]]: ...
@overload
def all_to_all_v(
    x: Tensor,
    send_sizes: Sizes,
    dim: int,
    recv_sizes: Sizes | None,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: bool,
) -> tuple[Tensor, tuple[int, ...]] | RaggedHandle: ...
@overload
def all_reduce(
    x: Tensor, op: str, grad: str, out: Tensor | None, group: ProcessGroup | None, async_op: Literal[False]
) -> Tensor: ...
@overload
def all_reduce(
    x: Tensor, op: str, grad: str, out: Tensor | None, group: ProcessGroup | None, async_op: bool
) -> Tensor | TensorHandle: ...
def broadcast(
    x: Tensor,
    src: int,
    group_src: int | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> Tensor | TensorHandle: ...
def gather_v(
    x: Tensor,
    dst: int,
    group_dst: int | None,
    dim: int,
    sizes: Sizes | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> tuple[Tensor, tuple[int, ...]] | RaggedHandle: ...
def scatter_v(
    x: Tensor | None,
    src: int,
    group_src: int | None,
    dim: int,
    sizes: Sizes | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> Tensor | TensorHandle: ...
def all_gather_v_list(
    xs: Sequence[Tensor],
    dim: int,
    sizes: Sequence[Sizes] | None,
    grad: str,
    out: None,
    group: ProcessGroup | None,
    async_op: bool,
) -> tuple[list[Tensor], list[tuple[int, ...]]] | RaggedListHandle: ...
def reduce_scatter_v_list(
    xs: Sequence[Tensor],
    sizes: Sequence[Sizes] | None,
    dim: int,
    op: str,
    out: None,
    group: ProcessGroup | None,
    async_op: bool,
) -> list[Tensor] | TensorListHandle: ...
def all_to_all_v_list(
    xs: Sequence[Tensor],
    send_sizes: Sequence[Sizes],
    dim: int,
    recv_sizes: Sequence[Sizes] | None,
    out: None,
    group: ProcessGroup | None,
    async_op: bool,
) -> tuple[list[Tensor], list[tuple[int, ...]]] | RaggedListHandle: ...
def gather_v_list(
    xs: Sequence[Tensor],
    dst: int,
    group_dst: int | None,
    dim: int,
    sizes: Sequence[Sizes] | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> tuple[list[Tensor], list[tuple[int, ...]]] | RaggedListHandle: ...
def scatter_v_list(
    xs: Sequence[Tensor],
    src: int,
    group_src: int | None,
    dim: int,
    sizes: Sequence[Sizes] | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> list[Tensor] | TensorListHandle: ...
def memory_stats() -> dict[str, int]: ...
def empty_cache() -> None: ...
def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor: ...
def use_shared_allocator() -> None: ...
def tuning_stats() -> dict[str, object]: ...
def last_calls() -> list[dict[str, object]]: ...
def dump_last_calls(prefix: str) -> str: ...
def gather_sizes(x: Tensor, dim: int, group: ProcessGroup | None) -> tuple[int, ...]: ...
def split_by_rank(parts: Sequence[Tensor] | Tensor, group: ProcessGroup | None) -> tuple[Tensor, tuple[int, ...]]: ...

class Mesh:
    """Ranks arranged in an n-d grid, row-major. Dims may have names. Meshes that differ in names alone are equal."""
    def __init__(
        self, shape: Sequence[int], ranks: Sequence[int] | None = None, names: Sequence[str] | None = None
    ) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ranks(self) -> tuple[int, ...]: ...
    @property
    def names(self) -> tuple[str, ...] | None: ...
    @property
    def ndim(self) -> int: ...
    def size(self, dim: int | str | None = None) -> int: ...
    def submesh(self, dims: int | str | Sequence[int | str], rank: int) -> Mesh:
        """The ranks that differ from `rank` in these dims alone."""
    def flattened(self, first: int | str, last: int | str) -> Mesh:
        """The neighbouring dims from `first` to `last` as one, named like "dp_tp"."""
    @staticmethod
    def from_device_mesh(device_mesh: DeviceMesh) -> Mesh: ...
    def to_device_mesh(self, device_type: str = "cpu") -> DeviceMesh:
        """Makes a process group per mesh dim: every rank of the default group calls it."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Placement:
    """What one mesh dim does to a tensor: Shard, Replicate or Partial."""
    def is_shard(self, dim: int | None = None) -> bool: ...
    def is_replicate(self) -> bool: ...
    def is_partial(self) -> bool: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Shard(Placement):
    """A part of a tensor dim per rank, as torch.chunk splits or of given sizes. A negative dim counts from the end."""
    def __init__(self, dim: int, sizes: Sequence[int] | None = None) -> None: ...
    @property
    def dim(self) -> int: ...
    @property
    def sizes(self) -> tuple[int, ...] | None: ...

class Replicate(Placement):
    """The whole on every rank."""
    def __init__(self) -> None: ...

class Partial(Placement):
    """An addend on every rank: the tensor is their sum, or what `op` (sum, avg, min, max, product) makes of them."""
    def __init__(self, op: str = "sum") -> None: ...
    @property
    def op(self) -> str: ...

PlacementLike: TypeAlias = Placement | TorchPlacement

class Layout:
    """A global shape and dtype on a mesh, with a placement per mesh dim: which box each rank holds.

    `order` has, for each tensor dim, the mesh dims that split it, the outermost split first; None is ascending.
    Equal layouts hold the same boxes; names of mesh dims do not matter.
    """
    def __init__(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        mesh: Mesh | DeviceMesh,
        placements: Sequence[PlacementLike],
        order: Sequence[Sequence[int]] | None = None,
    ) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def mesh(self) -> Mesh: ...
    @property
    def placements(self) -> tuple[Placement, ...]: ...
    @property
    def order(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def ndim(self) -> int: ...
    def box(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where what `rank` holds begins in the tensor, and its shape."""
    def with_(
        self,
        placements: Sequence[PlacementLike],
        order: Sequence[Sequence[int]] | None = None,
        mesh: Mesh | DeviceMesh | None = None,
    ) -> Layout:
        """The same tensor placed otherwise, on this mesh or another."""
    @staticmethod
    def from_spec(spec: DTensorSpec) -> Layout:
        """A ValueError where what a rank holds is no box of values or plain addends."""
    def to_spec(self, device_mesh: DeviceMesh | None = None) -> DTensorSpec:
        """With None, on a DeviceMesh of CPUs without process groups: it equals one with them and cannot communicate."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Link:
    """Latency and bandwidth between two ranks; a GiB is 2^30 bytes."""
    def __init__(self, latency_us: float = 0.6, gib_per_s: float = 87.7) -> None: ...
    @property
    def latency_us(self) -> float: ...
    @property
    def gib_per_s(self) -> float: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

LinkLike: TypeAlias = Link | tuple[float, float]

class Topology:
    """What it costs to move bytes between ranks. What is left out is assumed; docs/topology.md has the fields."""
    def __init__(
        self,
        *,
        base_us: float | None = None,
        within_host: LinkLike | None = None,
        between_hosts: LinkLike | None = None,
        dims: Mapping[str | int, LinkLike] | None = None,
        ranks_per_host: int | None = None,
        host_of_rank: Sequence[int] | None = None,
        two_levels: bool = False,
        copy_gib_per_s: float | None = None,
        reduce_gib_per_s: float | None = None,
        source: str = "given",
    ) -> None: ...
    @staticmethod
    def assumed(ranks_per_host: int | None = None) -> Topology:
        """The seed's figures; with None, all ranks are on one host."""
    @staticmethod
    def default() -> Topology:
        """The file in SHARDWAY_TOPOLOGY; else assumed, with LOCAL_WORLD_SIZE ranks a host, else one host."""
    @staticmethod
    def read(path: str | PathLike[str]) -> Topology: ...
    @staticmethod
    def from_json(text: str) -> Topology: ...
    def to_json(self) -> str: ...
    @property
    def base_us(self) -> float: ...
    @property
    def within_host(self) -> Link: ...
    @property
    def between_hosts(self) -> Link: ...
    @property
    def dims(self) -> dict[str, Link]: ...
    @property
    def ranks_per_host(self) -> int | None: ...
    @property
    def host_of_rank(self) -> tuple[int, ...] | None: ...
    @property
    def two_levels(self) -> bool: ...
    @property
    def copy_gib_per_s(self) -> float: ...
    @property
    def reduce_gib_per_s(self) -> float: ...
    @property
    def source(self) -> str: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Step:
    """One stage of a plan: all_gather, reduce_scatter, all_reduce, all_to_all, permute, slice or exchange."""
    @property
    def kind(self) -> str: ...
    @property
    def mesh_dims(self) -> tuple[int, ...]: ...
    @property
    def from_(self) -> Layout: ...
    @property
    def to(self) -> Layout: ...
    @property
    def cost_us(self) -> float: ...
    @property
    def latency_us(self) -> float: ...
    @property
    def bytes(self) -> int:
        """Sent by the rank that sends most."""
    @property
    def total_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def crossing_bytes(self) -> int:
        """Of the total, between hosts; counted in two levels only."""

class Alternative:
    """A plan that was looked at and lost."""
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def cost_us(self) -> float: ...
    @property
    def latency_us(self) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def reason(self) -> str: ...

class Plan:
    """The steps from one layout to another, with cost, bytes sent and peak memory."""
    @property
    def from_(self) -> Layout: ...
    @property
    def to(self) -> Layout: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def cost_us(self) -> float: ...
    @property
    def bytes(self) -> int:
        """Sent by the busiest rank of each step, added up."""
    @property
    def total_bytes(self) -> int: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def in_two_levels(self) -> bool: ...
    @property
    def crossing_bytes(self) -> int: ...
    @property
    def topology(self) -> str:
        """Where the figures come from."""
    @property
    def alternatives(self) -> tuple[Alternative, ...]: ...
    @property
    def layouts_searched(self) -> int: ...
    def explain(self, columns: int = 100) -> str: ...
    def to_json(self) -> str: ...
    def to_html(self, *, topology: Topology | None = None, max_bytes: int | None = None) -> str:
        """One self-contained page that shows the plan step by step; `topology` is the one that it was priced with."""
    def _repr_html_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Plan: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def plan(
    a: Layout | DTensorSpec | MeshTensor,
    b: Layout | DTensorSpec | Sequence[PlacementLike],
    topology: Topology | None,
    max_bytes: int | None,
    rules: str,
) -> Plan: ...
def redistribute_cost(a: Layout, b: Layout, topology: Topology | None, rules: str) -> float: ...
def steps_along(layouts: Sequence[Layout | DTensorSpec], topology: Topology | None) -> list[Step]: ...
def draw(layout: Layout, columns: int) -> str: ...
def clear_plans() -> None: ...

class MeshTensor:
    """What this rank holds of a tensor, and how the tensor lies on its mesh. A pair, no kind of Tensor.

    `local` is this rank's box, None on a rank outside the mesh. `group` has all ranks of the mesh, which are global
    ranks; None is the default group. Making one communicates nothing. Pickled are the local part, its layout and its
    rank; loaded by that rank of a job it is in the default group, else it can be looked at and not be moved. So can one
    of several ranks that is made where nothing is distributed; a link between jobs sends it, or receives into it.
    """
    def __init__(self, local: Tensor | None, layout: Layout | DTensorSpec, group: GroupLike = None) -> None: ...
    @property
    def local(self) -> Tensor | None: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def group(self) -> ProcessGroup | None: ...
    @property
    def rank(self) -> int:
        """The global rank whose part this is; -1 where nothing is distributed, and the mesh has more than one rank."""
    @property
    def box(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Where the local part begins in the tensor, and its shape."""
    @property
    def shape(self) -> torch.Size:
        """Of the whole tensor."""
    @property
    def dtype(self) -> torch.dtype: ...
    def full(self) -> Tensor | None:
        """The whole tensor on every rank of the mesh, None on the others: collective."""
    def backward(self, gradient: Tensor | None = None) -> None:
        """Runs backward from the local part. On a rank outside the mesh too, since backward is a collective."""
    @staticmethod
    def from_dtensor(dtensor: DTensor, group: GroupLike = None) -> MeshTensor:
        """Shares memory with it. `group` None is the group that has exactly the mesh's ranks."""
    def to_dtensor(self, device_mesh: DeviceMesh) -> DTensor:
        """Shares memory with it. A ValueError for sizes that DTensor cannot say."""

class MeshTensorHandle:
    def wait(self) -> MeshTensor: ...

class MeshTensorListHandle:
    def wait(self) -> list[MeshTensor]: ...

def _rebuilt_mesh_tensor(local: Tensor | None, layout: Layout, rank: int) -> MeshTensor: ...
@overload
def redistribute(
    t: MeshTensor,
    placements: Sequence[PlacementLike] | Layout | None,
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
    plan: Plan | None,
    grad_placements: Sequence[PlacementLike] | None,
    async_op: Literal[False],
    group: GroupLike,
    copies: MeshTensor | Sequence[MeshTensor] | None,
) -> MeshTensor: ...
@overload
def redistribute(
    t: MeshTensor,
    placements: Sequence[PlacementLike] | Layout | None,
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
    plan: Plan | None,
    grad_placements: Sequence[PlacementLike] | None,
    async_op: bool,
    group: GroupLike,
    copies: MeshTensor | Sequence[MeshTensor] | None,
) -> MeshTensor | MeshTensorHandle: ...
@overload
def redistribute_list(
    tensors: Sequence[MeshTensor],
    placements: Sequence[Sequence[PlacementLike] | Layout],
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
    async_op: Literal[False],
    group: GroupLike,
    copies: Sequence[MeshTensor | Sequence[MeshTensor] | None] | None,
    out: Sequence[Tensor | None] | None,
) -> list[MeshTensor]: ...
@overload
def redistribute_list(
    tensors: Sequence[MeshTensor],
    placements: Sequence[Sequence[PlacementLike] | Layout],
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
    async_op: bool,
    group: GroupLike,
    copies: Sequence[MeshTensor | Sequence[MeshTensor] | None] | None,
    out: Sequence[Tensor | None] | None,
) -> list[MeshTensor] | MeshTensorListHandle: ...
def refuse_redistribute(t: MeshTensor, problem: str) -> NoReturn:
    """Raises a problem of this rank on every rank of the tensor's group: collective."""

def refuse_redistribute_in(group: GroupLike, problem: str) -> NoReturn:
    """The same for a rank that has no tensor to show."""

def hear_layouts(known: Sequence[Layout | None], group: GroupLike) -> tuple[bool, list[Layout]]:
    """Asks the ranks that call redistribute how their tensors lie: whether they move a list, and the layouts."""

class KeptCall:
    """A call that can be made again: shardway.PreparedCall holds it."""

    def run(self, inputs: Sequence[Tensor | None] | None = None) -> None: ...
    def refuse(self, problem: str) -> NoReturn: ...
    def keep_ready(self, sets: int) -> None: ...
    def close(self) -> None: ...
    def explain(self) -> str: ...
    @property
    def distributed(self) -> bool: ...
    @property
    def exchanges(self) -> int: ...
    @property
    def sent(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def least(self) -> tuple[int, ...]: ...
    @property
    def busiest_rank(self) -> int: ...

class Preparation:
    """While it lives, the next call of this thread is prepared."""

    def __init__(self) -> None: ...
    def finish(self) -> KeptCall: ...
    def cancel(self) -> None: ...

def is_preparing() -> bool: ...
def mesh_tensors(locals: Sequence[Tensor | None], layouts: Sequence[Layout], group: GroupLike) -> list[MeshTensor]:
    """A MeshTensor of each, all in one group."""

def redistribute_parts(
    locals: Sequence[Tensor | None],
    layouts: Sequence[Layout],
    group: GroupLike,
    placements: Sequence[Sequence[PlacementLike] | Layout],
    mesh: Mesh | DeviceMesh | None,
    topology: Topology | None,
    max_bytes: int | None,
) -> tuple[list[Tensor | None], list[Layout]]:
    """redistribute_list without a MeshTensor for each: the local parts of the results, and how each lies."""

def refuse_redistribute_list(first: MeshTensor, problem: str) -> NoReturn:
    """The same for a call with a list."""

def distribute(
    tensor: Tensor | None,
    mesh: Mesh | DeviceMesh,
    placements: Sequence[PlacementLike],
    src: int | None,
    group: GroupLike,
) -> MeshTensor: ...
@overload
def shard_dim_alltoall(
    input: Tensor | None,
    gather_dim: int,
    shard_dim: int,
    mesh: Mesh,
    mesh_dim: int,
    group: GroupLike,
    async_op: Literal[False],
) -> Tensor: ...
@overload
def shard_dim_alltoall(
    input: Tensor | None, gather_dim: int, shard_dim: int, mesh: Mesh, mesh_dim: int, group: GroupLike, async_op: bool
) -> Tensor | TensorHandle: ...
def mesh_scatter(
    output: Tensor | None,
    scatter_list: Sequence[Tensor] | None,
    mesh: Mesh,
    mesh_dim: int,
    async_op: bool,
    group_src: int,
    group: GroupLike,
) -> Work | None: ...
def mesh_broadcast(
    tensor: Tensor | None, mesh: Mesh, mesh_dim: int, async_op: bool, group_src: int, group: GroupLike
) -> Work | None: ...
def pad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor: ...
def unpad_tensor(tensor: Tensor, pad_dim: int, pad_size: int) -> Tensor: ...
def fill_empty_tensor_to_shards(shards: Sequence[Tensor], shard_dim: int, num_empty_tensors: int) -> list[Tensor]: ...

class MeshTopoInfo:
    """Per mesh dim its ranks, GiB/s and latency in microseconds."""
    def __init__(
        self, mesh_dim_devices: Sequence[int], mesh_dim_bandwidth: Sequence[float], mesh_dim_latency: Sequence[float]
    ) -> None: ...
    @overload
    @staticmethod
    def build_from_mesh(mesh: Mesh, devices_per_host: int) -> MeshTopoInfo: ...
    @overload
    @staticmethod
    def build_from_mesh(mesh: Mesh, topology: Topology) -> MeshTopoInfo: ...
    @property
    def mesh_dim_devices(self) -> list[int]: ...
    @property
    def mesh_dim_bandwidth(self) -> list[float]: ...
    @property
    def mesh_dim_latency(self) -> list[float]: ...
    def allgather_cost(self, bytes_gb: float, mesh_dim: int) -> float: ...
    def reduce_scatter_cost(self, bytes_gb: float, mesh_dim: int) -> float: ...
    def allreduce_cost(self, bytes_gb: float, mesh_dim: int, rules: str) -> float: ...
    def redistribute_cost(self, a: Layout, b: Layout, rules: str) -> float: ...
    def one_step_cost(self, a: Layout, b: Layout) -> float: ...
    def min_cost_layouts(self, a: Layout, b: Layout) -> list[Layout]: ...

def greedy_layouts(a: Layout, b: Layout) -> list[Layout]: ...
def spec_to_bytes(layout: Layout) -> int: ...
