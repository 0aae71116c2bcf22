"""Every collective of the backend, on odd shapes and every dtype, against dense references."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import shardway as sw
from tests.support.ranks import ranks

EXACT = [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
MOVED_ONLY = [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32]
LARGE = 40_001  # elements: past the slot beside the header, and of four bytes past one slot of a ring

SHAPES = [(), (0,), (1,), (3, 0, 2), (7, 5), (LARGE,)]


def made(rank: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, salt: int = 0) -> torch.Tensor:
    """What `rank` brings: every rank can make every other's."""
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype in MOVED_ONLY:
        bits = {1: torch.uint8, 4: torch.int32}[dtype.itemsize]
        return torch.randint(0, 100, shape, generator=generator).to(bits).view(dtype)
    if dtype.is_complex or dtype.is_floating_point:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 7, shape, generator=generator).to(dtype)


def spread(t: torch.Tensor) -> torch.Tensor:
    """The same values in memory with gaps."""
    wide = torch.zeros((*t.shape, 2), dtype=t.dtype)
    wide[..., 1] = t
    return wide[..., 1]


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if got.dtype in MOVED_ONLY:
        bits = {1: torch.uint8, 4: torch.int32}[got.dtype.itemsize]
        got, expected = got.contiguous().view(bits), expected.contiguous().view(bits)
    assert torch.equal(got, expected), (got, expected)


def combined(inputs: list[torch.Tensor], op: Any) -> torch.Tensor:
    """In rank order; 16-bit floats accumulate in 32 and round once."""
    dtype = inputs[0].dtype
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    if dtype in (torch.uint16, torch.uint32, torch.uint64):
        wide = torch.int64  # has kernels, and these small numbers fit
    step: Any = {
        ReduceOp.SUM: torch.add,
        ReduceOp.AVG: torch.add,
        ReduceOp.PRODUCT: torch.mul,
        ReduceOp.MIN: torch.minimum,
        ReduceOp.MAX: torch.maximum,
        ReduceOp.BAND: torch.bitwise_and,
        ReduceOp.BOR: torch.bitwise_or,
        ReduceOp.BXOR: torch.bitwise_xor,
    }[op]
    total = inputs[0].to(wide)
    for each in inputs[1:]:
        total = step(total, each.to(wide))
    if op == ReduceOp.AVG and dtype.is_complex:
        total = torch.view_as_complex(torch.view_as_real(total) / len(inputs))
    elif op == ReduceOp.AVG:
        total = total / len(inputs)
    return total.to(dtype)


@ranks(1, 2, 3, 4, backend="shardway")
def test_all_reduce_and_reduce_equal_the_dense_combination(rank: int, size: int) -> None:
    arithmetic = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    bitwise = [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]
    cases = [(dtype, op) for dtype in EXACT for op in arithmetic + bitwise]
    cases += [(dtype, op) for dtype in FLOATING for op in [*arithmetic, ReduceOp.AVG]]
    cases += [(dtype, op) for dtype in COMPLEX for op in (ReduceOp.SUM, ReduceOp.AVG)]
    cases += [(torch.bool, op) for op in bitwise]
    for salt, (dtype, op) in enumerate(cases):
        for shape in SHAPES if (dtype, op) == (torch.float32, ReduceOp.SUM) else SHAPES[-2:]:
            inputs = [made(r, shape, dtype, salt) for r in range(size)]
            expected = combined(inputs, op)
            t = inputs[rank].clone()
            dist.all_reduce(t, op=op)
            same(t, expected)
            gaps = spread(inputs[rank])
            dist.all_reduce(gaps, op=op)
            same(gaps, expected)
            root = salt % size
            t = inputs[rank].clone()
            dist.reduce(t, root, op=op)
            same(t, expected if rank == root else inputs[rank])


@ranks(1, 3, backend="shardway")
def test_sparse_tensors_are_added_up(rank: int, size: int) -> None:
    def brought(r: int) -> torch.Tensor:
        places = torch.tensor([[r, 5, 5], [0, r, r]])
        return torch.sparse_coo_tensor(places, made(r, (3, 2)), (6, 4, 2))

    t = brought(rank).clone()
    dist.all_reduce(t)
    expected = torch.stack([brought(r).to_dense() for r in range(size)]).sum(0)
    torch.testing.assert_close(t.to_dense(), expected)


@ranks(3, backend="shardway")
def test_a_large_reduction_on_one_rank_is_shared(rank: int, size: int) -> None:
    inputs = [made(r, (400_001,)) for r in range(size)]
    t = inputs[rank].clone()
    dist.reduce(t, 1)
    same(t, combined(inputs, ReduceOp.SUM) if rank == 1 else inputs[rank])


@ranks(2, 3, backend="shardway")
def test_a_factor_is_multiplied_before_the_sum(rank: int, size: int) -> None:
    for shape in [(5,), (LARGE,)]:
        inputs = [made(r, shape, torch.float64) for r in range(size)]
        for factor in (0.25, torch.tensor([0.25])):
            t = inputs[rank].clone()
            dist.all_reduce(t, op=dist._make_nccl_premul_sum(factor))
            same(t, combined([x * 0.25 for x in inputs], ReduceOp.SUM))


@ranks(1, 2, 3, 4, backend="shardway")
def test_moves_bring_every_dtype_and_shape_unchanged(rank: int, size: int) -> None:
    for dtype in [torch.bool, *EXACT, *FLOATING, *COMPLEX, *MOVED_ONLY]:
        for shape in SHAPES if dtype == torch.float32 else SHAPES[-2:]:
            inputs = [made(r, shape, dtype) for r in range(size)]
            for root in {0, size - 1}:
                for t in (inputs[rank].clone(), spread(inputs[rank])):
                    dist.broadcast(t, root)
                    same(t, inputs[root])
            check_gathers(rank, size, inputs)
            check_scatters(rank, size, inputs)


def check_gathers(rank: int, size: int, inputs: list[torch.Tensor]) -> None:
    mine, root = inputs[rank].clone(), size - 1
    for outputs in ([torch.empty_like(mine) for _ in inputs], [spread(torch.zeros_like(mine)) for _ in inputs]):
        dist.all_gather(outputs, mine)
        for got, expected in zip(outputs, inputs, strict=True):
            same(got, expected)
    outputs = [torch.empty_like(mine) for _ in inputs]
    dist.gather(mine, outputs if rank == root else None, dst=root)
    if rank == root:
        for got, expected in zip(outputs, inputs, strict=True):
            same(got, expected)
    if mine.dim() == 0:
        return
    whole = torch.empty((size * mine.shape[0], *mine.shape[1:]), dtype=mine.dtype)
    dist.all_gather_into_tensor(whole, spread(mine))
    same(whole, torch.cat(inputs))
    same(mine, inputs[rank])


def check_scatters(rank: int, size: int, inputs: list[torch.Tensor]) -> None:
    out = torch.empty_like(inputs[rank])
    dist.scatter(out, [spread(x) for x in inputs] if rank == 0 else None, src=0)
    same(out, inputs[rank])
    outputs = [torch.empty_like(out) for _ in inputs]
    dist.all_to_all(outputs, [inputs[rank] for _ in inputs])
    for got, expected in zip(outputs, inputs, strict=True):
        same(got, expected)


@ranks(1, 2, 3, 4, backend="shardway")
def test_lists_may_differ_in_size(rank: int, size: int) -> None:
    for unit in (1, 30_000):
        sizes = [unit * (2 * r + 1) if r != 1 else 0 for r in range(size)]
        inputs = [made(r, (sizes[r], 2)) for r in range(size)]
        outputs = [torch.empty(n, 2) for n in sizes]
        dist.all_gather(outputs, inputs[rank])
        for got, expected in zip(outputs, inputs, strict=True):
            same(got, expected)
        addends = [[made(r, (n,), salt=r) for n in sizes] for r in range(size)]
        out = torch.empty(sizes[rank])
        dist.reduce_scatter(out, addends[rank])
        same(out, combined([lists[rank] for lists in addends], ReduceOp.SUM))
        # rank i sends i + j + 1 rows to rank j, and none to rank 1
        rows = [[unit * (i + j + 1) if j != 1 else 0 for j in range(size)] for i in range(size)]
        sent = [[made(i, (n, 3), salt=j) for j, n in enumerate(rows[i])] for i in range(size)]
        outputs = [torch.empty(rows[i][rank], 3) for i in range(size)]
        dist.all_to_all(outputs, sent[rank])
        for i, got in enumerate(outputs):
            same(got, sent[i][rank])
        received = torch.empty(sum(rows[i][rank] for i in range(size)), 3)
        dist.all_to_all_single(received, torch.cat(sent[rank]), [rows[i][rank] for i in range(size)], rows[rank])
        same(received, torch.cat([sent[i][rank] for i in range(size)]))


@ranks(1, 2, 3, 4, backend="shardway")
def test_reduce_scatter_and_all_to_all_of_single_tensors(rank: int, size: int) -> None:
    for rows in (0, 1, 3, 20_001):
        inputs = [made(r, (rows * size, 3)) for r in range(size)]
        for op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.MAX):
            out = torch.empty(rows, 3)
            dist.reduce_scatter_tensor(out, inputs[rank], op=op)
            same(out, combined(inputs, op)[rank * rows : (rank + 1) * rows])
        gaps = spread(torch.zeros(rows, 3))
        dist.reduce_scatter_tensor(gaps, spread(inputs[rank]))
        same(gaps, combined(inputs, ReduceOp.SUM)[rank * rows : (rank + 1) * rows])
        out = torch.empty(rows * size, 3)
        dist.all_to_all_single(out, inputs[rank])
        same(out, torch.cat([x[rank * rows : (rank + 1) * rows] for x in inputs]))


@ranks(2, 3, backend="shardway")
def test_many_tensors_at_once(rank: int, size: int) -> None:
    def list_of(r: int) -> list[torch.Tensor]:
        return [made(r, (3,), salt=0), made(r, (2, 4), salt=1), made(r, (LARGE,), salt=2)]

    mixed = [*list_of(rank), made(rank, (5,), torch.int64)]
    assert dist.group.WORLD is not None
    dist.group.WORLD.allreduce_coalesced(mixed).wait()
    for i, t in enumerate(list_of(rank)):
        same(mixed[i], combined([list_of(r)[i] for r in range(size)], ReduceOp.SUM))
        assert t.shape == mixed[i].shape
    same(mixed[3], combined([made(r, (5,), torch.int64) for r in range(size)], ReduceOp.SUM))
    gathered = [[torch.empty_like(t) for t in list_of(r)] for r in range(size)]
    dist.all_gather_coalesced(gathered, list_of(rank))
    for r in range(size):
        for got, expected in zip(gathered[r], list_of(r), strict=True):
            same(got, expected)
    outputs = [torch.empty(size * t.numel()) for t in list_of(rank)]
    with dist._coalescing_manager():
        for out, t in zip(outputs, list_of(rank), strict=True):
            dist.all_gather_into_tensor(out, t)
    for i, out in enumerate(outputs):
        same(out, torch.cat([list_of(r)[i].flatten() for r in range(size)]))
    parts = [torch.empty(4), torch.empty(LARGE)]
    wholes = [[made(r, (size * p.numel(),), salt=7) for p in parts] for r in range(size)]
    with dist._coalescing_manager():
        for part, whole in zip(parts, wholes[rank], strict=True):
            dist.reduce_scatter_tensor(part, whole)
    for i, part in enumerate(parts):
        total = combined([wholes[r][i] for r in range(size)], ReduceOp.SUM)
        same(part, total[rank * part.numel() : (rank + 1) * part.numel()])
    reduced = list_of(rank)
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in reduced:
            dist.all_reduce(t)
    manager.wait()
    same(reduced[1], combined([list_of(r)[1] for r in range(size)], ReduceOp.SUM))


@ranks(2, 4, backend="shardway")
def test_tensors_in_shared_memory_are_read_where_they_lie(rank: int, size: int) -> None:
    inputs = [made(r, (LARGE,)) for r in range(size)]
    for count in (300, LARGE):
        mine = sw.empty(count)
        mine.copy_(inputs[rank][:count])
        whole = torch.empty(size * count)
        dist.all_gather_into_tensor(whole, mine)
        same(whole, torch.cat([x[:count] for x in inputs]))
        dist.all_reduce(mine)
        same(mine, combined([x[:count] for x in inputs], ReduceOp.SUM))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    assert backend.supports_tensor_alloc(torch.device("cpu"))
    before = sw.memory_stats()["shared_in_use_bytes"]
    block = backend.allocate_tensor(1000, dtype=torch.float64, device=torch.device("cpu"))
    assert block.shape == (1000,) and block.dtype == torch.float64
    assert sw.memory_stats()["shared_in_use_bytes"] >= before + 8000


@ranks(3, backend="shardway")
def test_shardways_own_calls_use_the_same_memory(rank: int, size: int) -> None:
    x = made(rank, (rank + 1, 2))
    gathered, sizes = sw.all_gather_v(x)
    assert sizes == (1, 2, 3)
    same(gathered, torch.cat([made(r, (r + 1, 2)) for r in range(size)]))
    work = dist.all_reduce(torch.ones(40_000), async_op=True)
    handle = sw.all_gather_v(x, async_op=True)
    dist.barrier()
    assert work is not None
    work.wait()
    same(handle.wait()[0], gathered)
    leaf = x.clone().requires_grad_()
    sw.all_gather_v(leaf)[0].sum().backward()
    assert leaf.grad is not None
    same(leaf.grad, torch.full_like(x, size))


def test_it_is_registered_for_the_cpu_and_for_gpus() -> None:
    assert dist.Backend.backend_capability["shardway"] == ["cpu", "cuda"]
    assert dist.Backend("shardway") == "shardway"
    with pytest.raises(ValueError, match="pg_options of shardway are BackendOptions"):
        dist.init_process_group("shardway", store=dist.HashStore(), rank=0, world_size=1, pg_options=object())
