"""Messages that do not come, or come late, or are not what was asked for: none is ever taken for another."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardway  # noqa: F401
from tests.support.ranks import ranks

SHORT = timedelta(seconds=0.2)
CPU = torch.device("cpu")


def started(work: dist.Work | None) -> dist.Work:
    assert work is not None
    return work


def backend_of(group: Any) -> Any:
    return group._get_backend(CPU)


def meet(name: str, rank: int, size: int) -> None:
    """A barrier beside the groups that are tried."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{name}/{rank}", "here")
    store.wait([f"{name}/{peer}" for peer in range(size)], timedelta(seconds=20))


def receive(group: Any) -> None:
    dist.recv(torch.zeros(1), 1, group=group)


def receive_from_anybody(group: Any) -> None:
    dist.recv(torch.zeros(1), group=group)


def wait_for_asked(group: Any) -> None:
    started(dist.irecv(torch.zeros(1), 1, group=group)).wait(SHORT)


def wait_for_future(group: Any) -> None:
    started(dist.irecv(torch.zeros(1), 1, group=group)).get_future().wait()


def wait_for_batch(group: Any) -> None:
    calls = [dist.P2POp(dist.irecv, torch.zeros(1), 1, group=group) for _ in range(2)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()


WAITS: list[tuple[Callable[[Any], None], str]] = [
    (receive, "recv: rank 1 could not be reached: it sent nothing within 200 ms"),
    (receive_from_anybody, "recv: no rank sent anything within 200 ms"),
    (wait_for_asked, "recv: rank 1 could not be reached: it sent nothing within 200 ms"),
    (wait_for_future, "recv: rank 1 could not be reached: it sent nothing within 200 ms"),
    (wait_for_batch, "recv: rank 1 could not be reached: it sent nothing within 200 ms"),
]


@ranks(2, backend="shardway")
def test_a_late_message_never_satisfies_a_later_receive(rank: int, size: int) -> None:
    for case, (wait, said) in enumerate(WAITS):
        group = dist.new_group(timeout=SHORT)
        meet(f"{case} begins", rank, size)
        if rank == 0:
            with pytest.raises((dist.DistBackendError, RuntimeError), match=said):
                wait(group)
        meet(f"{case} timed out", rank, size)
        if rank == 1:
            for value in (1.0, 2.0):
                with pytest.raises(dist.DistBackendError, match="send: rank 0 could not be reached"):
                    dist.send(torch.tensor([value]), 0, group=group)
        meet(f"{case} sent", rank, size)
        if rank == 0:
            got = torch.zeros(1)
            for _ in range(2):
                with pytest.raises(dist.DistBackendError, match=said):
                    dist.recv(got, 1, group=group)
            assert got.item() == 0
        with pytest.raises(dist.DistBackendError, match="all_reduce"):
            dist.all_reduce(torch.ones(1), group=group)


@ranks(2, backend="shardway")
def test_a_message_that_came_before_the_others_were_given_up_is_not_taken(rank: int, size: int) -> None:
    """It was sent in time, but for a receive that waits for another tag."""
    group = dist.new_group(timeout=SHORT)
    if rank == 1:
        dist.send(torch.tensor([1.0]), 0, group=group, tag=5)
    meet("sent", rank, size)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="rank 1 could not be reached: it sent nothing within 200 ms"):
            dist.recv(torch.zeros(1), 1, group=group, tag=4)
        with pytest.raises(
            dist.DistBackendError, match="recv: rank 1 could not be reached: it sent nothing within 200 ms"
        ):
            dist.recv(torch.zeros(1), 1, group=group, tag=5)


@ranks(2, backend="shardway")
def test_a_dropped_receive_takes_its_message_along(rank: int, size: int) -> None:
    if rank == 1:
        meet("asked", rank, size)
        for value in range(1, 4):
            dist.send(torch.tensor([float(value)]), 0)
    else:
        started(dist.irecv(torch.zeros(1), 1))
        gc.collect()
        second = started(dist.irecv(torch.zeros(1), 1))
        meet("asked", rank, size)
        last = torch.zeros(1)
        dist.recv(last, 1)
        second.wait()
        assert last.item() == 3 and second.result()[0].item() == 2
    dist.barrier()


@ranks(2, backend="shardway")
def test_after_a_message_of_another_length_or_dtype_comes_the_next(rank: int, size: int) -> None:
    wrong = [torch.ones(4), torch.ones(2, dtype=torch.int32), torch.ones(0)]
    if rank == 0:
        for t in wrong:
            dist.send(t, 1)
            dist.send(torch.tensor([7.0, 8.0]), 1)
    else:
        for how in ("recv", "irecv", "anybody"):
            t = torch.zeros(2)
            with pytest.raises(ValueError, match="recv: rank 0 sent"):
                if how == "irecv":
                    work = started(dist.irecv(t, 0))
                    while not work.is_completed():
                        time.sleep(0.001)
                    assert not work.is_success()
                    work.wait()
                else:
                    dist.recv(t, 0 if how == "recv" else None)
            assert t.tolist() == [0, 0]
            dist.recv(t, 0)
            assert t.tolist() == [7, 8]
    dist.barrier()


@ranks(2, backend="shardway")
def test_a_receive_waits_as_long_as_its_group_and_not_as_the_last_call(rank: int, size: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=20))
    options = dist.BarrierOptions()
    options.timeout = timedelta(seconds=0.3)
    backend_of(group).barrier(options).wait()
    if rank == 1:
        time.sleep(0.8)
        dist.send(torch.ones(1), 0, group=group)
    else:
        dist.recv(torch.zeros(1), 1, group=group)
    backend_of(group).set_timeout(SHORT)
    if rank == 0:
        with pytest.raises(dist.DistBackendError, match="rank 1 could not be reached: it sent nothing within 200 ms"):
            dist.recv(torch.zeros(1), 1, group=group)


@ranks(3, backend="shardway")
def test_who_comes_late_to_a_monitored_barrier_is_not_in_the_next(rank: int, size: int) -> None:
    world = dist.group.WORLD
    assert world is not None
    if rank == 1:
        time.sleep(0.6)
    with pytest.raises(dist.DistBackendError, match="Rank 1 failed to pass monitoredBarrier in 300 ms"):
        world.monitored_barrier(timedelta(seconds=0.3))
    meet("first", rank, size)
    if rank != 1:
        with pytest.raises(dist.DistBackendError, match="Rank 1 failed to pass monitoredBarrier in 300 ms"):
            world.monitored_barrier(timedelta(seconds=0.3))
    meet("second", rank, size)
    t = torch.ones(1)
    dist.all_reduce(t)
    assert t.item() == size
