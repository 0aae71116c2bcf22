"""The record of a process's calls: what it holds, and that it is the same on all ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks


def agreed(value: object) -> bool:
    """Whether all ranks have the same."""
    found: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return all(other == found[0] for other in found)


@ranks(1)
def test_a_rank_alone_records_nothing(rank, size):
    sw.all_gather_v(torch.ones(3))
    assert sw.last_calls() == []


@ranks(2, 3)
def test_every_call_is_there_with_its_name_and_number(rank, size):
    x = torch.ones(rank + 1, 4, requires_grad=True)
    sw.all_gather_v(x)[0].sum().backward()
    sw.all_reduce(torch.ones(40_000))
    sw.all_gather_v([torch.ones(2), torch.ones(3)])
    calls = sw.last_calls()
    names = [call["op"] for call in calls]
    assert names[0] == "join"
    assert "all_gather_v" in names and "all_reduce" in names
    assert "backward of all_gather_v" in names
    numbers = [call["number"] for call in calls]
    assert numbers == sorted(numbers)
    assert {call["state"] for call in calls} == {"done"}
    assert {(call["rank"], call["size"]) for call in calls} == {(rank, size)}
    assert agreed([(call["op"], call["number"], call["group"]) for call in calls])
    reduced = next(call for call in calls if call["op"] == "all_reduce")
    assert reduced["bytes"] == 160_000
    assert 0 <= reduced["seconds"] <= reduced["begun_s_ago"] < 60


@ranks(2, backend="shardway")
def test_torchs_own_calls_are_there_on_the_backend(rank, size):
    dist.all_reduce(torch.ones(5))
    assert sw.last_calls()[-1]["op"] == "all_reduce"
    dist.barrier()
    assert sw.last_calls()[-1]["op"] == "barrier"


@ranks(2)
def test_the_record_keeps_the_last_64(rank, size):
    for _ in range(100):
        sw.all_reduce(torch.ones(2))
    calls = sw.last_calls()
    assert len(calls) == 64
    last = calls[-1]["number"]
    assert [call["number"] for call in calls] == list(range(last - 63, last + 1))


@ranks(3)
def test_a_call_that_loses_a_peer_has_failed(rank, size):
    sw.all_reduce(torch.ones(2))
    if rank == 1:
        dist.destroy_process_group()
        return
    with pytest.raises(dist.DistBackendError):
        for _ in range(3):
            sw.all_reduce(torch.ones(2))
    assert sw.last_calls()[-1]["state"] == "failed"
