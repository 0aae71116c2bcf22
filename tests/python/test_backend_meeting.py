"""How the ranks of the backend's groups come together, and how long they wait for one another."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardway._C import BackendOptions
from tests.support.ranks import run_ranks

HALF_A_SECOND = timedelta(seconds=0.5)


def store_at(folder: Path, name: str, ranks: int) -> dist.Store:
    return dist.FileStore(str(folder / name), ranks)


def timeout_of(group: Any = None) -> timedelta:
    group = group or dist.group.WORLD
    return group._get_backend(torch.device("cpu")).options._timeout  # type: ignore[no-any-return]


def test_two_jobs_at_once_do_not_meet(tmp_path: Path) -> None:
    def enter(rank: int, size: int) -> None:
        store = store_at(tmp_path, f"job{rank // 2}", 2)
        dist.init_process_group("shardway", store=store, rank=rank % 2, world_size=2)

    def body(rank: int, size: int) -> list[int]:
        group = dist.new_group()  # of the same name in both
        sums = []
        for count in (1, 10_000, 100_000):
            t = torch.full((count,), 1 + rank)
            dist.all_reduce(t, group=group)
            dist.all_reduce(t)
            sums += t.unique().tolist()
        dist.send(torch.tensor([rank]), 1 - rank % 2)
        message = torch.empty(1, dtype=torch.int64)
        dist.recv(message, 1 - rank % 2)
        return [*sums, int(message)]

    # Twice the sum of both: 2 * (1 + 2) and 2 * (3 + 4); then who sent the message.
    assert run_ranks(4, body, enter=enter) == [[6, 6, 6, 1], [6, 6, 6, 0], [14, 14, 14, 3], [14, 14, 14, 2]]


def test_timeouts_are_those_that_were_asked_for(tmp_path: Path) -> None:
    def enter(rank: int, size: int) -> None:
        store = store_at(tmp_path, "store", size)
        options = BackendOptions(timeout=timedelta(seconds=70))
        dist.init_process_group("shardway", store=store, rank=rank, world_size=size, pg_options=options)

    def body(rank: int, size: int) -> None:
        assert timeout_of() == timedelta(seconds=70)
        assert timeout_of(dist.new_group(timeout=timedelta(seconds=50))) == timedelta(seconds=50)
        options = BackendOptions(timeout=timedelta(seconds=40))
        assert timeout_of(dist.new_group(pg_options=options)) == timedelta(seconds=40)
        late = dist.new_group(timeout=HALF_A_SECOND)
        start = time.monotonic()
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match=r"rank 1 could not be reached: .* timeout of 500 ms"):
                dist.barrier(late)
            assert 0.4 < time.monotonic() - start < 5
        t = torch.ones(1)
        dist.all_reduce(t)  # of the world, which waits longer
        assert t.item() == size
        if rank == 0:
            with pytest.raises(
                dist.DistBackendError, match="rank 1 did not answer within the group's timeout of 500 ms"
            ):
                dist.new_group(timeout=HALF_A_SECOND)

    run_ranks(2, body, enter=enter)


def test_a_rank_that_does_not_come_to_the_world_is_named(tmp_path: Path) -> None:
    def enter(rank: int, size: int) -> None:
        pass

    def body(rank: int, size: int) -> None:
        store = store_at(tmp_path, "store", size)
        if rank == 1:
            return
        with pytest.raises(dist.DistBackendError, match="rank 1 did not answer within the group's timeout of 500 ms"):
            dist.init_process_group("shardway", store=store, rank=rank, world_size=size, timeout=HALF_A_SECOND)

    run_ranks(3, body, enter=enter)
