from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeAlias, TypeVar, overload

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

OpName: TypeAlias = Literal["sum", "avg", "mean", "min", "max", "product"]
Rules: TypeAlias = Literal["shardway", "torch_2_13", "seed_004"]

class BackendOptions(Backend.Options):
    """Options of the backend "shardway", for `pg_options=` of init_process_group.

    Args:
        timeout: How long a rank waits for the others, where init_process_group is given none.

    Example:
        >>> from datetime import timedelta
        >>> options = sw.BackendOptions(timedelta(seconds=30))
    """

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
def end_for_shrink(group: ProcessGroup) -> None: ...
def gone_ranks(group: ProcessGroup) -> list[int]: ...
def disown_group(group: ProcessGroup) -> None: ...
def has_engine(group: ProcessGroup) -> bool: ...

Result = TypeVar("Result", covariant=True)

class Handle(Generic[Result]):
    """A call under way, made with `async_op=True`. If the handle is dropped, the call still goes on. Any thread may use
    it.

    Example:
        >>> handle = sw.all_gather_v(torch.ones(3), async_op=True)
        >>> gathered, sizes = handle.wait()
        >>> handle.is_completed()
        True
    """

    def wait(self) -> Result:
        """Waits until the call is over and returns what the plain call would, as often as it is asked; raises what went
        wrong.
        """

    def is_completed(self) -> bool:
        """Whether the call is over: with a result, or with an error that `wait()` raises. Returns at once. It is False
        also while another thread is in `wait()`.

        CPU tensors of an engine such as gloo: the first question starts a thread that waits for the messages, and the
        answer is True once that thread has seen them all. GPU tensors: the call is over when the GPU has done it.
        """

def mapped_handle(handle: Handle[Any], function: Callable[[Any], Any]) -> Handle[Any]:
    """A handle of the same call, whose result is what `function` makes of that of `handle`, once."""

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
) -> tuple[Tensor, tuple[int, ...]] | Handle[tuple[Tensor, tuple[int, ...]]]: ...
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
) -> Tensor | Handle[Tensor]: ...
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
) -> tuple[Tensor, tuple[int, ...]] | Handle[tuple[Tensor, tuple[int, ...]]]: ...
@overload
def all_reduce(
    x: Tensor, op: str, grad: str, out: Tensor | None, group: ProcessGroup | None, async_op: Literal[False]
) -> Tensor: ...
@overload
def all_reduce(
    x: Tensor, op: str, grad: str, out: Tensor | None, group: ProcessGroup | None, async_op: bool
) -> Tensor | Handle[Tensor]: ...
def broadcast(
    x: Tensor,
    src: int,
    group_src: int | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> Tensor | Handle[Tensor]: ...
def gather_v(
    x: Tensor,
    dst: int,
    group_dst: int | None,
    dim: int,
    sizes: Sizes | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> tuple[Tensor, tuple[int, ...]] | Handle[tuple[Tensor, tuple[int, ...]]]: ...
def scatter_v(
    x: Tensor | None,
    src: int,
    group_src: int | None,
    dim: int,
    sizes: Sizes | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> Tensor | Handle[Tensor]: ...
def all_gather_v_list(
    xs: Sequence[Tensor],
    dim: int,
    sizes: Sequence[Sizes] | None,
    grad: str,
    out: None,
    group: ProcessGroup | None,
    async_op: bool,
) -> tuple[list[Tensor], list[tuple[int, ...]]] | Handle[tuple[list[Tensor], list[tuple[int, ...]]]]: ...
def reduce_scatter_v_list(
    xs: Sequence[Tensor],
    sizes: Sequence[Sizes] | None,
    dim: int,
    op: str,
    out: None,
    group: ProcessGroup | None,
    async_op: bool,
) -> list[Tensor] | Handle[list[Tensor]]: ...
def all_to_all_v_list(
    xs: Sequence[Tensor],
    send_sizes: Sequence[Sizes],
    dim: int,
    recv_sizes: Sequence[Sizes] | None,
    out: None,
    group: ProcessGroup | None,
    async_op: bool,
) -> tuple[list[Tensor], list[tuple[int, ...]]] | Handle[tuple[list[Tensor], list[tuple[int, ...]]]]: ...
def gather_v_list(
    xs: Sequence[Tensor],
    dst: int,
    group_dst: int | None,
    dim: int,
    sizes: Sequence[Sizes] | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> tuple[list[Tensor], list[tuple[int, ...]]] | Handle[tuple[list[Tensor], list[tuple[int, ...]]]]: ...
def scatter_v_list(
    xs: Sequence[Tensor],
    src: int,
    group_src: int | None,
    dim: int,
    sizes: Sequence[Sizes] | None,
    group: ProcessGroup | None,
    ranks: Sequence[int] | None,
    async_op: bool,
) -> list[Tensor] | Handle[list[Tensor]]: ...
def memory_stats() -> dict[str, int]: ...
def empty_cache() -> None: ...
def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor: ...
def use_shared_allocator() -> None: ...
def tuning_stats() -> dict[str, object]: ...
def last_calls() -> list[dict[str, object]]: ...
def dump_last_calls(prefix: str) -> str: ...
def call_totals() -> list[dict[str, object]]: ...

REPETITIONS_IN_A_TURN: int

def this_machine() -> tuple[str, str, int]: ...
def summary_of(us: list[float]) -> tuple[float, float, float]: ...
def is_known_well(us: list[list[float]], rounds: int) -> bool: ...
def trials_up_to(most_bytes: int) -> list[tuple[str, int, str]]: ...
def sizes_of_parts(parts: str, count: int, ranks: int) -> list[int]: ...
def calibrated(
    most_bytes: int, us: list[list[float]], ranks: int, backend: str, date: str, is_complete: bool, before: str
) -> tuple[str, str, bool] | None: ...
def objection_to_joining(text: str, name: str, backend: str) -> str: ...
def start_trace() -> None: ...
def take_trace() -> dict[str, Any]: ...
def gather_sizes(x: Tensor, dim: int, group: ProcessGroup | None) -> tuple[int, ...]: ...
def split_by_rank(parts: Sequence[Tensor] | Tensor, group: ProcessGroup | None) -> tuple[Tensor, tuple[int, ...]]: ...

class Mesh:
    """Ranks arranged in an n-d grid, row-major. Meshes that differ in names alone are equal.

    Args:
        shape: The length of each dim.
        ranks: The global rank at each position; None is 0, 1, 2 and so on.
        names: A name for each dim; None is no names.

    Raises:
        ValueError: A dim is shorter than 1, a rank stands twice, or the numbers do not fit.

    Example:
        >>> mesh = sw.Mesh((2, 4), names=("dp", "tp"))
        >>> mesh.size(), mesh.size("tp")
        (8, 4)
    """
    def __init__(
        self, shape: Sequence[int], ranks: Sequence[int] | None = None, names: Sequence[str] | None = None
    ) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dim."""
    @property
    def ranks(self) -> tuple[int, ...]:
        """The global rank at each position, row-major."""
    @property
    def names(self) -> tuple[str, ...] | None:
        """The name of each dim, or None."""
    @property
    def ndim(self) -> int:
        """How many dims it has."""
    def size(self, dim: int | str | None = None) -> int:
        """How many ranks there are, along `dim` or in all."""
    def submesh(self, dims: int | str | Sequence[int | str], rank: int) -> Mesh:
        """The ranks that differ from `rank` in these dims alone."""
    def flattened(self, first: int | str, last: int | str) -> Mesh:
        """The neighbouring dims from `first` to `last` as one, named like "dp_tp"."""
    @staticmethod
    def from_device_mesh(device_mesh: DeviceMesh) -> Mesh:
        """The same ranks and names as those of a torch DeviceMesh."""
    def to_device_mesh(self, device_type: str = "cpu") -> DeviceMesh:
        """Makes a process group per mesh dim: every rank of the default group calls it."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Placement:
    """What one mesh dim does to a tensor: Shard, Replicate or Partial.

    Example:
        >>> sw.Shard(0).is_shard(), sw.Replicate().is_partial()
        (True, False)
    """
    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it splits a tensor dim, or this one."""
    def is_replicate(self) -> bool:
        """Whether every rank has the whole."""
    def is_partial(self) -> bool:
        """Whether every rank holds an addend."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Shard(Placement):
    """A part of a tensor dim per rank, as torch.chunk splits or of given sizes.

    Args:
        dim: The tensor dim; a negative one counts from the end.
        sizes: The length of each rank's part, zero included; None splits as torch.chunk.

    Raises:
        ValueError: `sizes` is empty.

    Example:
        >>> sw.Shard(0, sizes=(3, 0, 5)).sizes
        (3, 0, 5)
    """
    def __init__(self, dim: int, sizes: Sequence[int] | None = None) -> None: ...
    @property
    def dim(self) -> int:
        """The tensor dim that is split."""
    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The length of each rank's part, or None."""

class Replicate(Placement):
    """The whole on every rank.

    Example:
        >>> sw.Replicate() == sw.Replicate()
        True
    """
    def __init__(self) -> None: ...

class Partial(Placement):
    """An addend on every rank: the tensor is their sum, or what `op` makes of them. It has not been combined yet.

    Args:
        op: "sum", "avg" (or "mean"), "min", "max" or "product".

    Raises:
        ValueError: `op` is none of these.

    Example:
        >>> sw.Partial().op
        'sum'
    """
    def __init__(self, op: OpName = "sum") -> None: ...
    @property
    def op(self) -> str:
        """How the addends are combined."""

PlacementLike: TypeAlias = Placement | TorchPlacement

class Layout:
    """A global shape and dtype on a mesh, with a placement per mesh dim: which box each rank holds.

    Equal layouts hold the same boxes; names of mesh dims do not matter.

    Args:
        shape: Of the whole tensor.
        dtype: Of its elements.
        mesh: A Mesh or a DeviceMesh.
        placements: One per dim of the mesh.
        order: For each tensor dim, the mesh dims that split it, the outermost split first; None is ascending.

    Raises:
        ValueError: The placements do not fit the shape or the mesh.

    Example:
        >>> layout = sw.Layout((6, 4), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
        >>> layout.box(1)
        ((3, 0), (3, 4))
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
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its elements."""
    @property
    def mesh(self) -> Mesh:
        """The mesh that it lies on."""
    @property
    def placements(self) -> tuple[Placement, ...]:
        """One per dim of the mesh."""
    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor dim, the mesh dims that split it, the outermost split first."""
    @property
    def ndim(self) -> int:
        """How many dims the tensor has."""
    def box(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Where what `rank` holds begins in the tensor, and its shape."""
    def with_(
        self,
        placements: Sequence[PlacementLike],
        order: Sequence[Sequence[int]] | None = None,
        mesh: Mesh | DeviceMesh | None = None,
    ) -> Layout:
        """The same tensor placed otherwise, on this mesh or another. The underscore avoids a word of Python; nothing is
        changed in place.
        """
    @staticmethod
    def from_spec(spec: DTensorSpec) -> Layout:
        """The layout of a DTensorSpec. A ValueError where what a rank holds is not a box of values or plain addends."""
    def to_spec(self, device_mesh: DeviceMesh | None = None) -> DTensorSpec:
        """A DTensorSpec. With None, on a DeviceMesh of CPUs without process groups: it equals one with them and cannot
        communicate.
        """
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Link:
    """Latency and bandwidth between two ranks; a GiB is 2^30 bytes.

    Args:
        latency_us: Microseconds before the first byte arrives.
        gib_per_s: GiB a second after that.

    Raises:
        ValueError: The latency is negative, or the bandwidth is not above 0.

    Example:
        >>> sw.Link(latency_us=5.0, gib_per_s=12.5).latency_us
        5.0
    """
    def __init__(self, latency_us: float = 0.6, gib_per_s: float = 87.7) -> None: ...
    @property
    def latency_us(self) -> float:
        """Microseconds before the first byte arrives."""
    @property
    def gib_per_s(self) -> float:
        """GiB a second after that."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

LinkLike: TypeAlias = Link | tuple[float, float]

class Topology:
    """What it costs to move bytes between ranks. What is left out is assumed; docs/topology.md has the fields.

    Args:
        base_us: What a step costs before anything moves.
        within_host: The link between ranks of one host: a Link, or (latency_us, gib_per_s).
        between_hosts: The link between hosts.
        dims: Links of single mesh dims, by name or number.
        ranks_per_host: Ranks with neighbouring numbers share hosts of so many; None is one host.
        host_of_rank: The number of each rank's host instead.
        two_levels: Whether ranks of a host exchange in memory what crosses to it once.
        copy_gib_per_s: How fast a rank copies.
        reduce_gib_per_s: How fast a rank adds.
        source: Where the figures come from, as plans tell it.

    Raises:
        ValueError: A figure is out of range, or both ways to say the hosts are given.

    Example:
        >>> hosts = sw.Topology(ranks_per_host=4, between_hosts=(10.0, 11.6))
        >>> hosts.between_hosts.latency_us
        10.0
    """
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
        """Figures of one kind of machine, those of PyTorch; with None, all ranks are on one host."""
    @staticmethod
    def default() -> Topology:
        """The file in SHARDWAY_TOPOLOGY; else assumed, with LOCAL_WORLD_SIZE ranks a host, else one host."""
    @staticmethod
    def read(path: str | PathLike[str]) -> Topology:
        """The topology of a file, such as `shardway calibrate` writes.

        Args:
            path: the file; docs/topology.md has its fields.

        Returns:
            Its figures; `source` says where they come from.

        Raises:
            ValueError: the file cannot be read, or a field is missing, unknown or impossible; the error names it.

        A UserWarning says if the figures were measured with another processor, number of cores, or number of ranks than
        this job has (WORLD_SIZE).

        Example:
            >>> import tempfile
            >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            ...     _ = file.write(sw.Topology(base_us=3.0, source="measured").to_json())
            ...     _ = file.seek(0)
            ...     sw.Topology.read(file.name).base_us
            3.0
        """
    @staticmethod
    def from_json(text: str) -> Topology:
        """The topology of a text as `to_json` writes it."""
    def to_json(self) -> str:
        """As a text that `from_json` reads."""
    @property
    def base_us(self) -> float:
        """What a step costs before anything moves, in microseconds."""
    @property
    def within_host(self) -> Link:
        """The link between ranks of one host."""
    @property
    def between_hosts(self) -> Link:
        """The link between hosts."""
    @property
    def dims(self) -> dict[str, Link]:
        """Links of single mesh dims."""
    @property
    def ranks_per_host(self) -> int | None:
        """How many ranks share a host, or None."""
    @property
    def host_of_rank(self) -> tuple[int, ...] | None:
        """The number of each rank's host, or None."""
    @property
    def two_levels(self) -> bool:
        """Whether what several ranks of a host want crosses to it once."""
    @property
    def copy_gib_per_s(self) -> float:
        """How fast a rank copies."""
    @property
    def reduce_gib_per_s(self) -> float:
        """How fast a rank adds."""
    @property
    def source(self) -> str:
        """Where the figures come from."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Step:
    """One stage of a plan: all_gather, reduce_scatter, all_reduce, all_to_all, permute, slice or exchange.

    Example:
        >>> layout = sw.Layout((6, 4), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
        >>> plan = sw.plan(layout, layout.with_([sw.Replicate()]))
        >>> plan.steps[0].kind
        'all_gather'
    """
    @property
    def kind(self) -> str:
        """Which of those it is."""
    @property
    def mesh_dims(self) -> tuple[int, ...]:
        """The mesh dims that it spans."""
    @property
    def from_(self) -> Layout:
        """The layout before it."""
    @property
    def to(self) -> Layout:
        """The layout after it."""
    @property
    def cost_us(self) -> float:
        """What it takes, in microseconds."""
    @property
    def latency_us(self) -> float:
        """The part of that before bytes move."""
    @property
    def bytes(self) -> int:
        """Sent by the rank that sends most."""
    @property
    def total_bytes(self) -> int:
        """Sent by all ranks."""
    @property
    def peak_bytes(self) -> int:
        """The memory that the rank with most needs."""
    @property
    def crossing_bytes(self) -> int:
        """Of the total, between hosts; counted in two levels only."""
    @property
    def is_extrapolated(self) -> bool:
        """Whether it moves more than was measured, so that its cost is extrapolated."""

class Alternative:
    """A plan that was looked at and lost.

    Example:
        >>> layout = sw.Layout((6, 4), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
        >>> plan = sw.plan(layout, layout.with_([sw.Replicate()]))
        >>> [other.reason for other in plan.alternatives if other.cost_us < plan.cost_us]
        []
    """
    @property
    def name(self) -> str:
        """What kind of plan it is."""
    @property
    def text(self) -> str:
        """Its steps, as text."""
    @property
    def cost_us(self) -> float:
        """What it would take, in microseconds."""
    @property
    def latency_us(self) -> float:
        """The part of that before bytes move."""
    @property
    def steps(self) -> int:
        """How many steps it has."""
    @property
    def bytes(self) -> int:
        """Sent by the busiest rank of each step, added up."""
    @property
    def peak_bytes(self) -> int:
        """The memory that the rank with most needs."""
    @property
    def reason(self) -> str:
        """Why it lost."""

class Relabelling:
    """Which ranks were chosen for a target's mesh, and what all ranks then send.

    Example:
        >>> mesh = sw.Mesh((2,), names=("tp",))
        >>> a = sw.Layout((6, 4), torch.float32, mesh, [sw.Shard(0)])
        >>> b = sw.Layout((6, 4), torch.float32, sw.Mesh((2,), ranks=[1, 0]), [sw.Shard(0)])
        >>> sw.plan(a, b, relabel=True).relabelling.ranks
        (0, 1)
    """

    @property
    def given_ranks(self) -> tuple[int, ...]:
        """The ranks of the mesh as it was given."""
    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that were chosen."""
    @property
    def given_total_bytes(self) -> int:
        """What all ranks would send to the mesh as it was given."""
    @property
    def total_bytes(self) -> int:
        """What all ranks send."""
    @property
    def saved_bytes(self) -> int:
        """The difference."""

class Plan:
    """The steps from one layout to another, with cost, bytes sent and peak memory. A notebook shows it as a page.

    Example:
        >>> layout = sw.Layout((6, 4), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
        >>> plan = sw.plan(layout, layout.with_([sw.Replicate()]))
        >>> plan.total_bytes
        96
    """
    @property
    def from_(self) -> Layout:
        """The layout that it begins with."""
    @property
    def to(self) -> Layout:
        """The layout that it ends with."""
    @property
    def steps(self) -> tuple[Step, ...]:
        """Its stages, in order."""
    @property
    def cost_us(self) -> float:
        """What it takes, in microseconds: the sum of its steps."""
    @property
    def bytes(self) -> int:
        """Sent by the busiest rank of each step, added up."""
    @property
    def total_bytes(self) -> int:
        """Sent by all ranks."""
    @property
    def peak_bytes(self) -> int:
        """The memory that the rank with most needs."""
    @property
    def in_two_levels(self) -> bool:
        """Whether ranks of a host share what crosses to it."""
    @property
    def crossing_bytes(self) -> int:
        """Of the total, between hosts; counted in two levels only."""
    @property
    def topology(self) -> str:
        """Where the figures come from."""
    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Other plans that were looked at."""
    @property
    def layouts_searched(self) -> int:
        """How many layouts the search went through."""
    @property
    def relabelling(self) -> Relabelling | None:
        """Which ranks were chosen for the mesh of `to`, if that was asked for."""
    def explain(self, columns: int = 100) -> str:
        """The plan and its reasons as text, for a terminal of so many columns."""
    def to_json(self) -> str:
        """As a text that `from_json` reads."""
    def to_html(self, *, topology: Topology | None = None, max_bytes: int | None = None) -> str:
        """One self-contained page that shows the plan step by step; `topology` is the one that it was priced with."""
    def _repr_html_(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan of a text as `to_json` writes it."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def plan(
    a: Layout | DTensorSpec | MeshTensor,
    b: Layout | DTensorSpec | Sequence[PlacementLike],
    topology: Topology | None,
    max_bytes: int | None,
    rules: str,
    relabel: bool | Sequence[int] | None,
) -> Plan: ...
def redistribute_cost(a: Layout, b: Layout, topology: Topology | None, rules: str) -> float: ...
def plan_along(layouts: Sequence[Layout | DTensorSpec], topology: Topology | None) -> Plan: ...
def draw(layout: Layout, columns: int) -> str: ...
def clear_plans() -> None: ...

class MeshTensor:
    """What this rank holds of a tensor, and how the tensor lies on its mesh. A pair, not a kind of Tensor.

    Making one communicates nothing. Pickled are the local part, its layout and its rank; loaded by that rank of a job
    it is in the default group, else it can be looked at and not be moved. The same is true of one of several ranks that
    is made where nothing is distributed; a link between jobs sends it, or receives into it.

    Args:
        local: This rank's box; None on a rank outside the mesh.
        layout: How the tensor lies: a Layout or a DTensorSpec.
        group: Has all ranks of the mesh, which are global ranks; None is the default group.

    Raises:
        ValueError: `local` does not fit the layout, or the group lacks a rank of the mesh. Only on this rank.

    Example:
        >>> layout = sw.Layout((6, 4), torch.float32, sw.Mesh((1,)), [sw.Shard(0)])
        >>> t = sw.MeshTensor(torch.ones(6, 4), layout)
        >>> t.shape
        torch.Size([6, 4])
    """
    def __init__(self, local: Tensor | None, layout: Layout | DTensorSpec, group: GroupLike = None) -> None: ...
    @property
    def local(self) -> Tensor | None:
        """This rank's part, or None."""
    @property
    def layout(self) -> Layout:
        """How the tensor lies."""
    @property
    def group(self) -> ProcessGroup | None:
        """The group that moves it; None where nothing is distributed."""
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
    def dtype(self) -> torch.dtype:
        """The dtype of its elements."""
    def full(self) -> Tensor | None:
        """The whole tensor on every rank of the mesh, None on the others: collective."""
    def backward(self, gradient: Tensor | None = None) -> None:
        """Runs backward from the local part. On a rank outside the mesh too, since backward is a collective."""
    @staticmethod
    def from_dtensor(dtensor: DTensor, group: GroupLike = None) -> MeshTensor:
        """Shares memory with it. `group` None is the group that has exactly the mesh's ranks."""
    def to_dtensor(self, device_mesh: DeviceMesh) -> DTensor:
        """Shares memory with it. A ValueError for sizes that DTensor cannot say."""

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
    relabel: bool | Sequence[int] | None,
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
    relabel: bool | Sequence[int] | None,
) -> MeshTensor | Handle[MeshTensor]: ...
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
    relabel: bool | Sequence[int] | None,
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
    relabel: bool | Sequence[int] | None,
) -> list[MeshTensor] | Handle[list[MeshTensor]]: ...
def refuse_redistribute(t: MeshTensor, problem: str) -> NoReturn:
    """Raises a problem of this rank on every rank of the tensor's group: collective."""

def refuse_redistribute_in(group: GroupLike, problem: str) -> NoReturn:
    """The same for a rank that has no tensor to show."""

def hear_layouts(known: Sequence[Layout | None], group: GroupLike) -> tuple[bool, list[Layout]]:
    """Asks the ranks that call redistribute how their tensors lie: whether they move a list, and the layouts."""

class KeptCall:
    """A call that can be made again: shardway.PreparedCall holds it."""

    def run(self, inputs: Sequence[Tensor | None] | None = None) -> None: ...
    @property
    def repeat(self) -> Callable[[], None]: ...
    def refuse(self, problem: str) -> NoReturn: ...
    def keep_ready(self, sets: int) -> None: ...
    def fix(self) -> None: ...
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
) -> Tensor | Handle[Tensor]: ...
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

class LinkHub:
    """Serves a link in a thread of its own. `listener` is a socket's number, which it takes; `holder` is a claim."""

    def __init__(self, listener: int, secret: bytes, holder: str) -> None: ...
    def close(self) -> None: ...

class LinkVote:
    """A prepared call in which every rank of a link's joint group says a word and hears those of all others."""

    def __init__(self, group: GroupLike) -> None: ...
    def all_say(self, word: int) -> bool:
        """Whether all ranks say this word, and it is not 0. Collective."""

class LinkTensors:
    """This rank's tensors by name, for many calls."""

    def __init__(self, tensors: Mapping[str, Tensor | None]) -> None: ...
    def __getitem__(self, name: str) -> Tensor: ...
    @property
    def gpus(self) -> list[int]:
        """The numbers of those on which some of them are."""

class LinkRoster:
    """Who takes part in a transfer, and what moves: from the JSON that the hub says."""

    def __init__(self, text: str) -> None: ...
    def rank_of(self, role: str, rank: int, size: int) -> int:
        """The rank in the joint group."""

class LinkLoader:
    """Hands what has come to the functions of a rank's Loads, by name, in one buffer. After a failure it only takes
    part."""

    def __init__(self, loads: Mapping[str, Any]) -> None: ...
    def raise_failure(self) -> None:
        """What a function has raised in this version; nothing if none has."""

    @property
    def failed_name(self) -> str: ...

class LinkMoves:
    """What moves in a version, by one prepared call and by one more for each portion of Loads. Every rank of the joint
    group makes the same calls in the same order."""

    def __init__(self, roster: LinkRoster, group: GroupLike, rank: int, role: str) -> None: ...
    def prepare(self, parts: LinkTensors, destinations: LinkTensors, shares_gpu: bool) -> None:
        """Collective: the first version. With one GPU for all, tensors that are there on both sides stay there."""

    def run(self, parts: LinkTensors, sets: int) -> None:
        """Collective: the next version, with `round`. So many sets of parts alternate."""

    def round(self) -> None:
        """Writes what has arrived in another dtype or beside its device, and waits for this rank's GPUs."""

    def bring_portions(self, parts: LinkTensors, loader: LinkLoader, sets: int) -> None:
        """Collective: what goes to Loads, after the rest."""

    def explain(self, held_bytes: int) -> str: ...
    @property
    def any_on_gpus(self) -> bool:
        """Whether a tensor is on GPUs on both sides."""

    @property
    def has_portions(self) -> bool: ...
    @property
    def tensors(self) -> int: ...
    @property
    def staging_bytes(self) -> int: ...
    @property
    def sent(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def least(self) -> tuple[int, ...]: ...

class LinkHeldVersions:
    """Versions that were copied and are sent by another thread, in order: at most `most`."""

    most: ClassVar[int]
    def __init__(self) -> None: ...
    def add(self, parts: LinkTensors, timeout: timedelta) -> None:
        """Copies a version. Waits for the slowest reader of the one before the last if two are held."""

    def drain(self, timeout: timedelta) -> None:
        """Returns when all have been sent; raises what went wrong with one of them."""

    def next(self) -> LinkTensors | None:
        """For the thread that sends, once there is one: the next. None after `close`."""

    def done(self, sent: LinkTensors, failure: Exception | None) -> None: ...
    def close(self) -> None: ...
    @property
    def bytes(self) -> int: ...
