"""Work goes on the caller's stream, and with sizes given the host waits for nobody."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.cases import (
    all_gather_case,
    all_reduce_case,
    all_to_all_case,
    broadcast_case,
    each_op,
    gather_case,
    reduce_scatter_case,
)
from tests.support.dense import Draw
from tests.support.gpu_cases import check_close, cuda_alone, on_cpu, on_device

SLEEP_CYCLES = 2_000_000_000  # a second or so
LATE_S = 0.7


def cases_with_sizes(size, draw, dim, dtype):
    """scatter_v is not among them: only its source knows what there is to receive."""
    sizes, shape = [1, 0, *draw.sizes(size, 500)][-size:], (3, 2)
    yield all_gather_case(draw, shape, dim, sizes, dtype)
    yield all_gather_case(draw, shape, dim, [7] * size, dtype)
    yield gather_case(draw, shape, dim, sizes, size - 1, dtype)
    yield all_to_all_case(draw, shape, dim, [draw.sizes(size, 500) for _ in range(size)], dtype)
    yield reduce_scatter_case(draw, shape, dim, sizes, dtype)
    yield reduce_scatter_case(draw, shape, dim, [7] * size, dtype, "avg")
    yield all_reduce_case(draw, shape, size, dtype)
    yield broadcast_case(draw, shape, size, size - 1, dtype)


def calls_with_sizes(rank, size, draw):
    """Every op that is told all sizes, plain, async and backward: a name, and the call."""
    for dim in (0, 1):
        for dtype in (torch.float32, torch.complex64):  # the engine reduces the one, we the other
            for case in cases_with_sizes(size, draw, dim, dtype):
                x, known = on_device(case.inputs[rank]), case.known[rank]
                name = f"{case.op} {dtype} dim={dim}"
                yield name, lambda case=case, x=x, known=known: case.call(x, rank, **known)
                yield f"{name} async", lambda case=case, x=x, known=known: case.call(x, rank, async_op=True, **known)
                g = torch.ones_like(on_device(case.outputs[rank]))
                leaf = x.clone().requires_grad_()
                yield (
                    f"{name} backward",
                    lambda case=case, leaf=leaf, known=known, g=g: torch.autograd.grad(
                        case.tensor_of(case.call(leaf, rank, async_op=True, **known).wait()), leaf, g
                    ),
                )
    xs = [torch.ones(rank + 1, 3, device="cuda"), torch.ones(rank + 1, 1, device="cuda", dtype=torch.bfloat16)]
    sizes = [list(range(1, size + 1))] * 2
    wholes = [torch.ones(sum(sizes[0]), 3, device="cuda")] * 2
    yield "list gather", lambda: sw.all_gather_v(xs, sizes=sizes)
    yield "list gather async", lambda: sw.all_gather_v(xs, sizes=sizes, async_op=True).wait()
    yield "list reduce", lambda: sw.reduce_scatter_v(wholes, sizes)
    mesh = sw.Mesh((size,))
    for source, target in ((sw.Shard(0), sw.Replicate()), (sw.Partial(), sw.Replicate()), (sw.Shard(0), sw.Shard(1))):
        layout = sw.Layout((8, 8), torch.float32, mesh, [source])
        rows = 8 if isinstance(source, sw.Partial) else 8 // size
        t = sw.MeshTensor(torch.ones(rows, 8, device="cuda"), layout)
        name = f"redistribute {source} to {target}"
        yield name, lambda t=t, target=target: sw.redistribute(t, [target])
        yield f"{name} async", lambda t=t, target=target: sw.redistribute(t, [target], async_op=True)
        yield f"{name}, list", lambda t=t, target=target: sw.redistribute([t, t], [target])


def never_waits(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    calls = list(calls_with_sizes(rank, size, Draw(seed)))
    for _ in range(2):  # the first calls meet, and take memory from the driver
        for _, call in calls:
            call()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    is_late = rank == size - 1
    if is_late:
        time.sleep(LATE_S)
    torch.cuda._sleep(SLEEP_CYCLES)
    slept = torch.cuda.Event()
    slept.record()
    began = time.perf_counter()
    for name, call in calls:
        call()
        assert not slept.query(), f"{name}: returned only after the kernel before it"
        assert is_late or time.perf_counter() - began < LATE_S, f"{name}: waited for the last rank"
    torch.cuda.synchronize()


@cuda_alone
@pytest.mark.parametrize("transport", ["", "c10d"])
@pytest.mark.parametrize("size", [2, 4])
def test_with_sizes_given_no_call_waits_for_the_device_or_for_a_rank(run, size, transport, seed):
    run(size, never_waits, seed, transport)


def waits_for_its_own_header(rank, size):
    """Sizes that are not given come over the device, where the group has no other way, on a stream aside."""
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    x = torch.ones(rank + 1, 2, device="cuda")
    sw.all_gather_v(x)
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    torch.cuda._sleep(SLEEP_CYCLES)
    slept = torch.cuda.Event()
    slept.record()
    assert sw.gather_sizes(x) == tuple(range(1, size + 1))
    assert not slept.query(), "gather_sizes waited for the caller's stream"
    gathered, _ = sw.all_gather_v(x)
    assert not slept.query(), "all_gather_v waited for the caller's stream"
    assert on_cpu(gathered).sum() == size * (size + 1)


@cuda_alone
def test_a_header_on_the_device_does_not_wait_for_the_callers_stream(run):
    run(2, waits_for_its_own_header)


def on_another_stream(rank, size, seed):
    """The input is made late on a stream of its own; what comes of it is read there, or where wait() is called."""
    draw = Draw(seed)
    for turn in range(3):
        for dim in (0, 1):
            for case in each_op(draw, size, (3, 40), dim, torch.float64, most=300):
                late = on_device(case.inputs[rank])
                torch.cuda.synchronize()
                side, other = torch.cuda.Stream(), torch.cuda.Stream()
                with torch.cuda.stream(side):
                    torch.cuda._sleep(3_000_000)
                    x = torch.zeros_like(late).add_(late)
                    check_close(case, case.call(x, rank), rank, f"{case.op} dim={dim} on a stream")
                    torch.cuda._sleep(3_000_000)
                    x = torch.zeros_like(late).add_(late)
                    handle = case.call(x, rank, async_op=True)
                with torch.cuda.stream(other):
                    result = handle.wait()
                    del handle
                with torch.cuda.stream(side):  # takes over what memory has been given back too early
                    rubbish = [torch.full((3, 300 * size, 40), -1.0, device="cuda", dtype=torch.float64) for _ in "ab"]
                with torch.cuda.stream(other):
                    check_close(case, result, rank, f"{case.op} dim={dim} waited for on another stream, {turn}")
                del rubbish


@cuda_alone
@pytest.mark.parametrize("size", [2, 4])
def test_calls_keep_to_the_callers_stream(run, size, seed):
    run(size, on_another_stream, seed)
