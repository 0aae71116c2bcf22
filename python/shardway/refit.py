"""Tables from the names of a published model to the fused tensors of an inference engine.

A table is data that the caller declares: for each tensor of the engine, which published tensors have a place in it.
Nothing is inferred from equal names or shapes. `destinations` makes of it what `link.subscribe` takes; a trainer
that keeps its experts in one stack makes of it what `link.publish` takes. ::

    table = {
        "qkv": Fused(
            [
                Piece("q_proj.weight", (heads * width, hidden), units=heads),
                Piece("k_proj.weight", (kv_heads * width, hidden), units=kv_heads),
                Piece("v_proj.weight", (kv_heads * width, hidden), units=kv_heads),
            ]
        ),
        "w2": Stacked([Piece(f"experts.{e}.w2.weight", (hidden, inner), split=1) for e in range(experts)]),
    }
    target = link.subscribe(destinations(table, engine.state_dict(), rank=link.rank, size=link.size))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from shardway._C import Layout, Mesh, MeshTensor, Placement, Replicate, Shard

__all__ = ["Fused", "Piece", "Stacked", "destinations"]


@dataclass(frozen=True)
class Piece:
    """One published tensor.

    Attributes:
        name: Under which it is published.
        shape: Its global shape.
        split: The dim that the ranks share out, or None: every rank has the whole.
        units: How many indivisible units lie along that dim, such as heads; None: its length. If there are fewer units
            than ranks, neighbouring ranks have the same unit: of 2 heads on 4 ranks, ranks 0 and 1 have the first.
        padded: The length of that dim in the engine, over all ranks, where it is more than the tensor's: a vocabulary.
            What lies beyond the tensor is not written.
    """

    name: str
    shape: Sequence[int]
    split: int | None = 0
    units: int | None = None
    padded: int | None = None


@dataclass(frozen=True)
class Fused:
    """Several, one after the other along `dim` on every rank: q, k and v; gate and up."""

    parts: Sequence[Entry]
    dim: int = 0


@dataclass(frozen=True)
class Stacked:
    """Several of one shape, along a new first dim: experts.

    Attributes:
        parts: In the order of the stack.
        spread: Expert parallelism. The ranks share out the parts, the first ranks one more each where the number does
            not divide, and each part lies whole on its rank. Without it every rank has its share of each part.
    """

    parts: Sequence[Entry]
    spread: bool = False


Entry: TypeAlias = Piece | Fused | Stacked


def destinations(
    table: Mapping[str, Entry], tensors: Mapping[str, Tensor], *, rank: int, size: int
) -> dict[str, MeshTensor]:
    """The places of the published tensors in this rank's `tensors`: views of them, by published name, with layouts.

    Args:
        table: By the names of `tensors`. What `tensors` has and the table has not is left alone.
        tensors: This rank's part of each, in the dtype of the engine; any views.
        rank: Of the role.
        size: Of the role: all its ranks share the tensors.

    Raises:
        ValueError: The table is invalid or does not fit the tensors; every difference is in it.
    """
    made: dict[str, MeshTensor] = {}
    problems: list[str] = []
    for name, entry in table.items():
        problems += _add_places(made, name, entry, tensors, rank, size)
    if problems:
        raise ValueError("destinations: " + "".join(f"\n  {problem}" for problem in problems))
    return made


def _add_places(
    made: dict[str, MeshTensor], name: str, entry: Entry, tensors: Mapping[str, Tensor], rank: int, size: int
) -> list[str]:
    """What is wrong with one entry of a table, if anything is."""
    if name not in tensors:
        return [f"{name}: the table has it, but the tensors have not"]
    try:
        places = list(_places(entry, tensors[name], tuple(range(size)), rank))
    except ValueError as error:
        return [f"{name}: {error}"]
    twice = []
    for published, place in places:
        if published in made:
            twice.append(f"{name}: {published} has two places")
        made[published] = place
    return twice


def _places(entry: Entry, tensor: Tensor, ranks: tuple[int, ...], rank: int) -> Iterator[tuple[str, MeshTensor]]:
    """Of what lies in `tensor`, the part of `rank`, which is one of `ranks`."""
    wanted = _local_shape(entry, ranks, rank)
    if tuple(tensor.shape) != wanted:
        raise ValueError(f"it has shape {tuple(tensor.shape)} on rank {rank}, but its parts need {wanted}")
    if isinstance(entry, Piece):
        layout = _layout(entry, tensor.dtype, ranks)
        view = tensor
        for dim, length in enumerate(layout.box(rank)[1]):
            view = view.narrow(dim, 0, length)
        yield entry.name, MeshTensor(view, layout)
    elif isinstance(entry, Fused):
        begin = 0
        for part in entry.parts:
            length = _local_shape(part, ranks, rank)[entry.dim]
            yield from _places(part, tensor.narrow(entry.dim, begin, length), ranks, rank)
            begin += length
    else:
        for index, (part, holders) in enumerate(_held(entry, ranks, rank)):
            yield from _places(part, tensor[index], holders, rank)


def _local_shape(entry: Entry, ranks: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """What a rank has of an entry, padding included."""
    if isinstance(entry, Piece):
        return _padded_layout(entry, ranks).box(rank)[1]
    if not entry.parts:
        raise ValueError(f"a {type(entry).__name__} has no parts")
    if isinstance(entry, Fused):
        return _fused_shape(entry, [_local_shape(part, ranks, rank) for part in entry.parts])
    held = _held(entry, ranks, rank)
    shapes = {_local_shape(part, holders, rank) for part, holders in held}
    if len(shapes) > 1:
        raise ValueError(f"parts of a stack have different shapes: {sorted(shapes)}")
    # a rank without a part has an empty stack of what the first part's rank has
    one = shapes.pop() if shapes else _local_shape(entry.parts[0], ranks[:1], ranks[0])
    return (len(held), *one)


def _fused_shape(entry: Fused, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    dim = entry.dim
    if not all(0 <= dim < len(shape) for shape in shapes):
        raise ValueError(f"dim={dim} of a Fused is out of range for parts of {len(shapes[0])} dims")
    if len({(*shape[:dim], *shape[dim + 1 :]) for shape in shapes}) > 1:
        raise ValueError(f"parts of a Fused differ in other dims than {dim}: {', '.join(map(str, shapes))}")
    return (*shapes[0][:dim], sum(shape[dim] for shape in shapes), *shapes[0][dim + 1 :])


def _held(entry: Stacked, ranks: tuple[int, ...], rank: int) -> list[tuple[Entry, tuple[int, ...]]]:
    """The parts of a stack that a rank has, each with all ranks that have some of it."""
    if not entry.spread:
        return [(part, ranks) for part in entry.parts]
    each, more = divmod(len(entry.parts), len(ranks))
    owners = [(owner,) for number, owner in enumerate(ranks) for _ in range(each + (number < more))]
    return [(part, holders) for part, holders in zip(entry.parts, owners, strict=True) if holders == (rank,)]


def _layout(piece: Piece, dtype: torch.dtype, ranks: tuple[int, ...]) -> Layout:
    """How a piece lies without its padding."""
    padded = _padded_layout(piece, ranks, dtype)
    if piece.padded is None or piece.split is None:
        return padded
    dim, length = piece.split, piece.shape[piece.split]
    ends = [min(offset[dim] + extent[dim], length) for offset, extent in map(padded.box, ranks)]
    begins = [min(padded.box(rank)[0][dim], length) for rank in ranks]
    sizes = [end - begin for begin, end in zip(begins, ends, strict=True)]
    return Layout(piece.shape, dtype, padded.mesh, [Shard(dim, sizes)])


def _padded_layout(piece: Piece, ranks: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Layout:
    shape = list(piece.shape)
    if piece.split is None:
        return Layout(shape, dtype, Mesh((len(ranks),), ranks), [Replicate()])
    if not 0 <= piece.split < len(shape):
        raise ValueError(f"{piece.name}: split={piece.split} is out of range for the shape {tuple(shape)}")
    if piece.padded is not None:
        _check_padding(piece, len(ranks))
        shape[piece.split] = piece.padded
    units, length, count = piece.units or shape[piece.split], shape[piece.split], len(ranks)
    if length % units:
        raise ValueError(f"{piece.name}: its length {length} is not a multiple of units={units}")
    split: list[Placement] = [Shard(piece.split)]
    if units % count == 0:
        return Layout(shape, dtype, Mesh((count,), ranks), split)
    if count % units == 0:
        return Layout(shape, dtype, Mesh((units, count // units), ranks), [*split, Replicate()])
    raise ValueError(f"{piece.name}: {units} units can neither be shared out to {count} ranks nor repeated on them")


def _check_padding(piece: Piece, ranks: int) -> None:
    assert piece.split is not None and piece.padded is not None
    length = piece.shape[piece.split]
    if piece.padded < length or piece.padded % ranks or piece.units is not None:
        raise ValueError(
            f"{piece.name}: padded={piece.padded} must be at least its length {length} and a multiple of "
            f"{ranks} ranks, without units"
        )
