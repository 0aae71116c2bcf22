"""How groups in shared memory are tuned: what `stats` shows and what SHARDWAY_TUNING pins."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

import shardway as sw
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
