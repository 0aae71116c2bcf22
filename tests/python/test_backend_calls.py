"""The backend beyond its results: work and futures, messages, groups, the end of a group."""

from __future__ import annotations

import gc
import os
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import shardway as sw
from shardway._C import ProcessGroupShardway
from tests.support.ranks import ranks, run_ranks
from tests.support.versions import TORCH

CPU = torch.device("cpu")


def backend_of(group: Any = None) -> Any:
    return (group or dist.group.WORLD)._get_backend(CPU)


def started(work: dist.Work | None) -> dist.Work:
    assert work is not None
    return work


@ranks(2, 4, backend="shardway")
def test_async_calls_run_in_the_order_in_which_they_are_made(rank: int, size: int) -> None:
    t = torch.full((70_000,), 1.0)
    works = [started(dist.all_reduce(t, async_op=True)) for _ in range(3)]
    dist.all_reduce(t)  # waits for those before it
    assert torch.equal(t, torch.full_like(t, size**4))
    assert all(work.is_completed() for work in works)
    for work in works:
        assert work.wait() and work.is_success()
        assert TORCH < (2, 13) or work.exception() is None  # before, torch could not give it to Python
    assert works[0].result()[0].data_ptr() == t.data_ptr()
    small = torch.tensor([float(rank)])
    future = started(dist.all_reduce(small, async_op=True)).get_future()
    assert future.then(lambda done: done.value()[0] * 2).wait().item() == size * (size - 1)
    chained = torch.tensor([1.0])

    def again(done: torch.futures.Future[Any]) -> torch.Tensor:
        return started(dist.all_reduce(done.value()[0], async_op=True)).get_future().wait()[0]  # type: ignore[no-any-return]

    future = started(dist.all_reduce(chained, async_op=True)).get_future().then(again)
    later = started(dist.all_reduce(torch.ones(2), async_op=True))
    assert future.wait().item() == size**2
    later.wait()
    started(dist.all_reduce(torch.ones(100_000), async_op=True))  # dropped
    dist.barrier()


@ranks(2, backend="shardway")
def test_a_call_in_progress_leaves_its_caller_alone(rank: int, size: int) -> None:
    if rank == 1:
        time.sleep(1.5)
    t = torch.ones(4)
    start = time.monotonic()
    work = started(dist.all_reduce(t, async_op=True))
    assert time.monotonic() - start < 1.0
    if rank == 0:
        assert not work.is_completed()
    work.wait()
    assert t[0] == size


@ranks(2, 3, backend="shardway")
def test_messages_come_in_order_by_tag_and_never_hold_the_sender_up(rank: int, size: int) -> None:
    to, source = (rank + 1) % size, (rank - 1) % size
    large = torch.full((300_000,), float(rank))
    dist.send(torch.tensor([1, 2, 3]), to, tag=5)  # everybody sends first
    dist.send(large.view(3, -1).t(), to, tag=6)
    dist.send(torch.tensor([4, 5, 6]), to, tag=5)
    got = torch.empty(100_000, 3)
    assert dist.recv(got, source, tag=6) == source
    assert torch.equal(got, torch.full_like(got, source))
    for expected in ([1, 2, 3], [4, 5, 6]):
        t = torch.zeros(3, dtype=torch.int64)
        dist.recv(t, source, tag=5)
        assert t.tolist() == expected
    dist.barrier()
    receives = [torch.empty(2) for _ in range(2)]
    asked = [started(dist.irecv(t, source)) for t in receives]
    assert not asked[0].is_completed()
    dist.barrier()
    works = [started(dist.isend(torch.full((2,), 10.0 * rank + i), to)) for i in range(2)]
    asked[1].wait()
    asked[0].wait()
    assert [t[0].item() for t in receives] == [10.0 * source, 10.0 * source + 1]
    assert all(work.is_completed() for work in works)
    t = torch.empty(1)
    future = started(dist.irecv(t, source)).get_future()
    dist.send(torch.tensor([rank + 0.5]), to)
    assert future.wait()[0].item() == source + 0.5
    gaps = torch.zeros(2, 2)
    polled = started(dist.irecv(gaps[:, 1], source))
    dist.send(torch.full((2,), rank + 0.25), to)
    while not polled.is_completed():
        time.sleep(0.001)
    assert torch.equal(gaps, torch.tensor([[0.0, source + 0.25]] * 2))
    exchanged = torch.empty(3)
    calls = [dist.P2POp(dist.isend, torch.full((3,), float(rank)), to), dist.P2POp(dist.irecv, exchanged, source)]
    own = torch.empty(3)
    calls += [dist.P2POp(dist.irecv, own, rank), dist.P2POp(dist.isend, torch.full((3,), 7.0), rank)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    assert torch.equal(own, torch.full((3,), 7.0))
    assert torch.equal(exchanged, torch.full((3,), float(source)))


@ranks(3, backend="shardway")
def test_a_message_from_anybody_names_its_sender(rank: int, size: int) -> None:
    if rank != 0:
        dist.send(torch.tensor([rank]), 0)
        return
    senders = set()
    for _ in range(size - 1):
        t = torch.zeros(1, dtype=torch.int64)
        sender = dist.recv(t)
        assert t.item() == sender
        senders.add(sender)
    assert senders == {1, 2}


@ranks(4, backend="shardway")
def test_groups_of_some_ranks_and_several_at_once(rank: int, size: int) -> None:
    even, odd = dist.new_group([0, 2]), dist.new_group([3, 1])
    mine = even if rank % 2 == 0 else odd
    last = dist.new_group([1, 2, 3])
    for _ in range(20):
        t = torch.tensor([rank])
        dist.all_reduce(t, group=mine)
        assert t.item() == (2 if rank % 2 == 0 else 4)
        if rank > 0:
            dist.broadcast(t, 2, group=last)
            assert t.item() == 2
    gathered, sizes = sw.all_gather_v(torch.tensor([rank]), group=mine)
    assert sizes == (1, 1) and sorted(gathered.tolist()) == ([0, 2] if rank % 2 == 0 else [1, 3])
    again = dist.new_group([0, 2])
    if rank % 2 == 0:
        works = [started(dist.all_reduce(torch.ones(50_000), group=g, async_op=True)) for g in (again, mine, again)]
        for work in reversed(works):
            work.wait()


@ranks(3, backend="shardway")
def test_split_and_shrink_make_backends_of_fewer_ranks(rank: int, size: int) -> None:
    backend = backend_of()
    assert backend.supports_splitting and backend.supports_shrinking
    world = dist.group.WORLD
    assert world is not None
    part = world.split_group([0, 2], group_name="split", group_desc="two of three")
    assert (part is None) == (rank == 1)
    if part is not None:
        t = torch.tensor([rank])
        part.allreduce([t]).wait()
        assert t.item() == 2 and part.size() == 2
    store = dist.PrefixStore("merged", dist.distributed_c10d._get_default_store())
    merged = world.merge_remote_group(store, size, group_name="merged", group_desc="again")
    t = torch.tensor([rank])
    merged.allreduce([t]).wait()
    assert t.item() == 3
    if rank != 0:
        smaller = backend.shrink([0])
        t = torch.tensor([rank])
        smaller.allreduce([t]).wait()
        assert t.item() == 3 and smaller.rank() == rank - 1


@ranks(2, backend="shardway")
def test_sequence_numbers_options_and_timeouts(rank: int, size: int) -> None:
    backend = backend_of()
    assert dist.get_backend() == "shardway" and backend.name() == "shardway"
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    assert backend._get_sequence_number_for_group() == before + 2
    assert backend.options._timeout == timedelta(minutes=30)
    assert backend.get_error() == ErrorType.SUCCESS
    dist.barrier()
    backend.set_timeout(timedelta(seconds=0.3))
    if rank == 0:
        with pytest.raises(
            dist.DistBackendError, match=r"rank 1 could not be reached: it did not answer within the timeout of 300 ms"
        ):
            dist.all_reduce(torch.ones(1))
        assert backend.get_error() == ErrorType.COMM_ERROR
        dist.destroy_process_group()
    else:
        time.sleep(1.0)
        with pytest.raises(dist.DistBackendError, match="could not be reached"):
            dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()


@ranks(3, backend="shardway")
def test_a_monitored_barrier_names_who_is_missing(rank: int, size: int) -> None:
    world = dist.group.WORLD
    assert world is not None
    world.monitored_barrier(timedelta(seconds=5))
    if rank == 1:
        time.sleep(1.2)
    else:
        with pytest.raises(dist.DistBackendError, match="Rank 1 failed to pass monitoredBarrier in 400 ms"):
            world.monitored_barrier(timedelta(seconds=0.4))
    t = torch.ones(1)
    dist.all_reduce(t)  # the group goes on
    assert t.item() == size


@ranks(2, backend="shardway")
def test_after_destroy_and_abort_calls_say_so(rank: int, size: int) -> None:
    group = dist.new_group()
    backend = backend_of(group)
    dist.destroy_process_group(group)
    with pytest.raises(dist.DistBackendError, match=rf"all_reduce: the group was destroyed \(rank {rank}\)"):
        backend.allreduce([torch.ones(1)])
    with pytest.raises(dist.DistBackendError, match="recv: the group was destroyed"):
        backend.recv([torch.ones(1)], 1 - rank, 0)
    aborted = dist.new_group()
    work = None
    if rank == 0:
        work = started(dist.all_reduce(torch.ones(1), group=aborted, async_op=True))
        backend_of(aborted).abort()
        with pytest.raises(dist.DistBackendError, match="all_reduce: this rank aborted the group"):
            work.wait()
    dist.barrier()
    said = "this rank aborted the group" if rank == 0 else "rank 0 could not be reached: it aborted the group"
    with pytest.raises(dist.DistBackendError, match=f"all_reduce: {said}"):
        dist.all_reduce(torch.ones(1), group=aborted)


@ranks(2, backend="shardway")
def test_a_child_of_fork_is_told_that_the_group_is_its_parents(rank: int, size: int) -> None:
    dist.barrier()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            status = 0 if "belongs to the process that forked this one" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    dist.barrier()


@ranks(2, 3, backend="shardway")
def test_a_group_is_made_anew_with_the_same_store(rank: int, size: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group("shardway", store=store, rank=rank, world_size=size)
        t = torch.tensor([rank])
        dist.all_reduce(t)
        assert t.item() == size * (size - 1) // 2


def init_with_tcp_store(rank: int, size: int) -> None:
    """The store of files looks only every 10 ms whether something came."""
    ports = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        ports.set("port", str(store.port))
    else:
        store = dist.TCPStore("127.0.0.1", int(ports.get("port")), size, False)
    dist.destroy_process_group()
    dist.init_process_group("shardway", store=store, rank=rank, world_size=size)


@ranks(2, backend="shardway", timeout_s=120)
def test_a_thousand_groups_leave_nothing_behind(rank: int, size: int) -> None:
    init_with_tcp_store(rank, size)

    def make_and_destroy(count: int) -> None:
        for i in range(count):
            group = dist.new_group()
            t = torch.ones(1)
            dist.all_reduce(t, group=group, async_op=i % 50 == 0)
            dist.send(t, 1 - rank, group=group)
            dist.recv(t, 1 - rank, group=group)
            dist.destroy_process_group(group)
            del group

    def held() -> tuple[int, int, int]:
        gc.collect()
        return (
            len(os.listdir("/proc/self/fd")),
            len(os.listdir("/proc/self/task")),
            sw.memory_stats()["shared_in_use_bytes"],
        )

    make_and_destroy(20)
    dist.barrier()
    time.sleep(0.1)  # threads that had something to do end
    before = held()
    make_and_destroy(1000)
    dist.barrier()
    make_and_destroy(1)  # boards of the last are freed by then
    dist.barrier()
    time.sleep(0.1)
    after = held()
    assert after[0] <= before[0] and after[1] <= before[1]
    assert after[2] <= before[2] + (16 << 20)  # a few groups' boards, of a thousand


@pytest.mark.parametrize("level", ["DETAIL"])
def test_it_works_under_the_checks_of_torch(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", level)
    dist.set_debug_level_from_env()
    try:
        run_ranks(3, check_with_wrapper, backend="shardway")
    finally:
        monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG")
        dist.set_debug_level_from_env()


def check_with_wrapper(rank: int, size: int) -> None:
    assert not isinstance(backend_of(), ProcessGroupShardway)  # torch's wrapper
    t = torch.tensor([1.0 * rank])
    dist.all_reduce(t)
    assert t.item() == 3
    started(dist.all_reduce(t, async_op=True)).wait()
    outputs = [torch.empty(1) for _ in range(size)]
    dist.all_gather(outputs, torch.tensor([1.0 * rank]))
    assert [o.item() for o in outputs] == [0, 1, 2]
    if rank == 0:
        dist.send(t, 1)
    elif rank == 1:
        dist.recv(t, 0)
    assert sw.all_gather_v(torch.tensor([rank]))[0].tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="Detected mismatch between collectives"):
        if rank == 0:
            dist.all_reduce(torch.ones(2))
        else:
            dist.broadcast(torch.ones(2), 0)
