"""Ranks that share a GPU take from one another by CUDA IPC: what holds on NCCL holds here, with the bits of the CPU."""

from __future__ import annotations

import functools
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.gpu import test_gpu_collectives as collectives
from tests.gpu.test_gpu_compile import every_collective
from tests.gpu.test_gpu_redistribute import random_pairs
from tests.gpu.test_gpu_refusals import says
from tests.gpu.test_gpu_streams_and_waits import SLEEP_CYCLES, on_another_stream
from tests.support.dense import Draw
from tests.support.gpu_cases import cuda_alone, on_cpu
from tests.support.one_gpu import enter_group
from tests.support.ranks import run_ranks

pytestmark = cuda_alone
both_sizes = pytest.mark.parametrize("size", [2, 4], ids=lambda n: f"{n}ranks")


def by_ipc(*parts):
    """A body that runs these parts on the transport, and sees that nothing else moved the tensors."""

    def body(rank, size, *args):
        os.environ["SHARDWAY_TRANSPORT"] = "ipc"
        for part in parts:
            part(rank, size, *args)
            torch.use_deterministic_algorithms(False)
            torch.cuda.synchronize()

    return body


@both_sizes
def test_every_op_moves_every_dtype(run, size, seed):
    run(size, by_ipc(collectives.every_dtype), seed, backend="gloo")


@both_sizes
def test_forward_and_backward_along_every_dim(run, size, seed):
    parts = (
        collectives.reduced_by_the_engine,
        collectives.every_form,
        collectives.gradients,
        collectives.gradient_modes,
    )
    run(size, by_ipc(*parts), seed, backend="gloo")


@both_sizes
def test_lists_travel_and_inputs_stay(run, size, seed):
    run(size, by_ipc(collectives.lists, collectives.own_memory), seed, backend="gloo")


def long_lists(rank, size):
    """More tensors than fit one meeting, of several dtypes."""
    dtypes = (torch.float32, torch.bfloat16, torch.int64)
    rows = [[i % 5 + r for r in range(size)] for i in range(100)]
    parts = [[torch.full((n, 3), i + r, dtype=dtypes[i % 3]) for r, n in enumerate(rows[i])] for i in range(100)]
    xs = [part[rank].cuda() for part in parts]
    for given in (None, rows):
        gathered, sizes = sw.all_gather_v(xs, sizes=given)
        assert [list(s) for s in sizes] == rows
        assert all(on_cpu(got).equal(torch.cat(part)) for got, part in zip(gathered, parts, strict=True))
    reduced = sw.reduce_scatter_v(
        [torch.ones(sum(n), 3, device="cuda", dtype=x.dtype) for n, x in zip(rows, xs, strict=True)], rows
    )
    assert all(got.eq(size).all() and len(got) == n[rank] for got, n in zip(reduced, rows, strict=True))


@both_sizes
def test_long_lists_travel_in_few_meetings(run, size):
    run(size, by_ipc(long_lists), backend="gloo")


@both_sizes
def test_redistribute_gives_what_one_process_computes(run, size, seed):
    run(size, by_ipc(random_pairs), seed, backend="gloo")


@both_sizes
def test_calls_keep_to_the_callers_stream(run, size, seed):
    run(size, by_ipc(on_another_stream), seed, backend="gloo")


def test_calls_compile_in_one_graph(run, seed):
    run(2, by_ipc(every_collective), seed, backend="gloo")


def large(rank, size, seed):
    """More than a pass of the kernels, in odd places, after memory was freed and came back."""
    for turn, rows in enumerate((1, 4097, 70_001, 4097)):
        for dim, shape in ((0, (rows + rank, 33)), (1, (33, rows + rank))):
            x = torch.arange(shape[0] * shape[1], device="cuda", dtype=torch.int32).reshape(shape) * (rank + 1) + turn
            gathered, sizes = sw.all_gather_v(x, dim)
            assert sizes == tuple(rows + r for r in range(size))
            for r, part in enumerate(gathered.split(list(sizes), dim)):
                want = torch.arange(part.numel(), device="cuda", dtype=torch.int32).reshape(part.shape) * (r + 1) + turn
                assert part.equal(want), f"part {r} of dim {dim}, {rows} rows"
            total = sw.all_reduce(gathered.float()[:rows, :rows])
            assert total.equal(gathered.float()[:rows, :rows] * size)
            del x, gathered, part, total
            torch.cuda.empty_cache()


@both_sizes
def test_large_tensors_in_memory_that_comes_and_goes(run, size, seed):
    run(size, by_ipc(large), seed, backend="gloo")


def by_itself(rank, size):
    """A group that has no engine for CUDA tensors."""
    x = torch.full((rank + 1, 2), rank + 1.0, device="cuda")
    gathered, _ = sw.all_gather_v(x)
    assert on_cpu(gathered).sum() == 2 * sum((r + 1) ** 2 for r in range(size))
    assert sw.all_gather_v(x.cpu())[0].equal(gathered.cpu())


@pytest.mark.parametrize("backend", ["gloo", "cpu:shardway"])
def test_it_is_chosen_where_the_group_has_no_other_engine(run, backend):
    run(2, by_itself, backend=backend)


def test_it_can_be_asked_for_where_the_group_has_nccl(run):
    run(2, by_ipc(by_itself), backend="cpu:gloo,cuda:nccl")


def prepared(rank, size):
    x = torch.zeros(rank + 1, 3, device="cuda")
    call = sw.prepare(sw.all_gather_v, x, sizes=tuple(range(1, size + 1)))
    for turn in range(5):
        x.fill_(100 * turn + rank)
        gathered, _ = call.run()
        want = torch.cat([torch.full((r + 1, 3), 100.0 * turn + r) for r in range(size)])
        assert on_cpu(gathered).equal(want), f"turn {turn}"
    call.close()


@both_sizes
def test_a_prepared_call_reads_what_is_there_in_each_run(run, size):
    run(size, by_ipc(prepared), backend="gloo")


def fixed_ops(rank, size):
    """Ops with fixed tensors: by op, the prepared call, its input, and what it gives for inputs of one value a rank."""
    sizes = tuple(range(1, size + 1))
    total = sum(sizes)

    def filled(rows):
        return torch.zeros(rows, 3, device="cuda")

    gathered, scattered, exchanged = filled(rank + 1), filled(total), filled(total)
    for n in (5, 1 << 19):  # the larger one in two steps
        reduced = torch.zeros(n, device="cuda")
        yield (
            "all_reduce",
            sw.prepare(sw.all_reduce, reduced),
            reduced,
            lambda values, n=n: torch.full((n,), sum(values)),
        )
    yield (
        "all_gather_v",
        sw.prepare(sw.all_gather_v, gathered, sizes=sizes),
        gathered,
        lambda values: torch.cat([torch.full((n, 3), v) for n, v in zip(sizes, values, strict=True)]),
    )
    yield (
        "reduce_scatter_v",
        sw.prepare(sw.reduce_scatter_v, scattered, sizes),
        scattered,
        lambda values: torch.full((rank + 1, 3), sum(values)),
    )
    yield (
        "all_to_all_v",
        sw.prepare(sw.all_to_all_v, exchanged, sizes, recv_sizes=[rank + 1] * size),
        exchanged,
        lambda values: torch.cat([torch.full((rank + 1, 3), v) for v in values]),
    )


def value_of(rank, turn):
    return float(100 * turn + rank)


def result_of(call):
    return call.result[0] if isinstance(call.result, tuple) else call.result


def fixed_calls_in_graphs(rank, size):
    for name, call, x, want in fixed_ops(rank, size):
        call.fix()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call.run()
            call.run()
        for turn in range(20):
            values = [value_of(r, turn) for r in range(size)]
            x.fill_(values[rank])
            call.run() if turn % 3 == 0 else graph.replay()
            got = result_of(call).clone()
            x.fill_(-1.0)  # read by nobody any more
            assert on_cpu(got).equal(want(values)), f"{name}, turn {turn}"
        torch.cuda.synchronize()
        dist.barrier()
        del graph
        call.close()


@both_sizes
def test_a_fixed_call_is_captured_and_replayed(run, size):
    run(size, by_ipc(fixed_calls_in_graphs), backend="gloo")


def the_host_waits_for_nobody(rank, size):
    for name, call, x, want in fixed_ops(rank, size):
        call.fix()
        x.fill_(value_of(rank, 1))
        returned = torch.zeros(1)
        dist.barrier()
        if rank == 0:
            call.run()  # while the other ranks have not called it
            returned += 1
        dist.broadcast(returned, 0)
        if rank > 0:
            call.run()
        assert returned.item() == 1
        assert on_cpu(result_of(call)).equal(want([value_of(r, 1) for r in range(size)])), name


@both_sizes
def test_the_host_waits_for_nobody_in_a_fixed_call(run, size):
    run(size, by_ipc(the_host_waits_for_nobody), backend="gloo")


def the_host_waits_for_no_device(rank, size):
    x = torch.ones(rank + 1, 2, device="cuda")
    sizes = tuple(range(1, size + 1))
    sw.all_gather_v(x, sizes=sizes)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda._sleep(SLEEP_CYCLES)
    slept = torch.cuda.Event()
    slept.record()
    for given in (sizes, None):
        gathered, _ = sw.all_gather_v(x, sizes=given)
        assert not slept.query(), "the call returned only after the kernel before it"
    assert on_cpu(gathered).sum() == size * (size + 1)


def disagreements(rank, size):
    x = torch.ones(rank + 1, 2, device="cuda")
    sizes = tuple(range(1, size + 1))
    says(lambda: sw.all_gather_v(x), "nothing was raised")
    says(lambda: sw.all_gather_v(x.double() if rank else x), "disagree on dtype")
    says(lambda: sw.all_gather_v(x.double() if rank else x, sizes=sizes), "the ranks disagree on the dtype")
    wrong = sizes if rank else (1, *(n + 1 for n in sizes[1:]))
    says(
        lambda: sw.all_gather_v(x, sizes=wrong),
        "the ranks disagree on the sizes: rank 1 sends 4 elements to rank 0, which expects 6",
    )
    assert on_cpu(sw.all_gather_v(x, sizes=sizes)[0]).sum() == size * (size + 1)


def a_graph_is_refused(rank, size):
    x = torch.ones(rank + 1, 2, device="cuda")
    sizes = tuple(range(1, size + 1))

    def captured():
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            sw.all_gather_v(x, sizes=sizes)

    says(captured, "cannot be captured in a CUDA graph")
    assert on_cpu(sw.all_gather_v(x, sizes=sizes)[0]).sum() == size * (size + 1)


def test_the_host_waits_for_no_device_and_ranks_that_disagree_all_raise(run):
    run(2, by_ipc(the_host_waits_for_no_device, disagreements, a_graph_is_refused), backend="gloo")


def freed_memory_is_given_back(rank, size):
    """A mapping keeps a peer's memory: it is given up once the owner has freed it."""

    def left():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        for _ in range(8):  # the owner looks at one allocation in each call, and tells the others
            sw.all_gather_v(torch.ones(1, device="cuda"))
        torch.cuda.synchronize()
        dist.barrier()
        free, _ = torch.cuda.mem_get_info()
        dist.barrier()
        return free

    before = left()
    x = torch.ones(256 << 20, device="cuda", dtype=torch.uint8)
    sw.all_gather_v(x)
    del x
    lost = before - left()
    assert lost < 64 << 20, f"{lost >> 20} MiB are not given back"


def test_memory_that_its_owner_freed_is_given_back(run):
    run(2, by_ipc(freed_memory_is_given_back), backend="gloo")


def memory_that_cannot_be_shared(rank, size):
    x = torch.ones(rank + 1, 2, device="cuda")
    says(lambda: sw.all_gather_v(x), "cannot be shared", "expandable_segments:False", "(rank 0)")


def enter(rank, size, *, store: Path, **settings: str) -> None:
    os.environ.update(settings)
    enter_group(rank, size, store=store, backend="gloo")


def test_memory_that_cannot_be_shared_is_refused_with_the_setting_that_helps(gpu, tmp_path):
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    run_ranks(
        2, by_ipc(memory_that_cannot_be_shared), enter=functools.partial(enter, store=tmp_path / "store", **settings)
    )


def survivor_of(rank, size):
    """The last rank dies while the others' streams wait for it."""
    x = torch.full((1 << 20,), rank + 1.0, device="cuda")
    sw.all_gather_v(x)
    torch.cuda.synchronize()
    dist.barrier()
    if rank == size - 1:
        torch.cuda._sleep(20 * SLEEP_CYCLES)
        sw.all_gather_v(x)
        os.kill(os.getpid(), signal.SIGKILL)
    handle = sw.all_gather_v(x, async_op=True)
    began = time.monotonic()
    torch.cuda.synchronize()
    took = time.monotonic() - began
    assert took < 10, f"the stream waited for {took:.1f} s"
    for call in (handle.wait, lambda: sw.all_gather_v(x)):
        with pytest.raises(dist.DistBackendError, match=f"rank {size - 1}"):
            call()
    assert (x * 2).sum().item() == 2 * (rank + 1) * (1 << 20)  # the GPU still works for this process
    dist.destroy_process_group()


@both_sizes
def test_a_killed_rank_leaves_no_stream_waiting(gpu, tmp_path, size):
    """Without MPS, whose server may end with a client that is killed at work."""
    alone = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "none")}
    run_ranks(
        size,
        by_ipc(survivor_of),
        enter=functools.partial(enter, store=tmp_path / "store", **alone),
        dying={size - 1},
    )
    fresh = by_ipc(lambda rank, size: collectives.gradients(rank, size, 1))
    run_ranks(2, fresh, enter=functools.partial(enter, store=tmp_path / "fresh", **alone))


def survivor_of_an_idle_rank(rank, size):
    x = torch.full((1 << 20,), rank + 1.0, device="cuda")
    sw.all_gather_v(x)
    torch.cuda.synchronize()
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match=f"rank {size - 1}"):
        sw.all_gather_v(x)
    assert (x * 2).sum().item() == 2 * (rank + 1) * (1 << 20)


@both_sizes
def test_a_rank_that_is_killed_idle_under_mps_is_survived(gpu, tmp_path, size):
    run_ranks(
        size,
        by_ipc(survivor_of_an_idle_rank),
        enter=functools.partial(enter, store=tmp_path / "store"),
        dying={size - 1},
    )


def survivor_of_replays(rank, size):
    """The last rank dies while the others replay a graph that waits for it."""
    x = torch.full((1 << 16,), rank + 1.0, device="cuda")
    call = sw.prepare(sw.all_gather_v, x)
    call.fix()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.run()
    graph.replay()
    torch.cuda.synchronize()
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(3):
        graph.replay()
    began = time.monotonic()
    torch.cuda.synchronize()
    took = time.monotonic() - began
    assert took < 10, f"the stream waited for {took:.1f} s"
    with pytest.raises(dist.DistBackendError, match=f"rank {size - 1}"):
        call.run()


@both_sizes
def test_a_killed_rank_leaves_no_replay_waiting(gpu, tmp_path, size):
    alone = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "none")}
    run_ranks(
        size,
        by_ipc(survivor_of_replays),
        enter=functools.partial(enter, store=tmp_path / "store", **alone),
        dying={size - 1},
    )


def random_cases(rank, size, seed):
    draw = Draw(seed)
    for _ in range(30):
        sizes = draw.sizes(size, 5000)
        x = torch.full((sizes[rank], 3), rank + 1.0, device="cuda", dtype=torch.bfloat16)
        gathered, _ = sw.all_gather_v(x, sizes=sizes)
        back = sw.reduce_scatter_v(gathered, sizes)
        assert back.eq((rank + 1.0) * size).all()


@both_sizes
def test_time_slicing_gives_the_same_results(gpu, tmp_path, size, seed):
    alone = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "none")}
    run_ranks(
        size,
        by_ipc(random_cases),
        seed,
        timeout_s=120,
        enter=functools.partial(enter, store=tmp_path / "store", **alone),
    )
