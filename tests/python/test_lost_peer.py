"""A peer that goes away is an error that names it, not a hang."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks

LARGE = 2**20  # elements: more than fits into a socket's buffer


@ranks(3)
@pytest.mark.parametrize("given", [False, True], ids=["sizes found", "sizes given"])
def test_the_error_names_the_peer_that_left(rank, size, given):
    x = torch.ones(LARGE)
    sizes = [LARGE] * size if given else None
    sw.all_gather_v(x, sizes=sizes)
    if rank == 2:
        dist.destroy_process_group()
        return
    with pytest.raises(dist.DistBackendError, match=r"^all_gather_v: rank [012] could not be reached: .*\(rank \d\)$"):
        for _ in range(3):
            sw.all_gather_v(x, sizes=sizes)


@ranks(2)
def test_of_two_ranks_it_is_the_other(rank, size):
    dist.barrier()  # torch's own: both are connected
    if rank == 1:
        dist.destroy_process_group()
        return
    with pytest.raises(dist.DistBackendError, match=r"^reduce_scatter_v: rank 1 could not be reached"):
        sw.reduce_scatter_v(torch.ones(2 * LARGE), [LARGE, LARGE])


FIRST_CALLS = {
    "all_gather_v": lambda x: sw.all_gather_v([x]),
    "gather_sizes": lambda x: sw.gather_sizes(x),
    "redistribute": lambda x: sw.redistribute(
        sw.MeshTensor(x[:1], sw.Layout((3, 3), torch.float32, sw.Mesh((3,)), [sw.Shard(0)])), [sw.Shard(1)]
    ),
}


@ranks(3)
@pytest.mark.parametrize("name", FIRST_CALLS)
def test_an_error_of_the_groups_first_call_names_the_op(rank, size, name):
    dist.barrier()  # torch's own: all are connected
    if rank == 1:
        dist.destroy_process_group()
        return
    with pytest.raises(dist.DistBackendError, match=f"^{name}: "):
        FIRST_CALLS[name](torch.ones(3, 3))


@ranks(3)
def test_a_peer_that_destroys_its_group_and_lives_is_named_at_once(rank, size):
    sw.all_reduce(torch.ones(3))
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(5)
        return
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match=r"^all_reduce: rank 1 could not be reached: it left the group"):
        sw.all_reduce(torch.ones(3))
    assert time.monotonic() - start < 3


@ranks(2)
@pytest.mark.parametrize("transport", ["shm", "c10d"])
def test_a_timeout_that_is_set_after_the_first_call_holds(rank, size, transport, monkeypatch):
    monkeypatch.setenv("SHARDWAY_TRANSPORT", transport)
    group = dist.new_group(timeout=timedelta(seconds=20))
    sw.all_reduce(torch.ones(3), group=group)
    group._get_backend(torch.device("cpu")).set_timeout(timedelta(milliseconds=300))
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["told"], timedelta(seconds=40))
        return
    with pytest.raises(dist.DistBackendError, match="did not answer within the timeout of 300 ms"):
        sw.all_reduce(torch.ones(3), group=group)
    store.set("told", "")
