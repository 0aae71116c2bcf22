"""`sw.trace`: a trace of all ranks in one file."""

from __future__ import annotations

import itertools
import json
import time

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks
from tests.support.traces import clear, shared_path, slices, whole_document


@ranks(4)
def test_a_redistribute_shows_every_step_of_every_rank_on_one_clock(rank, size):
    path = shared_path(rank)
    mesh = sw.Mesh((2, 2), names=("dp", "tp"))
    start = sw.Layout((64, 64), torch.float32, mesh, [sw.Shard(0), sw.Partial()])
    tensor = sw.MeshTensor(torch.ones(32, 64), start)
    sw.all_reduce(torch.ones(2))  # so the group is there
    before_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e3
    with sw.trace(path):
        moved = sw.redistribute(tensor, [sw.Replicate(), sw.Shard(1)])
    lasted_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) / 1e3 - before_us
    plan = sw.plan(start, moved.layout)
    document = whole_document(path)
    assert document["otherData"]["ranks"] == list(range(size))
    assert document["otherData"]["size"] == size
    assert document["otherData"]["left_out"] == 0
    for other in range(size):
        steps = slices(document, "step", other)
        assert len(steps) == len(plan.steps) > 0
        for shown, step in zip(steps, plan.steps, strict=True):
            assert shown["name"].startswith(step.kind)
            assert shown["args"]["bytes"] == step.bytes
            assert shown["args"]["modelled_us"] == pytest.approx(step.cost_us)
            assert shown["args"]["measured_us"] == pytest.approx(shown["dur"])
        for one, next_one in itertools.pairwise(steps):
            assert one["ts"] + one["dur"] <= next_one["ts"] + 1e-3
        calls = slices(document, "call", other)
        assert calls and all(call["args"]["state"] == "done" for call in calls)
        assert all(0 < event["dur"] <= lasted_us for event in steps + calls)
    # On one clock: no rank's call is over before the last rank has begun it.
    first = [slices(document, "call", other)[0] for other in range(size)]
    assert len({call["args"]["number"] for call in first}) == 1
    assert max(call["ts"] for call in first) <= min(call["ts"] + call["dur"] for call in first)
    clear(path, rank)


@ranks(2)
def test_all_calls_are_there_and_those_before_and_after_are_not(rank, size):
    path = shared_path(rank)
    sw.all_reduce(torch.ones(2))
    begun = sw.trace(path)
    for _ in range(100):
        sw.all_gather_v(torch.ones(rank + 1))
    begun.stop()
    begun.stop()
    sw.all_reduce(torch.ones(2))
    document = whole_document(path)
    for other in range(size):
        calls = slices(document, "call", other)
        assert [call["name"] for call in calls] == ["all_gather_v"] * 100
        numbers = [call["args"]["number"] for call in calls]
        assert numbers == list(range(numbers[0], numbers[0] + 100))
        assert {call["args"]["bytes"] for call in calls} == {4 * (other + 1)}
    clear(path, rank)


@ranks(2)
def test_a_new_run_takes_the_place_of_an_old_file_and_of_one_that_is_broken(rank, size):
    path = shared_path(rank)
    sw.all_reduce(torch.ones(2))  # so the group is there
    for old in ('{"otherData": {"run": "another"}, "traceEvents": [7]}', "{"):
        dist.barrier()
        path.write_text(old)
        with sw.trace(path):
            sw.all_reduce(torch.ones(2))
        document = whole_document(path)
        assert document["otherData"]["ranks"] == [0, 1]
        assert {call["name"] for call in slices(document, "call")} == {"all_reduce"}
    assert [file.name for file in path.parent.iterdir()] == ["trace.json"]
    clear(path, rank)


@ranks(2)
def test_a_file_that_cannot_be_written_is_refused_on_every_rank(rank, size):
    path = shared_path(rank)
    wanted = path if rank == 0 else path.parent / "missing" / "trace.json"
    with pytest.raises(ValueError, match=r"trace: .*missing is not a folder that can be written \(rank 1\)"):
        sw.trace(wanted)
    with pytest.raises(ValueError, match=r"trace: rank 1 gave .*other\.json, and rank 0 .*trace\.json"):
        sw.trace(path if rank == 0 else path.with_name("other.json"))
    with sw.trace(path), pytest.raises(ValueError, match="is being written; stop that trace first"):
        sw.trace(path)
    clear(path, rank)


def test_a_process_alone_has_a_trace_without_calls(tmp_path):
    with sw.trace(tmp_path / "alone.json"):
        sw.all_gather_v(torch.ones(2))
    document = json.loads((tmp_path / "alone.json").read_text())
    assert document["otherData"]["ranks"] == [0]
    assert slices(document, "call") == []
