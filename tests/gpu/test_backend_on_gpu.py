"""torch.distributed on the backend "shardway" with CUDA tensors: ranks that share a GPU, so that code for several GPUs
can be tried on one."""

from __future__ import annotations

import copy
import functools
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import shardway as sw
from tests.gpu.test_gpu_refusals import says
from tests.support.gpu_cases import DEVICE, cuda_alone, on_cpu
from tests.support.one_gpu import enter_group
from tests.support.ranks import run_ranks

BACKEND = "cpu:shardway,cuda:shardway"
both_sizes = pytest.mark.parametrize("size", [2, 4], ids=lambda n: f"{n}ranks")

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.uint8, torch.complex64)


def numbers(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Small integers, whose sums and products are exact, on the CPU."""
    values = torch.arange(torch.Size(shape).numel()) % 3 + rank + 1
    return values.reshape(shape).to(dtype)


def reductions(rank, size):
    ops = {
        dist.ReduceOp.SUM: lambda xs: sum(xs[1:], xs[0]),
        dist.ReduceOp.PRODUCT: lambda xs: functools.reduce(torch.mul, xs),
        dist.ReduceOp.MIN: lambda xs: functools.reduce(torch.minimum, xs),
        dist.ReduceOp.MAX: lambda xs: functools.reduce(torch.maximum, xs),
        dist.ReduceOp.BXOR: lambda xs: functools.reduce(torch.bitwise_xor, xs),
    }
    for dtype in DTYPES:
        for rows in (0, 1, 5, 20_001):
            xs = [numbers(r, (rows, 3), dtype) for r in range(size)]
            for op, combined in ops.items():
                if (dtype.is_complex and op != dist.ReduceOp.SUM) or (
                    op == dist.ReduceOp.BXOR and dtype not in (torch.int32, torch.uint8)
                ):
                    continue
                want = combined(xs)
                x = xs[rank].to(DEVICE, copy=True)
                dist.all_reduce(x, op)
                assert on_cpu(x).equal(want), f"all_reduce of {dtype}, {rows} rows, {op}"
                x = xs[rank].to(DEVICE, copy=True).t()  # not contiguous
                dist.all_reduce(x, op)
                assert on_cpu(x).equal(want.t())
                x = xs[rank].to(DEVICE, copy=True)
                dist.reduce(x, 1, op)
                assert on_cpu(x).equal(want if rank == 1 else xs[rank])
                whole = [numbers(r, (size * rows, 3), dtype) for r in range(size)]
                part = torch.empty(rows, 3, dtype=dtype, device=DEVICE)
                dist.reduce_scatter_tensor(part, whole[rank].to(DEVICE), op)
                assert on_cpu(part).equal(combined(whole)[rank * rows : (rank + 1) * rows])
    x = torch.full((7,), rank + 1.0, device=DEVICE)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.eq((size + 1) / 2).all()


def moves(rank, size):
    for dtype in (*DTYPES, torch.bool, torch.float16):
        parts = [numbers(r, (r + 2, 3), dtype) for r in range(size)]
        even = [numbers(r, (4, 3), dtype) for r in range(size)]
        x, y = parts[rank].to(DEVICE), even[rank].to(DEVICE)
        outs = [torch.empty_like(part, device=DEVICE) for part in parts]
        dist.all_gather(outs, x)  # of different sizes
        assert all(on_cpu(out).equal(part) for out, part in zip(outs, parts, strict=True))
        gathered = torch.empty(4 * size, 3, dtype=dtype, device=DEVICE)
        dist.all_gather_into_tensor(gathered, y)
        assert on_cpu(gathered).equal(torch.cat(even))
        outs = [torch.empty_like(each, device=DEVICE) for each in even]
        dist.gather(y, outs if rank == 1 else None, dst=1)
        assert rank != 1 or all(on_cpu(out).equal(part) for out, part in zip(outs, even, strict=True))
        got = torch.empty_like(y)
        dist.scatter(got, [each.to(DEVICE) for each in even] if rank == 1 else None, src=1)
        assert on_cpu(got).equal(even[rank])
        z = y.clone()
        dist.broadcast(z, 1)
        assert on_cpu(z).equal(even[1])
        send = [torch.cat([numbers(r, (t + 1, 3), dtype) for t in range(size)]) for r in range(size)]
        out = torch.empty((rank + 1) * size, 3, dtype=dtype, device=DEVICE)
        splits = [t + 1 for t in range(size)]
        dist.all_to_all_single(out, send[rank].to(DEVICE), [rank + 1] * size, splits)
        assert on_cpu(out).equal(torch.cat([s.split(splits)[rank] for s in send]))
        outs = [torch.empty(rank + 1, 3, dtype=dtype, device=DEVICE) for _ in range(size)]
        dist.all_to_all(outs, list(send[rank].to(DEVICE).split(splits)))
        assert all(on_cpu(o).equal(s.split(splits)[rank]) for o, s in zip(outs, send, strict=True))


def messages(rank, size):
    x = numbers(rank, (1000, 3), torch.float32).to(DEVICE)
    got = torch.empty_like(x)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, (rank + 1) % size), dist.P2POp(dist.irecv, got, (rank - 1) % size)]
    ):
        work.wait()
    assert on_cpu(got).equal(numbers((rank - 1) % size, (1000, 3), torch.float32))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    dist.barrier()


def sub_groups(rank, size):
    group = dist.new_group(list(range(size // 2)))
    if rank < size // 2:
        x = torch.ones(3, device=DEVICE)
        dist.all_reduce(x, group=group)
        assert x.eq(size // 2).all()
    gathered, sizes = sw.all_gather_v(torch.full((rank + 1,), float(rank), device=DEVICE))  # the same memory, in turn
    x = torch.ones(5, device=DEVICE)
    dist.all_reduce(x)
    assert x.eq(size).all() and sizes == tuple(range(1, size + 1)) and len(gathered) == sum(sizes)


@both_sizes
def test_every_collective(run, size):
    run(size, in_turn(reductions, moves, messages, sub_groups), backend=BACKEND)


def in_turn(*parts):
    def body(rank, size):
        for part in parts:
            part(rank, size)
            if DEVICE == "cuda":
                torch.cuda.synchronize()

    return body


def streams(rank, size):
    """Work that is waited for on another stream is done there; a future as well."""
    x = torch.zeros(1 << 20, device="cuda")
    other = torch.cuda.Stream()
    for turn in range(20):
        x.fill_(turn)
        torch.cuda._sleep(2_000_000)
        x += rank
        work = dist.all_reduce(x, async_op=True)
        with torch.cuda.stream(other):
            if turn % 2:
                work.wait()
            else:
                work.get_future().wait()
            seen = x.clone()
        other.synchronize()
        assert seen.eq(size * turn + sum(range(size))).all(), f"turn {turn}"
        torch.cuda.synchronize()


@cuda_alone
@both_sizes
def test_work_is_waited_for_by_streams(run, size):
    run(size, streams, backend="cuda:shardway")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def batches(size: int) -> list[torch.Tensor]:
    torch.manual_seed(11)
    return list(torch.randn(3, size * 2, 6, dtype=torch.float64))


def trained_alone(size: int) -> list[torch.Tensor]:
    model = Model().double()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches(size):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def train(model, rank, size):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for batch in batches(size):
        optimizer.zero_grad()
        model(batch[2 * rank : 2 * rank + 2].to(DEVICE)).square().mean().backward()
        optimizer.step()


def data_parallel(rank, size):
    model = Model().double().to(DEVICE)
    train(nn.parallel.DistributedDataParallel(model), rank, size)
    for got, want in zip(model.parameters(), trained_alone(size), strict=True):
        torch.testing.assert_close(on_cpu(got.detach()), want, rtol=1e-10, atol=1e-12)


def fully_sharded(rank, size):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh(DEVICE, (size,))
    model = Model().double().to(DEVICE)
    for layer in (model.first, model.second, model):
        fully_shard(layer, mesh=mesh)
    train(model, rank, size)
    for got, want in zip(model.parameters(), trained_alone(size), strict=True):
        torch.testing.assert_close(on_cpu(got.full_tensor().detach()), want, rtol=1e-10, atol=1e-12)


def tensor_parallel(rank, size):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    alone = Model().double()
    mesh = dist.init_device_mesh(DEVICE, (size,))
    model = parallelize_module(
        copy.deepcopy(alone).to(DEVICE), mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()}
    )
    x = batches(size)[0]
    got = model(x.to(DEVICE))
    got.square().mean().backward()
    want = alone(x)
    want.square().mean().backward()
    torch.testing.assert_close(on_cpu(got.detach()), want.detach(), rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(on_cpu(mine.grad.full_tensor()), theirs.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("program", [data_parallel, fully_sharded, tensor_parallel], ids=lambda p: p.__name__)
@both_sizes
def test_programs_equal_one_process(run, size, program):
    run(size, program, backend=BACKEND)


def disagreements(rank, size):
    x = torch.ones(4 + rank % 2, device=DEVICE)
    says(lambda: dist.all_reduce(x), "all_reduce", "rank 1")
    says(lambda: dist.all_reduce(torch.ones(2, device=DEVICE, dtype=[torch.int32, torch.int64][rank % 2])), "dtype")
    says(lambda: dist.all_gather_into_tensor(torch.empty(3, device=DEVICE), x), "all_gather", "the output has 3")
    y = torch.ones(2, device=DEVICE)
    dist.all_reduce(y)  # the group stays usable
    assert y.eq(size).all()


def test_disagreements_are_told_on_every_rank(run):
    run(2, disagreements, backend=BACKEND)


def mixed(rank, size):
    says(lambda: dist.all_gather_into_tensor(torch.empty(2 * size), torch.ones(2, device="cuda")), "is on cpu")
    says(lambda: dist.all_reduce(torch.ones(2, device=["cpu", "cuda"][rank % 2])), "all_reduce")


@cuda_alone
def test_tensors_of_two_devices_are_refused(run):
    run(2, mixed, backend=BACKEND)


def survivor(rank, size):
    x = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        for _ in range(100):
            dist.all_reduce(x)
            torch.cuda.synchronize()
    torch.ones(10, device="cuda").sum().item()  # the device works


@cuda_alone
def test_a_death_is_told(gpu, tmp_path: Path):
    enter = functools.partial(enter_group, store=tmp_path / "store", backend=BACKEND)
    run_ranks(2, survivor, timeout_s=60.0, enter=enter, dying={1})
