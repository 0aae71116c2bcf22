"""Tensors on meshes as one process sees them: random layouts, what each rank holds, what a redistribute gives.

Every rank of a test draws the same from one seed. Boxes are found by cutting lists of indices as torch.chunk cuts,
not by asking the library.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import shardway as sw

from . import dense

# Divisible by the ranks of any mesh of up to six, and exact in every floating dtype when six of them are added.
UNIT = 60
FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
DTYPES = (*dense.FLOATS, *dense.COMPLEX, *dense.INTEGERS, torch.bool, *FLOAT8)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def cut(indices: list[int], parts: int, index: int) -> list[int]:
    """Piece `index` as torch.chunk cuts: empty where it would return fewer pieces."""
    pieces = torch.tensor(indices, dtype=torch.long).chunk(parts) if indices else ()
    return pieces[index].tolist() if index < len(pieces) else []


def coordinate(mesh: sw.Mesh, rank: int) -> tuple[int, ...] | None:
    grid = dict(zip(mesh.ranks, itertools.product(*map(range, mesh.shape)), strict=True))
    return grid.get(rank)


def held(layout: sw.Layout, rank: int) -> list[list[int]] | None:
    """Per tensor dim the indices that a rank holds; None outside the mesh."""
    at = coordinate(layout.mesh, rank)
    if at is None:
        return None
    result = []
    for length, mesh_dims in zip(layout.shape, layout.order, strict=True):
        indices = list(range(length))
        for mesh_dim in mesh_dims:
            placement = layout.placements[mesh_dim]
            assert isinstance(placement, sw.Shard)
            if placement.sizes is None:
                indices = cut(indices, layout.mesh.shape[mesh_dim], at[mesh_dim])
            else:
                begin = sum(placement.sizes[: at[mesh_dim]])
                indices = indices[begin : begin + placement.sizes[at[mesh_dim]]]
        result.append(indices)
    return result


def part(whole: Tensor, indices: list[list[int]]) -> Tensor:
    bits = whole.view(torch.uint8) if whole.dtype in FLOAT8 else whole
    for dim, along in enumerate(indices):
        begin = along[0] if along else 0
        bits = bits.narrow(dim, begin, len(along))
    return bits.contiguous().view(whole.dtype).clone()


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8)) if a.dtype in FLOAT8 else torch.equal(a, b)


def check(
    pair: Pair, result: sw.MeshTensor, rank: int, what: str = "", on_cpu: Callable[[Tensor], Tensor] = lambda t: t
) -> None:
    """That `result` is what the pair's tensor is on this rank afterwards, bit by bit."""
    wanted = pair.output(rank)
    assert result.layout == pair.after
    if wanted is None:
        assert result.local is None, f"{pair} {what}"
    else:
        assert same_bits(on_cpu(result.local), wanted), f"{pair} {what}\n{result.local}\n{wanted}"


@dataclass
class Pair:
    """A tensor in one layout, and the layout that it goes to. `addends` has the whole tensor once per coordinate of
    the mesh dims that hold addends."""

    before: sw.Layout
    after: sw.Layout
    addends: dict[tuple[int, ...], Tensor]

    def __str__(self) -> str:
        return f"{self.before}  ->  {self.after}"

    def input(self, rank: int) -> Tensor | None:
        indices = held(self.before, rank)
        return None if indices is None else part(self.addends[self._key(rank, self._partial_dims)], indices)

    def output(self, rank: int) -> Tensor | None:
        indices = held(self.after, rank)
        if indices is None:
            return None
        kept = dict(zip(self._kept_dims, self._key(rank, self._kept_dims), strict=True))
        chosen = [
            addend
            for key, addend in sorted(self.addends.items())
            if all(kept.get(dim, at) == at for dim, at in zip(self._partial_dims, key, strict=True))
        ]
        return part(self._combined(chosen), indices)

    def whole(self) -> Tensor:
        """The global tensor, where no addends stay."""
        return self._combined([addend for _, addend in sorted(self.addends.items())])

    @property
    def divisor(self) -> int:
        """By what addends that are combined are divided."""
        return math.prod(self.before.mesh.shape[dim] for dim in self._combined_dims if self._op(dim) == "avg")

    @property
    def ops(self) -> set[str]:
        """Of the addends that are combined."""
        return {self._op(dim) for dim in self._combined_dims}

    @property
    def _partial_dims(self) -> list[int]:
        return [dim for dim, placement in enumerate(self.before.placements) if placement.is_partial()]

    @property
    def _kept_dims(self) -> list[int]:
        same_mesh = self.before.mesh == self.after.mesh
        return [dim for dim in self._partial_dims if same_mesh and self.after.placements[dim].is_partial()]

    @property
    def _combined_dims(self) -> list[int]:
        return [dim for dim in self._partial_dims if dim not in self._kept_dims]

    def _op(self, dim: int) -> str:
        placement = self.before.placements[dim]
        assert isinstance(placement, sw.Partial)
        return placement.op

    def _key(self, rank: int, dims: Sequence[int]) -> tuple[int, ...]:
        at = coordinate(self.before.mesh, rank)
        return () if at is None else tuple(at[dim] for dim in dims)

    def _combined(self, addends: list[Tensor]) -> Tensor:
        if len(addends) == 1:
            return addends[0]
        op = next((op for op in self.ops if op != "avg"), "sum")
        wide = [addend.to(_wide(addend.dtype)) for addend in addends]
        total = wide[0]
        for addend in wide[1:]:
            total = {"sum": torch.add, "min": torch.minimum, "max": torch.maximum, "product": torch.mul}[op](
                total, addend
            )
        return (total / self.divisor if self.divisor > 1 else total).to(addends[0].dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64


class Layouts:
    """Random meshes, layouts and pairs of layouts within a world of some ranks."""

    def __init__(self, seed: int, world: int) -> None:
        self.random = random.Random(seed)
        self.world = world

    def mesh(self) -> sw.Mesh:
        shape: list[int] = []
        for _ in range(self.random.randint(1, 3)):
            shape.append(self.random.randint(1, max(1, self.world // math.prod(shape))))
        ranks = list(range(self.world))
        if self.random.random() < 0.5:
            self.random.shuffle(ranks)
        return sw.Mesh(shape, ranks[: math.prod(shape)])

    def shape(self, longest: int) -> list[int]:
        ndim = 0 if self.random.random() < 0.05 else self.random.randint(1, 3)
        return [0 if self.random.random() < 0.03 else self.random.randint(1, longest) for _ in range(ndim)]

    def layout(
        self, shape: Sequence[int], dtype: torch.dtype, mesh: sw.Mesh, partials: dict[int, sw.Partial]
    ) -> sw.Layout:
        placements: list[sw.Placement] = []
        order: list[list[int]] = [[] for _ in shape]
        for mesh_dim in range(mesh.ndim):
            if mesh_dim in partials:
                placements.append(partials[mesh_dim])
            elif not shape or self.random.random() < 0.3:
                placements.append(sw.Replicate())
            else:
                dim = self.random.randrange(len(shape))
                placements.append(sw.Shard(dim))
                order[dim].append(mesh_dim)
        for dim, mesh_dims in enumerate(order):
            self.random.shuffle(mesh_dims)
            if mesh_dims and self.random.random() < 0.25:
                outermost = mesh_dims[0]
                placements[outermost] = sw.Shard(dim, self._parts(shape[dim], mesh.shape[outermost]))
        return sw.Layout(shape, dtype, mesh, placements, order)

    def pair(self, dtype: torch.dtype | None = None, longest: int = 7, ops: Sequence[str] | None = None) -> Pair:
        dtype = self.random.choice(DTYPES) if dtype is None else dtype
        shape, mesh = self.shape(longest), self.mesh()
        partials = self._partials(mesh, dtype, ops)
        before = self.layout(shape, dtype, mesh, partials)
        if self.random.random() < 0.6:
            kept = {dim: partial for dim, partial in partials.items() if self.random.random() < 0.3}
            after = self.layout(shape, dtype, mesh, kept)
        else:
            after = self.layout(shape, dtype, self.mesh(), {})
        return Pair(before, after, self._addends(before))

    def _parts(self, length: int, count: int) -> list[int]:
        borders = sorted([0, length, *(self.random.randint(0, length) for _ in range(count - 1))])
        return [b - a for a, b in itertools.pairwise(borders)]

    def _partials(self, mesh: sw.Mesh, dtype: torch.dtype, ops: Sequence[str] | None) -> dict[int, sw.Partial]:
        ops = _ops_of(dtype) if ops is None else ops
        if not ops or self.random.random() < 0.4:
            return {}
        op = self.random.choice(ops)
        mixed = op in ("sum", "avg") and (dtype.is_floating_point or dtype.is_complex)
        return {
            dim: sw.Partial(self.random.choice(("sum", "avg")) if mixed else op)
            for dim in range(mesh.ndim)
            if self.random.random() < 0.5
        }

    def _addends(self, layout: sw.Layout) -> dict[tuple[int, ...], Tensor]:
        dims = [dim for dim, placement in enumerate(layout.placements) if placement.is_partial()]
        keys = itertools.product(*(range(layout.mesh.shape[dim]) for dim in dims))
        ops = {p.op for p in layout.placements if isinstance(p, sw.Partial)}
        return {key: self._values(layout, ops) for key in keys}

    def _values(self, layout: sw.Layout, ops: set[str]) -> Tensor:
        count, dtype = math.prod(layout.shape), layout.dtype
        if dtype in FLOAT8 or dtype == torch.bool:
            most = 1 if dtype == torch.bool else 120
            bits = torch.tensor([self.random.randint(0, most) for _ in range(count)], dtype=torch.uint8)
            return (bits.bool() if dtype == torch.bool else bits.view(dtype)).view(layout.shape)
        if ops == {"product"}:
            values = [self.random.choice((1, 1, 2) if dtype in UNSIGNED else (-1, 1, 2)) for _ in range(count)]
        elif dtype.is_floating_point or dtype.is_complex:
            values = [UNIT * self.random.randint(-2, 2) for _ in range(count)]
        else:
            values = [self.random.randint(0 if dtype in UNSIGNED else -9, 9) for _ in range(count)]
        return torch.tensor(values, dtype=torch.float64).view(layout.shape).to(dtype)


def _ops_of(dtype: torch.dtype) -> tuple[str, ...]:
    if dtype in FLOAT8 or dtype == torch.bool:
        return ()
    if dtype.is_complex:
        return ("sum", "product")
    return ("sum", "min", "max", "product")
