"""sw.shrink: the ranks that live go on in a group of their own, whoever died, the one with the store too."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from shardway import _shrink
from tests.support.ranks import run_ranks

SHARED = ["shardway", "gloo"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run(size, body, *args, backend="shardway", dying=(), **options):
    """Ranks whose store lives in rank 0."""
    port = _free_port()

    def enter(rank, size):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)

    return run_ranks(size, body, *args, enter=enter, dying=dying, **options)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _lose_a_peer(group=None) -> None:
    with pytest.raises(dist.DistBackendError, match="could not be reached"):
        while True:
            sw.all_reduce(torch.ones(3), group=group)


def _use(group: dist.ProcessGroup, numbers: list[int]) -> None:
    """Every kind of call on a group of these global ranks."""
    size, rank, own = len(numbers), dist.get_rank(group), dist.get_rank()
    assert dist.get_process_group_ranks(group) == numbers and dist.get_world_size(group) == size
    assert numbers[rank] == own
    x = torch.full((rank + 1, 2), float(own), requires_grad=True)
    gathered, sizes = sw.all_gather_v(x, group=group)
    assert sizes == tuple(range(1, size + 1))
    assert gathered.tolist() == [[float(n)] * 2 for i, n in enumerate(numbers) for _ in range(i + 1)]
    (gathered * (rank + 1)).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, size * (size + 1) / 2))
    large = torch.full((100_000,), float(own))
    assert torch.equal(sw.all_reduce(large, group=group), torch.full_like(large, sum(numbers)))
    t = torch.tensor([float(own)])
    dist.all_reduce(t, group=group)
    assert t.item() == sum(numbers)
    dist.broadcast(t := torch.tensor([own]), numbers[-1], group=group)
    assert t.item() == numbers[-1]
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": own}, group=group)
    assert objects == [{"rank": n} for n in numbers]
    dist.barrier(group=group)


def _end(*groups: dist.ProcessGroup) -> None:
    for group in groups:
        dist.destroy_process_group(group)
    dist.destroy_process_group()


def _shrink_after_a_death(rank, size, dead):
    sw.all_reduce(torch.ones(3))
    if rank in dead:
        _die()
    _lose_a_peer()
    start = time.monotonic()
    small = sw.shrink(timeout=30)
    assert time.monotonic() - start < 15, "waited for the dead"
    _use(small, [n for n in range(size) if n not in dead])
    assert dist.get_backend(small) == dist.get_backend()
    with pytest.raises(dist.DistBackendError, match="could not be reached"):
        sw.all_reduce(torch.ones(3))
    _end(small)


@pytest.mark.parametrize("backend", SHARED)
@pytest.mark.parametrize("size, dead", [(3, [0]), (3, [2]), (4, [0, 2]), (2, [0])], ids=str)
def test_the_ranks_that_live_go_on(backend, size, dead):
    _run(size, _shrink_after_a_death, dead, backend=backend, dying=dead)


def _shrink_twice(rank, size):
    sw.all_reduce(torch.ones(3))
    if rank == 0:
        _die()
    _lose_a_peer()
    small = sw.shrink(timeout=30)
    _use(small, [1, 2, 3])
    if rank == 1:  # has the new store
        _die()
    _lose_a_peer(small)
    smaller = sw.shrink(small, timeout=30)
    _use(smaller, [2, 3])
    _end(smaller, small)


@pytest.mark.parametrize("backend", SHARED)
def test_a_second_death_is_survived_too(backend):
    _run(4, _shrink_twice, backend=backend, dying=[0, 1])


def _shrink_a_subgroup(rank, size):
    part = dist.new_group([1, 2, 3])
    dist.barrier()
    if rank == 0:
        _die()  # not of the group, but its store was here
    sw.all_reduce(torch.ones(3), group=part)
    if rank == 2:
        _die()
    _lose_a_peer(part)
    small = sw.shrink(part, timeout=30)
    _use(small, [1, 3])
    _end(small)


@pytest.mark.parametrize("backend", SHARED)
def test_a_subgroup_shrinks(backend):
    _run(4, _shrink_a_subgroup, backend=backend, dying=[0, 2])


def _shrink_whole(rank, size):
    sw.all_reduce(torch.ones(3))
    with pytest.raises(ValueError, match=r"^shrink: timeout=-1 is negative \(rank \d\)$"):
        sw.shrink(timeout=-1)
    again = sw.shrink(timeout=timedelta(seconds=30))
    _use(again, [0, 1, 2])
    assert again.group_name != dist.group.WORLD.group_name
    with pytest.raises(ValueError, match=r"^shrink: the group was shrunk before: shrink the group that came of it"):
        sw.shrink(timeout=30)
    _end(again)


@pytest.mark.parametrize("backend", SHARED)
def test_a_group_that_nobody_left_keeps_its_ranks(backend):
    _run(3, _shrink_whole, backend=backend)


def _come_late(rank, size):
    pids = sw.all_gather_v(torch.tensor([os.getpid()]))[0].tolist()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        text = r"^shrink: ranks 0 and 2 have gone on in a smaller group, since this rank did not answer in time: .*1\)"
        with pytest.raises(dist.DistBackendError, match=text):
            sw.shrink()
        return dist.destroy_process_group()
    small = sw.shrink(timeout=3)
    _use(small, [0, 2])
    if rank == 0:
        os.kill(pids[1], signal.SIGCONT)
    return _end(small)


@pytest.mark.parametrize("backend", SHARED)
def test_a_rank_that_comes_late_is_refused(backend):
    _run(3, _come_late, backend=backend)


def _die_while_it_shrinks(rank, size, seed):
    sw.all_reduce(torch.ones(3))
    if rank == seed % size:
        threading.Timer(0.002 * (seed % 17), _die).start()
    numbers, group = list(range(size)), dist.group.WORLD
    living = [n for n in range(size) if n != seed % size]
    groups = []
    while numbers != living:
        group = sw.shrink(group, timeout=30)
        groups.append(group)
        numbers = dist.get_process_group_ranks(group)
        try:
            while numbers != living:
                sw.all_reduce(torch.ones(3), group=group)
        except dist.DistBackendError:
            continue
    _use(group, living)
    _end(*groups)


@pytest.mark.parametrize("backend", SHARED)
@pytest.mark.parametrize("seed", range(5))
def test_a_death_while_the_group_is_made_is_survived(backend, seed):
    _run(3, _die_while_it_shrinks, seed, backend=backend, dying=[seed % 3])


def _lose_the_new_store(rank, size):
    sw.all_reduce(torch.ones(3))
    connected = _shrink._connected

    def connected_late(*arguments):
        time.sleep(2)
        return connected(*arguments)

    _shrink._connected = connected_late
    if rank == 0:
        threading.Timer(1, _die).start()  # by then it has a store and a group, and has told the others so
    small = sw.shrink(timeout=20)
    _use(small, [1, 2])
    _end(small)


@pytest.mark.parametrize("backend", SHARED)
def test_the_rank_with_the_new_store_may_die_before_the_others_find_it(backend):
    _run(3, _lose_the_new_store, backend=backend, dying=[0])


def _work_under_way(rank, size):
    if rank == 1:
        time.sleep(0.5)
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2)] if rank == 0 else []
    small = sw.shrink(timeout=30)  # rank 0 waits for calls that rank 1 never makes
    for work in works:
        with pytest.raises(dist.DistBackendError):
            work.wait()
    _use(small, [0, 1])
    _end(small)


def test_calls_under_way_end_first():
    _run(2, _work_under_way)


def _shrink_by_store(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    sw.all_reduce(torch.ones(3))
    if rank == 1:
        _die()
    with pytest.raises(dist.DistBackendError):
        while True:
            sw.all_reduce(torch.ones(3))
    small = sw.shrink(timeout=3)
    _use(small, [0, 2])
    _end(small)


def test_without_shared_memory_a_living_store_will_do():
    _run(3, _shrink_by_store, backend="gloo", dying=[1])


def _shrink_without_store(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    sw.all_reduce(torch.ones(3))
    if rank == 0:
        _die()
    with pytest.raises(dist.DistBackendError):
        while True:
            sw.all_reduce(torch.ones(3))
    text = r"^shrink: not all ranks share memory, and the group's store, by which they could agree, does not answer: "
    with pytest.raises(dist.DistBackendError, match=text):
        sw.shrink(timeout=3)
    dist.destroy_process_group()


def test_without_shared_memory_and_store_there_is_one_clear_error():
    _run(3, _shrink_without_store, backend="gloo", dying=[0])


def _late_by_store(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    sw.all_reduce(torch.ones(3))
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["gone on 0", "gone on 2"], timedelta(seconds=40))
        with pytest.raises(dist.DistBackendError, match=r"^shrink: ranks 0 and 2 have gone on in a smaller group"):
            sw.shrink(timeout=3)
        store.set("refused", "")
    else:
        small = sw.shrink(timeout=3)
        _use(small, [0, 2])
        store.set(f"gone on {rank}", "")
        store.wait(["refused"], timedelta(seconds=40))  # rank 0 has the store
    dist.destroy_process_group()


def test_without_shared_memory_a_late_rank_is_refused_too():
    _run(3, _late_by_store, backend="gloo")


def test_without_a_group_there_is_nothing_to_shrink():
    with pytest.raises(ValueError, match=r"^shrink: torch\.distributed is not initialised"):
        sw.shrink()


def _torch_shrinks(rank, size):
    if not hasattr(dist, "shrink_group"):
        pytest.skip("this torch has no shrink_group")
    dist.all_reduce(torch.ones(3))
    if rank == 1:
        _die()
    with pytest.raises(dist.DistBackendError):
        while True:
            dist.all_reduce(torch.ones(3))
    small = dist.shrink_group([1])
    assert dist.get_world_size() == 2
    t = torch.tensor([float(rank)])
    dist.all_reduce(t, group=small)
    assert t.item() == 2
    assert sw.all_reduce(torch.tensor([1.0]), group=small).item() == 2
    dist.destroy_process_group()


def test_torchs_own_shrink_group_works_with_a_living_store():
    _run(3, _torch_shrinks, dying=[1])
