"""A group that failed to form is formed again on the same store, under the same name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from shardway._C import BackendOptions, ProcessGroupShardway
from tests.support.ranks import run_ranks

MISSED = timedelta(seconds=0.2)
ENOUGH = timedelta(seconds=15)


def nothing(rank: int, size: int) -> None:
    """No default group."""


def file_store(folder: Path, rank: int) -> dist.Store:
    return dist.FileStore(str(folder / "store"), -1)


def tcp_store(folder: Path, rank: int) -> dist.Store:
    told = folder / "port"
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        (folder / "written").write_text(str(store.port))
        (folder / "written").rename(told)
        return store
    while not told.exists():
        time.sleep(0.002)
    return dist.TCPStore("127.0.0.1", int(told.read_text()), None, False)


def join(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    return ProcessGroupShardway(store, rank, size, BackendOptions(timeout))


def check(group: Any, rank: int, size: int) -> None:
    t = torch.tensor([rank + 1])
    group.allreduce([t]).wait()
    assert t.item() == size * (size + 1) // 2


def wait_for(store: dist.Store, keys: list[str]) -> None:
    store.wait(keys, timedelta(seconds=20))


@pytest.mark.parametrize(
    ("make_store", "size", "first", "attempts"),
    [
        (file_store, 2, [0], 1),
        (file_store, 2, [1], 1),
        (file_store, 2, [0], 3),
        (file_store, 3, [0, 2], 2),
        (file_store, 3, [2, 1], 1),
        (tcp_store, 2, [0], 1),
        (tcp_store, 3, [0, 2], 2),
        (tcp_store, 3, [1], 1),
    ],
)
def test_after_some_ranks_came_in_vain_all_meet(
    tmp_path: Path, make_store: Callable[[Path, int], dist.Store], size: int, first: list[int], attempts: int
) -> None:
    def body(rank: int, size: int) -> None:
        store = make_store(tmp_path, rank)
        missing = next(peer for peer in range(size) if peer not in first)
        said = f"rank {missing} did not answer within the group's timeout of 200 ms"
        for attempt in range(attempts):
            if rank in first:
                with pytest.raises(dist.DistBackendError, match=said):
                    join(store, rank, size, MISSED)
                store.set(f"{attempt} failed on {rank}", "")
            wait_for(store, [f"{attempt} failed on {peer}" for peer in first])
        for _ in range(2):
            group = join(store, rank, size, ENOUGH)
            check(group, rank, size)
            group.shutdown()
        store.set(f"{rank} is done", "")
        if rank == 0:
            wait_for(store, [f"{peer} is done" for peer in range(size)])  # the store is its

    run_ranks(size, body, enter=nothing, timeout_s=30)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_was_killed_while_it_waited_comes_again(tmp_path: Path, size: int, killed: int) -> None:
    """Its successor meets the ranks that came before and still wait."""

    def body(rank: int, size: int) -> None:
        store = file_store(tmp_path, rank)
        if rank == killed:
            child = os.fork()
            if child == 0:
                join(file_store(tmp_path, rank), rank, size, ENOUGH)
                os._exit(0)
            time.sleep(0.4)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            store.set("killed", "")
        elif size == 2 or rank == 2:  # of three, one is there before
            wait_for(store, ["killed"])
        check(join(store, rank, size, ENOUGH), rank, size)

    run_ranks(size, body, enter=nothing, timeout_s=30)


def test_a_job_that_is_started_again_meets_on_the_old_file(tmp_path: Path) -> None:
    def start(ranks: list[int], timeout: timedelta) -> Callable[[int, int], None]:
        def body(rank: int, size: int) -> None:
            def init() -> None:
                store = file_store(tmp_path, rank)
                dist.init_process_group("shardway", store=store, rank=ranks[rank], world_size=3, timeout=timeout)

            if len(ranks) < 3:
                with pytest.raises(dist.DistBackendError, match="did not answer within"):
                    init()
                return
            init()
            t = torch.ones(1)
            dist.all_reduce(t)
            assert t.item() == 3

        return body

    for ranks in ([0], [2]):
        run_ranks(len(ranks), start(ranks, MISSED), enter=nothing, timeout_s=20)
    for _ in range(2):
        run_ranks(3, start([0, 1, 2], ENOUGH), enter=nothing, timeout_s=30)


def test_a_rank_that_gives_up_sooner_meets_the_others_when_it_returns(tmp_path: Path) -> None:
    """Rank 2 comes last; rank 1 has given up once by then, ranks 0 and 2 never."""

    def body(rank: int, size: int) -> None:
        store = file_store(tmp_path, rank)
        if rank == 1:
            with pytest.raises(dist.DistBackendError, match="rank 2 did not answer"):
                join(store, rank, size, MISSED)
            store.set("gave up", "")
        if rank == 2:
            wait_for(store, ["gave up"])
        check(join(store, rank, size, ENOUGH), rank, size)

    run_ranks(3, body, enter=nothing, timeout_s=30)


def test_a_store_keeps_nothing_of_groups_that_met(tmp_path: Path) -> None:
    def body(rank: int, size: int) -> None:
        store = tcp_store(tmp_path, rank)
        counts = []
        for attempt in range(4):
            group = join(dist.PrefixStore("group", store), rank, size, ENOUGH)
            check(group, rank, size)
            group.shutdown()
            store.set(f"{attempt} met", str(rank))
            if rank == 0:
                wait_for(store, [f"{attempt} left"])
                counts.append(store.num_keys() - 3 * attempt)
                store.set(f"{attempt} counted", "")
            else:
                store.set(f"{attempt} left", "")
                wait_for(store, [f"{attempt} counted"])
        assert len(set(counts)) <= 1, counts
        store.set(f"{rank} is done", "")
        if rank == 0:
            wait_for(store, [f"{peer} is done" for peer in range(size)])  # the store is its

    run_ranks(2, body, enter=nothing, timeout_s=30)
