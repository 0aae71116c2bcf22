"""How groups in shared memory are tuned: what `stats` shows and what SHARDWAY_TUNING pins."""

from __future__ import annotations

import json
import os
import tempfile

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from shardway import _C
from tests.support.ranks import ranks


def only_groups() -> dict[str, object]:
    [groups] = sw.stats()["tuning"]["groups"]
    return groups


@ranks(1)
def test_stats_name_the_processor_before_there_is_a_group(rank, size):
    tuning = sw.stats()["tuning"]
    assert isinstance(tuning["processor"], str)
    assert tuning["groups"] == []
    assert set(sw.stats()) == {"calls", "dtensor", "tuning"}


@ranks(2, 3)
def test_stats_show_each_choice_and_where_it_comes_from(rank, size):
    os.environ.pop("SHARDWAY_TUNING", None)
    sw.all_reduce(torch.ones(3))
    found = only_groups()
    assert (found["ranks"], found["groups"]) == (size, 1)
    assert found["processor"] == sw.stats()["tuning"]["processor"]
    assert isinstance(found["shares_cache"], bool)
    assert isinstance(found["swap"], bool)
    assert isinstance(found["hand_back"], bool)
    assert found["hand_back_from"].startswith("default for ")
    assert found["swap_from"].startswith("default for " if size == 2 else "only two ranks")
    everybody = [None] * size
    dist.all_gather_object(everybody, found)
    assert everybody == [found] * size


@ranks(2, 3)
def test_a_pin_counts_before_the_default(rank, size):
    os.environ["SHARDWAY_TUNING"] = "swap=0,hand_back=0"
    assert sw.all_reduce(torch.ones(100_000)).sum() == size * 100_000
    found = only_groups()
    assert (found["swap"], found["hand_back"], found["hand_back_from"]) == (False, False, "SHARDWAY_TUNING")


@ranks(2, 3)
def test_ranks_that_pin_different_choices_all_raise(rank, size):
    os.environ["SHARDWAY_TUNING"] = "hand_back=1" if rank == size - 1 else ""
    with pytest.raises(
        ValueError, match=f"SHARDWAY_TUNING pins nothing on rank 0 and hand_back=1 on rank {size - 1}; set it alike"
    ):
        sw.all_reduce(torch.ones(3))


@ranks(2)
def test_what_is_not_known_is_an_error_on_every_rank(rank, size):
    os.environ["SHARDWAY_TUNING"] = "swop=1" if rank == 1 else ""
    with pytest.raises(ValueError, match='SHARDWAY_TUNING=swop=1: "swop=1" is not known; allowed are swap=0'):
        sw.all_reduce(torch.ones(3))


def topology_file(folder: str, choices: dict[str, dict[str, float]]) -> str:
    """As `shardway calibrate -n 2` leaves it on this machine."""
    _, processor, _ = _C.this_machine()
    measured = {
        "machine": "",
        "processor": processor,
        "cores": 2,
        "ranks": 2,
        "ranks_share_cores": False,
        "backend": "shared memory",
        "date": "2026-01-31T12:00:00Z",
        "complete": True,
        "repetitions": 12,
        "retest_error": 0.02,
        "held_out_error": 0.1,
        "tuning": choices,
        "calls": [],
    }
    path = f"{folder}/topology.json"
    with open(path, "w") as file:
        json.dump({**json.loads(sw.Topology(source="measured").to_json()), "measured": measured}, file)
    return path


OFF = {"saves": -0.1, "spread": 0.02}
ON = {"saves": 0.1, "spread": 0.02}
NEITHER = {"saves": 0.01, "spread": 0.02}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="ranks that share cores use no measured choice")
@ranks(2)
def test_what_won_in_the_first_ranks_topology_file_is_used(rank, size):
    os.environ.pop("SHARDWAY_TUNING", None)
    with tempfile.TemporaryDirectory() as folder:
        choices = {"swap": OFF, "hand_back": NEITHER} if rank == 0 else {"swap": ON, "hand_back": OFF}
        os.environ["SHARDWAY_TOPOLOGY"] = topology_file(folder, choices)
        assert sw.all_reduce(torch.ones(100_000)).sum() == size * 100_000
        found = only_groups()
    assert (found["swap"], found["swap_from"]) == (False, "the topology file")
    assert found["hand_back_from"].startswith("default for ")


@ranks(2)
def test_a_topology_file_that_cannot_be_read_leaves_the_default(rank, size):
    os.environ.pop("SHARDWAY_TUNING", None)
    os.environ["SHARDWAY_TOPOLOGY"] = "/no/such/file.json"
    assert sw.all_reduce(torch.ones(3)).sum() == size * 3
    assert only_groups()["swap_from"].startswith("default for ")
