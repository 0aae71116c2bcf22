"""The record of a process's calls: what it holds, and that it is the same on all ranks."""

from __future__ import annotations

import datetime
import functools
import os
import re
import time

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks, run_ranks


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


def _on_gloo(store, rank, size, timeout_s=60.0):
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "SHARDWAY_TRANSPORT": "c10d"}
    limit = datetime.timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=limit)


def _call_on_gloo(rank, size):
    x = torch.ones(rank + 1, 4, requires_grad=True)
    sw.all_gather_v(x, sizes=range(1, size + 1))[0].sum().backward()
    sw.all_reduce(torch.ones(100_000))
    handle = sw.all_gather_v(torch.ones(rank + 1), sizes=range(1, size + 1), async_op=True)
    assert sw.last_calls()[-1]["state"] == "running"
    handle.wait()
    other = dist.new_group(list(range(size)))
    sw.all_reduce(torch.ones(3), group=other)
    calls = sw.last_calls()
    names = [call["op"] for call in calls]
    assert {"all_gather_v", "backward of all_gather_v", "all_reduce"} <= set(names)
    assert names[0] == "all_gather_v" and calls[0]["number"] == 1 and calls[0]["bytes"] == 16 * (rank + 1)
    assert {call["state"] for call in calls} == {"done"}
    assert {(call["rank"], call["size"]) for call in calls} == {(rank, size)}
    first = [call["number"] for call in calls if call["group"] == calls[0]["group"]]
    assert first == list(range(1, len(first) + 1))
    assert calls[-1]["group"] != calls[0]["group"] and calls[-1]["op"] == "all_reduce"
    assert agreed([(call["op"], call["number"], call["group"]) for call in calls])


@pytest.mark.parametrize("size", [2, 3])
def test_calls_on_gloo_are_there_too(tmp_path, size):
    run_ranks(size, _call_on_gloo, enter=functools.partial(_on_gloo, tmp_path / "store"))


def _make_the_group_again(rank, size, store):
    ids = []
    for turn in range(2):
        _on_gloo(f"{store}{turn}", rank, size)
        sw.all_reduce(torch.ones(3))
        ids.append(sw.last_calls()[-1]["group"])
        assert agreed(ids)
        if turn == 0:
            dist.destroy_process_group()
    assert ids[0] != ids[1]


def test_a_group_that_is_made_again_is_another(tmp_path):
    run_ranks(2, _make_the_group_again, tmp_path / "store", enter=lambda rank, size: None)


def _printed_by(path, call):
    """What a call that loses a peer prints to standard error."""
    with open(path, "w+") as printed:
        kept = os.dup(2)
        os.dup2(printed.fileno(), 2)
        try:
            with pytest.raises(dist.DistBackendError):
                call()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        printed.seek(0)
        return printed.read()


def _lose_a_peer_on_gloo(rank, size, folder, dies):
    sw.all_reduce(torch.ones(3))
    if rank == 1:
        if dies:
            os._exit(0)
        time.sleep(8)  # longer than the timeout
        return
    text = _printed_by(folder / f"rank{rank}", lambda: sw.all_gather_v(torch.ones(4), sizes=[4] * size))
    assert f"(seen by rank {rank})\n" in text, text
    assert text.count(f"of {size} ranks") == 1, text
    assert f"  rank {rank}, pid {os.getpid()}: in all_gather_v for " in text, text
    assert "(call 2, 16 B)" in text or "(call 3, 16 B)" in text, text
    if dies:
        assert "  rank 1: not found: it is on another host, or its process has ended\n" in text, text
    else:
        assert re.search(r"  rank 1, pid \d+: in no call for .*, last all_reduce .*; 1 call behind\n", text), text
    assert sw.last_calls()[-1]["state"] == "failed"


@pytest.mark.parametrize("dies", [False, True], ids=["late", "dead"])
def test_a_loss_on_gloo_says_who_is_where(tmp_path, dies):
    enter = functools.partial(_on_gloo, tmp_path / "store", timeout_s=3.0)
    run_ranks(3, _lose_a_peer_on_gloo, tmp_path, dies, enter=enter, dying=[1] if dies else [])
