"""Matrices that lie in shards, each whole on one rank for a while: for optimisers that need whole matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shardway import _C
from shardway._C import Layout, Mesh, MeshTensor, Replicate
from shardway._groups import GroupLike
from shardway._prepare import PreparedCall, prepare
from shardway._redistribute import redistribute, refuse

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Work = Sequence[float] | Callable[[tuple[int, ...]], float] | None


class Owners:
    """Tensors that have an owner each; `to_owners` makes it.

    Attributes:
        owner: The global rank that owns each tensor.
        whole: The tensors that this rank owns, whole, by their index. Every `run` overwrites them.
    """

    def __init__(self, tensors: Sequence[Any], sources: Sequence[MeshTensor], owner: Sequence[int]) -> None:
        self.owner = tuple(owner)
        self._tensors, self._sources = list(tensors), list(sources)
        self._targets = [
            Layout(t.layout.shape, t.dtype, Mesh((1,), ranks=[rank]), [Replicate()])
            for t, rank in zip(sources, owner, strict=True)
        ]
        self._there: PreparedCall[Any] = prepare(redistribute, self._sources, self._targets)
        self._back: PreparedCall[Any] | None = None
        self._returned: list[Any] = []
        self.whole: dict[int, Tensor] = {}
        self._collect()

    def _collect(self) -> None:
        self.whole = {i: t.local for i, t in enumerate(self._there.result) if self._is_mine(i)}

    def _is_mine(self, i: int) -> bool:
        return self.owner[i] == self._sources[i].rank

    def run(self, tensors: Sequence[MeshTensor] | Sequence[DTensor] | None = None) -> dict[int, Tensor]:
        """Brings the tensors to their owners again, in one exchange that is prepared. Every rank calls it.

        Args:
            tensors: Others of the same layouts, from this run on. None reads the ones before where they lie.

        Returns:
            `whole`, in the same memory each time.
        """
        self._there.run(None if tensors is None else self._read(tensors))
        if not self._there.is_distributed:
            self._collect()
        return self.whole

    def _read(self, tensors: Sequence[Any]) -> list[MeshTensor]:
        try:
            if len(tensors) != len(self._sources):
                raise ValueError(f"there are {len(tensors)} tensors, but {len(self._sources)} have owners")
            pairs = enumerate(zip(tensors, self._sources, strict=True))
            return [_part_of(t, f"tensors[{i}]", source.group) for i, (t, source) in pairs]
        except ValueError as error:
            self._there.refuse(str(error))

    def back(self, new: Mapping[int, Tensor] | None = None) -> list[Any]:
        """Brings whole tensors back from their owners to where the tensors lay. Every rank calls it.

        Args:
            new: For each tensor that this rank owns, by its index, a tensor of the same shape and dtype. None takes
                `whole`, which the caller may have changed.

        Returns:
            A list like the tensors that were given, in the same memory each time; Replicate where these had Partial.

        Raises:
            ValueError: An index or a tensor does not fit; on every rank, as for a run of a prepared call.
        """
        given = self.whole if new is None else new
        problem = self._problem_of(given)
        if problem is not None:
            if self._back is not None:
                self._back.refuse(problem)
            refuse(f"back: {problem}", self._sources, None)
        parts = [given.get(i) for i in range(len(self.owner))]
        if self._back is not None and self._back.is_distributed:
            self._back.run_parts(parts)
            return self._returned
        sources = _C.mesh_tensors(parts, self._targets, self._sources[0].group)
        self._back = prepare(redistribute, sources, [_without_addends(t.layout) for t in self._sources])
        self._returned = [_like(t, moved) for t, moved in zip(self._tensors, self._back.result, strict=True)]
        return self._returned

    def _problem_of(self, new: object) -> str | None:
        if not isinstance(new, Mapping):
            return f"new is a {type(new).__name__}, not a dict of tensors by their index"
        if set(new) != set(self.whole):
            return f"new has {sorted(new)}, but this rank owns {sorted(self.whole)}"
        odd = next((i for i, each in new.items() if not isinstance(each, Tensor)), None)
        return None if odd is None else f"new[{odd}] is a {type(new[odd]).__name__}, not a tensor"

    def explain(self) -> str:
        """Who owns how much, and who sends how many bytes to whom on the way to the owners."""
        lines = []
        for rank in sorted({rank for t in self._sources for rank in t.layout.mesh.ranks}):
            owned = [i for i, owner in enumerate(self.owner) if owner == rank]
            elements = sum(math.prod(self._sources[i].layout.shape) for i in owned)
            lines.append(f"rank {rank} owns {len(owned)} tensors of {elements} elements")
        return "\n".join([*lines, self._there.explain()])

    def close(self) -> None:
        """Releases the buffers of both ways."""
        self._there.close()
        if self._back is not None:
            self._back.close()


def to_owners(
    tensors: Sequence[MeshTensor] | Sequence[DTensor], *, work: Work = None, group: GroupLike = None
) -> Owners:
    """Brings each tensor whole to one rank, in one exchange. Every rank of the group calls it.

    The owners are chosen so that their work is balanced: the tensor with the most work goes first, each to the rank
    that has the least so far; of equal ones to the rank with the fewest bytes, then to one that holds most of it.

    Args:
        tensors: MeshTensors, or DTensors, whose groups have the same ranks.
        work: What an owner does for each tensor: numbers, or a function of a shape, the same on every rank. By default
            m·n·min(m, n) for a matrix of m rows and n columns; dims after the first count as columns.
        group: The group that moves them; by default their own.

    Returns:
        Owners: `whole`, `owner`, `run()` for the next time, and `back(new)`.

    Raises:
        ValueError: An argument is invalid, or ranks disagree; on every rank. Also for tensors that require grad where
            gradients are enabled.

    Example:
        >>> layout = sw.Layout((4, 4), torch.float32, sw.Mesh((1,)), [sw.Shard(0)])
        >>> owners = sw.to_owners([sw.MeshTensor(torch.ones(4, 4), layout)])
        >>> whole = owners.run()
        >>> [update] = owners.back({i: 2 * m for i, m in whole.items()})
        >>> update.local.sum()
        tensor(32.)
    """
    given: list[Any] = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    try:
        if not given:
            raise ValueError("tensors is an empty list")
        sources = [_part_of(t, f"tensors[{i}]", group) for i, t in enumerate(given)]
        owner = choose_owners([t.layout for t in sources], work)
    except ValueError as error:
        refuse(f"to_owners: {error}", given, None, group)
    return Owners(given, sources, owner)


def choose_owners(layouts: Sequence[Layout], work: Work = None) -> list[int]:
    """The rank that owns each tensor. Local, and the same on every rank that has the same arguments."""
    works = _works_of(layouts, work)
    sizes = [math.prod(layout.shape) * layout.dtype.itemsize for layout in layouts]
    loads = {rank: (0.0, 0) for layout in layouts for rank in layout.mesh.ranks}  # work and bytes so far
    owner = [0] * len(layouts)
    for i in sorted(range(len(layouts)), key=lambda i: (-works[i], -sizes[i], i)):
        held = {rank: _held_elements(layouts[i], rank) for rank in loads}
        rank = min(loads, key=lambda rank: (*loads[rank], -held[rank], rank))
        loads[rank] = (loads[rank][0] + works[i], loads[rank][1] + sizes[i])
        owner[i] = rank
    return owner


def _works_of(layouts: Sequence[Layout], work: Work) -> list[float]:
    if work is None:
        return [float(_work_of_matrix(layout.shape)) for layout in layouts]
    works = [work(tuple(layout.shape)) for layout in layouts] if callable(work) else list(work)
    if len(works) != len(layouts):
        raise ValueError(f"work has {len(works)} entries for {len(layouts)} tensors")
    for i, each in enumerate(works):
        if not isinstance(each, (int, float)) or not 0 <= each < math.inf:
            raise ValueError(f"work[{i}]={each!r} is not a number of at least 0")
    return [float(each) for each in works]


def _work_of_matrix(shape: Sequence[int]) -> int:
    rows, columns = (shape[0] if shape else 1), math.prod(shape[1:])
    return rows * columns * min(rows, columns)


def _held_elements(layout: Layout, rank: int) -> int:
    return math.prod(layout.box(rank)[1]) if rank in layout.mesh.ranks else 0


def _without_addends(layout: Layout) -> Layout:
    return layout.with_([Replicate() if p.is_partial() else p for p in layout.placements], layout.order)


def _part_of(t: Any, name: str, group: GroupLike) -> MeshTensor:
    if isinstance(t, MeshTensor):
        return t if group is None or t.group is group else MeshTensor(t.local, t.layout, group)
    if not hasattr(t, "_spec"):
        raise ValueError(f"{name} is a {type(t).__name__}, neither a MeshTensor nor a DTensor")
    from shardway._dtensor_redistribute import mesh_tensor_of

    if t.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires grad, but whole tensors have no gradient: use torch.no_grad()")
    return mesh_tensor_of(t.detach(), group)


def _like(given: Any, moved: MeshTensor) -> Any:
    """A MeshTensor as it is, or as a DTensor where a DTensor was given."""
    if isinstance(given, MeshTensor):
        return moved
    from shardway._dtensor_redistribute import wrapped_like

    return wrapped_like(given, moved)
