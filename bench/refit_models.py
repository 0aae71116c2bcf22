"""What bench/refit.py moves: two public models, scaled, and many small tensors; how they lie on both sides."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import shardway as sw
from shardway.refit import Entry, Piece, destinations
from tests.support.models import LLAMA_3_8B, QWEN3_30B_A3B, Config, engine_shapes, engine_table, shapes

MIB = 2**20
SMALL_TENSORS, SMALL_SHAPE = 500, (16, 16)  # of f32: 1 KiB each
DENSE, EXPERTS, SMALL = "dense", "experts", "500 of 1 KiB"


@dataclass(frozen=True)
class Model:
    """Shapes and a dtype, the table of the engine, and which tensors lie whole on one trainer each."""

    kind: str
    name: str
    dtype: torch.dtype
    shapes: Mapping[str, tuple[int, ...]]
    engine: Mapping[str, tuple[int, ...]]  # of one rank of the generator
    table: Mapping[str, Entry]
    owned: Mapping[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(math.prod(shape) for shape in self.shapes.values()) * self.dtype.itemsize


def model_of(kind: str, mib: int, trainers: int, generators: int) -> Model:
    if kind == SMALL:
        return _small(generators)
    config = _scaled(kind, mib)
    owned = {}
    if kind == EXPERTS:
        blocks = torch.arange(config.experts).tensor_split(trainers)
        owner = {expert: rank for rank, block in enumerate(blocks) for expert in block.tolist()}
        owned = {
            name: owner[int(name.split(".experts.")[1].split(".")[0])] for name in shapes(config) if ".experts." in name
        }
    return Model(
        kind,
        f"{config.name}, {config.layers} layers of {config.hidden}",
        torch.bfloat16,
        shapes(config),
        engine_shapes(config, generators),
        engine_table(config, generators),
        owned,
    )


def _scaled(kind: str, mib: int) -> Config:
    """As many layers as fit, of widths that do; at least one."""
    by = next(by for by in (8, 16, 32) if mib * MIB >= _bytes(_narrow(kind, by, 2)) or by == 32)
    one, two = _bytes(_narrow(kind, by, 1)), _bytes(_narrow(kind, by, 2))
    return _narrow(kind, by, max(1, round((mib * MIB - one) / (two - one)) + 1))


def _narrow(kind: str, by: int, layers: int) -> Config:
    if kind == DENSE:
        return LLAMA_3_8B.scaled(layers, by=by, heads_by=4)
    narrow = QWEN3_30B_A3B.scaled(layers, by=by // 2, heads_by=4, experts=32 if by < 32 else 8)
    return replace(narrow, vocabulary=QWEN3_30B_A3B.vocabulary // by)


def _bytes(config: Config) -> int:
    return sum(math.prod(shape) for shape in shapes(config).values()) * torch.bfloat16.itemsize


def _small(generators: int) -> Model:
    rows, columns = SMALL_SHAPE
    names = [f"t{i}" for i in range(SMALL_TENSORS)]
    local = (rows, columns // generators)
    table = {name: Piece(name, SMALL_SHAPE, split=1) for name in names}
    return Model(
        SMALL,
        f"{SMALL_TENSORS} of 1 KiB",
        torch.float32,
        dict.fromkeys(names, SMALL_SHAPE),
        dict.fromkeys(names, local),
        table,
    )


Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Box:
    """What one trainer gives one generator of a tensor."""

    trainer: int
    generator: int
    theirs: Slices  # within the trainer's part
    ours: Slices  # within the generator's
    shape: tuple[int, ...]


class Sides:
    """A model as one rank sees it, which is a trainer or a generator: its number there, and None for the other. Made
    before there is a process group, which numbers ranks otherwise."""

    def __init__(self, model: Model, trainers: int, generators: int, rank: int) -> None:
        self.model, self.trainers, self.generators = model, trainers, generators
        self.trainer = rank if rank < trainers else None
        self.generator = rank - trainers if rank >= trainers else None
        self.before = {name: self._source_layout(name) for name in model.shapes}
        self.engine = {name: torch.empty(shape, dtype=model.dtype) for name, shape in model.engine.items()}
        places = destinations(model.table, self.engine, rank=self.generator or 0, size=generators)
        self.after = {name: place.layout for name, place in places.items()}
        self.destinations = places if self.generator is not None else {}
        self.sign = 1
        self.ordinary = self._sources(lambda shape: torch.empty(shape, dtype=model.dtype))
        self.shared = self._sources(lambda shape: sw.empty(*shape, dtype=model.dtype))
        self.wanted = {
            name: self._values(name)[_slices(layout.box(self.generator))].clone()
            for name, layout in self.after.items()
            if self.generator is not None
        }

    def _source_layout(self, name: str) -> sw.Layout:
        """Rows over all trainers, as FSDP has them, or whole on its owner."""
        shape, dtype = self.model.shapes[name], self.model.dtype
        if name in self.model.owned:
            return sw.Layout(shape, dtype, sw.Mesh((1,), [self.model.owned[name]]), [sw.Replicate()])
        return sw.Layout(shape, dtype, sw.Mesh((self.trainers,)), [sw.Shard(0)])

    def _sources(self, make: Callable[[tuple[int, ...]], Tensor]) -> dict[str, sw.MeshTensor]:
        found = {}
        for name, layout in self.before.items():
            if self.trainer in layout.mesh.ranks:
                box = layout.box(self.trainer)
                found[name] = sw.MeshTensor(make(box[1]).copy_(self._values(name)[_slices(box)]), layout)
        return found

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.model.shapes)}

    def _values(self, name: str) -> Tensor:
        """Small integers, which bfloat16 has."""
        shape = self.model.shapes[name]
        numbers = (torch.arange(math.prod(shape), dtype=torch.int32) % 241).add_(1 + self._numbers[name] % 13)
        return numbers.to(self.model.dtype).view(shape)

    @functools.cached_property
    def boxes(self) -> dict[str, list[Box]]:
        """By name, what goes from whom to whom; every generator gets each element once."""
        return {name: _boxes(self.before[name], self.after[name]) for name in self.model.shapes}

    def rewrite(self) -> None:
        """As a step of training does; all ranks call it, and know the sign of the values."""
        self.sign = -self.sign
        for other in (self.ordinary, self.shared):
            for t in other.values():
                assert t.local is not None
                t.local.neg_()

    def poison(self) -> None:
        for tensor in self.engine.values():
            tensor.fill_(float("nan"))

    def check(self, who: str) -> None:
        for name, wanted in self.wanted.items():
            found = self.destinations[name].local
            if found is None or not torch.equal(found, wanted * self.sign):
                raise AssertionError(f"{who}: {name} is wrong on generator {self.generator}")

    @property
    def received_bytes(self) -> int:
        """What all generators have to receive, whoever sends it."""
        return sum(math.prod(box.shape) for some in self.boxes.values() for box in some) * self.model.dtype.itemsize


def _slices(box: tuple[tuple[int, ...], tuple[int, ...]]) -> Slices:
    return tuple(slice(begin, begin + length) for begin, length in zip(*box, strict=True))


def _boxes(before: sw.Layout, after: sw.Layout) -> list[Box]:
    found = []
    for trainer in before.mesh.ranks:
        for generator in after.mesh.ranks:
            (at, size), (to, extent) = before.box(trainer), after.box(generator)
            begin = [max(a, b) for a, b in zip(at, to, strict=True)]
            end = [min(a + n, b + m) for a, n, b, m in zip(at, size, to, extent, strict=True)]
            shape = tuple(e - b for b, e in zip(begin, end, strict=True))
            if all(length > 0 for length in shape):
                theirs = tuple(slice(b - a, e - a) for b, e, a in zip(begin, end, at, strict=True))
                ours = tuple(slice(b - t, e - t) for b, e, t in zip(begin, end, to, strict=True))
                found.append(Box(trainer, generator, theirs, ours, shape))
    return found
