"""What `async_op=True` gives: one type, which tells without waiting whether the call is over."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import shardway as sw
from tests.support.hosts import Host, torchrun_on
from tests.support.ranks import ranks, run_ranks

SOME_TIME_S = 40.0


def calls_that_wait_for_nobody(rank: int, size: int) -> dict[str, Callable[[], sw.Handle[Any]]]:
    """Each starts a call that goes on while the others have not come yet."""
    x = torch.full((rank + 1, 2), float(rank))
    sizes = [r + 1 for r in range(size)]
    rows = torch.ones(sum(sizes), 2)
    layout = sw.Layout((2 * size, 2), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    t = sw.MeshTensor(torch.full((2, 2), float(rank)), layout)
    d = DTensor.from_local(torch.full((2, 2), float(rank)), init_device_mesh("cpu", (size,)), [Shard(0)])
    return {
        "all_gather_v": lambda: sw.all_gather_v(x, sizes=sizes, async_op=True),
        "all_gather_v, with a gradient": lambda: sw.all_gather_v(
            x.clone().requires_grad_(), sizes=sizes, async_op=True
        ),
        "reduce_scatter_v": lambda: sw.reduce_scatter_v(rows, sizes, async_op=True),
        "all_to_all_v": lambda: sw.all_to_all_v(torch.ones(size), [1] * size, recv_sizes=[1] * size, async_op=True),
        "all_reduce": lambda: sw.all_reduce(rows, async_op=True),
        "broadcast to this rank": lambda: sw.broadcast(rows, src=size - 1, async_op=True),
        "redistribute": lambda: sw.redistribute(t, [sw.Replicate()], async_op=True),
        "redistribute of a list": lambda: sw.redistribute([t, t], [sw.Replicate()], async_op=True),
        "redistribute of a DTensor": lambda: sw.redistribute(d, [Replicate()], async_op=True),
        "redistribute of DTensors": lambda: sw.redistribute([d, d], [Replicate()], async_op=True),
    }


def others(rank: int, size: int) -> dict[str, Callable[[], sw.Handle[Any]]]:
    """Each starts a call in which the ranks hear one another first."""
    x = torch.full((rank + 1, 2), float(rank))
    return {
        "sizes unknown": lambda: sw.all_gather_v(x, async_op=True),
        "a list": lambda: sw.all_gather_v([x, x[0]], async_op=True),
        "reduce_scatter_v of a list": lambda: sw.reduce_scatter_v([torch.ones(2 * size)], async_op=True),
        "gather_v": lambda: sw.gather_v(x, async_op=True),
        "scatter_v": lambda: sw.scatter_v(torch.ones(size) if rank == 0 else None, async_op=True),
    }


def until_completed(handle: sw.Handle[Any], what: str) -> None:
    deadline = time.monotonic() + SOME_TIME_S
    while not handle.is_completed():
        assert time.monotonic() < deadline, f"{what} is never completed"
        time.sleep(0.001)


def check_calls(rank: int, size: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    sw.all_gather_v(torch.ones(1))  # the first call of a group is a meeting of all
    for what, start in calls_that_wait_for_nobody(rank, size).items():
        if rank == size - 1:
            store.wait([f"{other} looked at {what}" for other in range(size - 1)])
        handle = start()
        assert type(handle) is sw.Handle, what
        if rank < size - 1:
            assert not handle.is_completed(), what  # the last rank begins when it hears so
            store.set(f"{rank} looked at {what}", "")
        until_completed(handle, what)
        first = handle.wait()
        assert handle.is_completed() and type(handle.wait()) is type(first), what
    for what, start in others(rank, size).items():
        handle = start()
        assert type(handle) is sw.Handle, what
        until_completed(handle, what)
        handle.wait()
        assert handle.is_completed(), what


@pytest.mark.parametrize("transport", ["shm", "c10d"])
@ranks(2, 3)
def test_a_call_is_completed_when_all_have_come_and_not_before(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    check_calls(rank, size)


def test_a_call_in_two_levels_is_completed_when_all_have_come_and_not_before(three_hosts: tuple[Host, ...]):
    run_ranks(3, check_calls, enter=torchrun_on(three_hosts, [0, 0, 1]))


@ranks(2)
def test_a_call_that_failed_is_completed(rank, size):
    handle = sw.all_reduce(torch.ones(2, 2 + rank), async_op=True)
    until_completed(handle, "all_reduce")
    for _ in range(2):
        with pytest.raises(ValueError, match="ranks disagree on shape"):
            handle.wait()
        assert handle.is_completed()


def lose_the_other(rank: int, size: int, asks_first: bool) -> None:
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    sw.all_gather_v(torch.ones(1))
    if rank == 1:
        os._exit(1)
    handle = sw.all_gather_v(torch.ones(3), sizes=[3, 3], async_op=True)
    if asks_first:
        until_completed(handle, "a gather with a rank that died")
    with pytest.raises(dist.DistBackendError):
        handle.wait()
    assert handle.is_completed()
    dist.destroy_process_group()


@pytest.mark.parametrize("asks_first", [True, False], ids=["asked before wait", "asked after wait"])
def test_on_gloo_a_call_whose_peer_died_is_completed(asks_first: bool):
    run_ranks(2, lose_the_other, asks_first, dying=[1])


@pytest.mark.parametrize("transport", ["shm", "c10d"])
@ranks(2)
def test_one_thread_waits_while_another_asks(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    store = dist.distributed_c10d._get_default_store()
    sw.all_gather_v(torch.ones(1))
    if rank == 1:
        store.wait(["asked"])
    handle = sw.all_gather_v(torch.ones(1), sizes=[1, 1], async_op=True)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(handle.wait()))
    thread.start()
    if rank == 0:
        assert not any(handle.is_completed() for _ in range(100))
        store.set("asked", "")
    thread.join(SOME_TIME_S)
    assert handle.is_completed() and results[0][1] == (1, 1)


def test_a_call_of_one_rank_is_completed_at_once():
    x = torch.ones(3, 2)
    layout = sw.Layout((3, 2), torch.float32, sw.Mesh((1,)), [sw.Shard(0)])
    handles: list[sw.Handle[Any]] = [
        sw.all_gather_v(x, async_op=True),
        sw.all_gather_v([x], async_op=True),
        sw.all_reduce(x, async_op=True),
        sw.redistribute(sw.MeshTensor(x, layout), [sw.Replicate()], async_op=True),
    ]
    assert all(type(handle) is sw.Handle and handle.is_completed() for handle in handles)


def test_the_type_can_be_said_with_its_result():
    assert sw.Handle[torch.Tensor].__origin__ is sw.Handle
