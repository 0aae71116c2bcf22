"""One random call of each collective, with what it must give to every rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import shardway as sw

from . import dense
from .dense import Draw


@dataclass
class Case:
    op: str
    inputs: list[Tensor]  # one per rank
    outputs: list[Tensor]  # likewise
    sizes: list[tuple[int, ...]] | None  # the second result of each rank, where the op has one
    known: list[dict[str, Any]]  # the argument of each rank that saves the op an exchange
    call: Callable[..., Any]  # (x, rank, **options)
    dense: Callable[[Sequence[Tensor]], list[Tensor]]  # inputs of all ranks to outputs of all ranks
    takes_out: bool = True

    def check(self, result: Any, rank: int, what: object = "") -> None:
        if self.sizes is None:
            dense.assert_same_bits(result, self.outputs[rank], f"{self.op} {what}")
            return
        tensor, sizes = result
        dense.assert_same_bits(tensor, self.outputs[rank], f"{self.op} {what}")
        assert sizes == self.sizes[rank], f"{self.op} {what}: {sizes}, not {self.sizes[rank]}"
        assert type(sizes) is tuple and all(type(n) is int for n in sizes), f"{self.op} {what}: {sizes!r}"

    def tensor_of(self, result: Any) -> Tensor:
        return result if self.sizes is None else result[0]


def all_gather_case(draw: Draw, shape: Sequence[int], dim: int, sizes: Sequence[int], dtype: torch.dtype) -> Case:
    def run(parts: Sequence[Tensor]) -> list[Tensor]:
        return [dense.gathered(parts, dim)] * len(sizes)

    inputs = draw.parts(shape, dim, sizes, dtype)
    return Case(
        op="all_gather_v",
        inputs=inputs,
        outputs=run(inputs),
        sizes=[tuple(sizes)] * len(sizes),
        known=[{"sizes": tuple(sizes)}] * len(sizes),
        call=lambda x, rank, **options: sw.all_gather_v(x, dim, **options),
        dense=run,
    )


def reduce_scatter_case(
    draw: Draw,
    shape: Sequence[int],
    dim: int,
    sizes: Sequence[int] | None,
    dtype: torch.dtype,
    op: str = "sum",
    *,
    ranks: int = 0,
    length: int = 0,
) -> Case:
    """Without sizes, `length` is cut into as many parts as there are `ranks`, as torch.chunk does."""
    given = sizes
    sizes = dense.chunk_sizes(length, ranks) if sizes is None else sizes

    def run(addends: Sequence[Tensor]) -> list[Tensor]:
        whole = dense.reduced(addends, op)
        return [dense.block(whole, sizes, rank, dim) for rank in range(len(sizes))]

    inputs = draw.parts(shape, dim, [sum(sizes)] * len(sizes), dtype)
    return Case(
        op="reduce_scatter_v",
        inputs=inputs,
        outputs=run(inputs),
        sizes=None,
        known=[{}] * len(sizes),
        call=lambda x, rank, **options: sw.reduce_scatter_v(x, given, dim, op=op, **options),
        dense=run,
    )


def all_to_all_case(
    draw: Draw, shape: Sequence[int], dim: int, send_sizes: Sequence[Sequence[int]], dtype: torch.dtype
) -> Case:
    """send_sizes[r] is what rank r sends to each."""
    size = len(send_sizes)

    def run(parts: Sequence[Tensor]) -> list[Tensor]:
        return [dense.exchanged(parts, send_sizes, rank, dim) for rank in range(size)]

    inputs = draw.parts(shape, dim, [sum(row) for row in send_sizes], dtype)
    arriving = [tuple(row[rank] for row in send_sizes) for rank in range(size)]
    return Case(
        op="all_to_all_v",
        inputs=inputs,
        outputs=run(inputs),
        sizes=arriving,
        known=[{"recv_sizes": sizes} for sizes in arriving],
        call=lambda x, rank, **options: sw.all_to_all_v(x, send_sizes[rank], dim, **options),
        dense=run,
    )


def all_reduce_case(draw: Draw, shape: Sequence[int], ranks: int, dtype: torch.dtype, op: str = "sum") -> Case:
    def run(addends: Sequence[Tensor]) -> list[Tensor]:
        return [dense.reduced(addends, op)] * ranks

    inputs = [draw.tensor(shape, dtype) for _ in range(ranks)]
    return Case(
        op="all_reduce",
        inputs=inputs,
        outputs=run(inputs),
        sizes=None,
        known=[{}] * ranks,
        call=lambda x, rank, **options: sw.all_reduce(x, op=op, **options),
        dense=run,
    )


def broadcast_case(draw: Draw, shape: Sequence[int], ranks: int, root: int, dtype: torch.dtype) -> Case:
    """`root` is a rank of the group, as in the cases below."""

    def run(inputs: Sequence[Tensor]) -> list[Tensor]:
        if any(x.requires_grad for x in inputs):
            return [torch.stack(list(inputs))[root]] * ranks  # of which every input has a gradient
        return [inputs[root]] * ranks

    inputs = [draw.tensor(shape, dtype) for _ in range(ranks)]
    return Case(
        op="broadcast",
        inputs=inputs,
        outputs=run(inputs),
        sizes=None,
        known=[{}] * ranks,
        call=lambda x, rank, **options: sw.broadcast(x, group_src=root, **options),
        dense=run,
        takes_out=False,
    )


def gather_case(
    draw: Draw, shape: Sequence[int], dim: int, sizes: Sequence[int], root: int, dtype: torch.dtype
) -> Case:
    def run(parts: Sequence[Tensor]) -> list[Tensor]:
        whole = dense.gathered(parts, dim)
        return [whole if rank == root else whole.narrow(dim, 0, 0) for rank in range(len(sizes))]

    inputs = draw.parts(shape, dim, sizes, dtype)
    return Case(
        op="gather_v",
        inputs=inputs,
        outputs=run(inputs),
        sizes=[tuple(sizes)] * len(sizes),
        known=[{"sizes": tuple(sizes)}] * len(sizes),
        call=lambda x, rank, **options: sw.gather_v(x, dim=dim, group_dst=root, **options),
        dense=run,
        takes_out=False,
    )


def scatter_case(
    draw: Draw, shape: Sequence[int], dim: int, sizes: Sequence[int], root: int, dtype: torch.dtype
) -> Case:
    """The ranks that are not the root have no rows: they pass None, but for a gradient and to a compiler."""

    def run(inputs: Sequence[Tensor]) -> list[Tensor]:
        whole = dense.gathered(inputs, dim)
        return [dense.block(whole, sizes, rank, dim) for rank in range(len(sizes))]

    inputs = draw.parts(shape, dim, [sum(sizes) if rank == root else 0 for rank in range(len(sizes))], dtype)
    return Case(
        op="scatter_v",
        inputs=inputs,
        outputs=run(inputs),
        sizes=None,
        known=[{}] * len(sizes),
        call=lambda x, rank, **options: sw.scatter_v(
            x if rank == root or x.requires_grad or torch.compiler.is_compiling() else None,
            dim=dim,
            sizes=sizes if rank == root else None,
            group_src=root,
            **options,
        ),
        dense=run,
        takes_out=False,
    )


def each_op(
    draw: Draw, size: int, shape: Sequence[int], dim: int, dtype: torch.dtype = torch.float64, most: int = 4
) -> Iterator[Case]:
    yield all_gather_case(draw, shape, dim, draw.sizes(size, most), dtype)
    if dtype not in dense.FLOAT8:
        yield reduce_scatter_case(draw, shape, dim, draw.sizes(size, most), dtype)
        yield reduce_scatter_case(draw, shape, dim, None, dtype, ranks=size, length=draw.integer(0, most * size))
        yield all_reduce_case(draw, dense.resized(shape, dim, draw.integer(0, most * size)), size, dtype)
    yield all_to_all_case(draw, shape, dim, [draw.sizes(size, most) for _ in range(size)], dtype)
    root = draw.integer(0, size)
    yield broadcast_case(draw, dense.resized(shape, dim, draw.integer(0, most * size)), size, root, dtype)
    yield gather_case(draw, shape, dim, draw.sizes(size, most), root, dtype)
    yield scatter_case(draw, shape, dim, draw.sizes(size, most), root, dtype)


def each_op_with_out(
    draw: Draw, size: int, shape: Sequence[int], dim: int, dtype: torch.dtype = torch.float64, most: int = 4
) -> Iterator[Case]:
    return (case for case in each_op(draw, size, shape, dim, dtype, most) if case.takes_out)
