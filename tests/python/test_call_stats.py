"""`sw.stats()["calls"]`: sums by op and group. And what SHARDWAY_LOG prints."""

from __future__ import annotations

import functools
import os
import re
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks, run_ranks


def row_of(op):
    (found,) = [row for row in sw.stats()["calls"] if row["op"] == op]
    return found


@ranks(2, 3)
def test_every_op_has_its_sums_and_gradients_theirs(rank, size):
    begun = time.monotonic()
    for _ in range(5):
        sw.all_gather_v(torch.ones(rank + 1, 4, requires_grad=True))[0].sum().backward()
    sw.all_reduce(torch.ones(1000))
    lasted_s = time.monotonic() - begun
    gathers = row_of("all_gather_v")
    assert (gathers["rank"], gathers["size"]) == (rank, size)
    assert (gathers["calls"], gathers["failed"]) == (5, 0)
    assert gathers["bytes"] == 5 * 16 * (rank + 1)
    assert 0 < gathers["seconds"] < lasted_s
    assert 0 <= gathers["waiting_s"] <= gathers["seconds"]
    assert row_of("backward of all_gather_v")["calls"] == 5
    assert row_of("all_reduce")["bytes"] == 4000


@ranks(2)
def test_the_rank_that_waits_knows_it(rank, size):
    sw.all_reduce(torch.ones(2))
    if rank == 1:
        time.sleep(1.5)
    sw.all_gather_v(torch.ones(2))
    if rank == 0:
        assert row_of("all_gather_v")["waiting_s"] > 1.0


def _count_on_gloo(rank, size):
    sw.all_gather_v(torch.ones(rank + 1), sizes=(1, 2))
    row = row_of("all_gather_v")
    assert row["calls"] == 1
    assert row["waiting_s"] is None


def _enter(level, folder, transport, rank, size):
    """Makes the group; what the rank prints goes to a file."""
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "SHARDWAY_TRANSPORT": transport}
    os.environ.pop("SHARDWAY_LOG", None)
    if level:
        os.environ["SHARDWAY_LOG"] = level
    printed = os.open(folder / f"{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(printed, 2)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)


def test_an_engine_does_not_tell_how_long_it_waits(tmp_path: Path):
    run_ranks(2, _count_on_gloo, enter=functools.partial(_enter, "", tmp_path, "c10d"))


def _call(rank, size):
    sw.all_reduce(torch.ones(16))


@pytest.mark.parametrize("level", ["", "info", "debug", "loud"])
def test_the_log_has_what_its_level_asks_for(tmp_path: Path, level: str):
    run_ranks(2, _call, enter=functools.partial(_enter, level, tmp_path, "shm"))
    for rank in range(2):
        lines = [line for line in (tmp_path / f"{rank}.txt").read_text().splitlines() if line.startswith("shardway: ")]
        joins = [
            line for line in lines if re.search(rf"rank {rank} of 2 of group \w+: join \(call 0, 0 B\) done", line)
        ]
        calls = [
            line for line in lines if re.search(rf"rank {rank} of 2 of group \w+: all_reduce \(call \d+, 64 B\)", line)
        ]
        assert bool(joins) == (level in ("info", "debug")), lines
        assert bool(calls) == (level == "debug"), lines
        assert ("shardway: SHARDWAY_LOG=loud is neither info nor debug" in lines) == (level == "loud"), lines
