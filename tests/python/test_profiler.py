"""torch.profiler shows every call by its name, with the shapes and sizes that it was given."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

import shardway as sw
from tests.support.ranks import ranks


def recorded(body):
    """The calls of shardway in a profile, in order: name, shapes, sizes."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        body()
    events = sorted(found.events(), key=lambda event: event.time_range.start)
    return [
        (event.name, event.input_shapes, [value for value in event.concrete_inputs if isinstance(value, list)])
        for event in events
        if event.name.startswith("shardway::")
    ]


@ranks(2)
def test_a_profile_names_every_collective_with_its_shapes_and_sizes(rank, size):
    x = torch.ones(rank + 1, 4)
    whole = torch.ones(3, 4)
    mesh_tensor = sw.MeshTensor(x, sw.Layout((3, 4), torch.float32, sw.Mesh((2,)), [sw.Shard(0, (1, 2))]))

    def every_call():
        sw.all_gather_v(x)
        sw.all_gather_v(x, sizes=(1, 2))
        sw.reduce_scatter_v(whole, (1, 2), async_op=True).wait()
        sw.all_to_all_v(whole, (1, 2))
        sw.all_reduce(whole)
        sw.broadcast(whole)
        sw.gather_v(x, sizes=(1, 2))
        sw.scatter_v(whole, sizes=(1, 2))
        sw.gather_sizes(x)
        sw.all_gather_v([x, whole])
        sw.redistribute(mesh_tensor, [sw.Replicate()])

    part, all_of_it, sizes = [rank + 1, 4], [3, 4], [[1, 2]]
    assert recorded(every_call) == [
        ("shardway::all_gather_v", [part], []),
        ("shardway::all_gather_v", [part, []], sizes),
        ("shardway::reduce_scatter_v", [all_of_it, []], sizes),
        ("shardway::all_to_all_v", [all_of_it, []], sizes),
        ("shardway::all_reduce", [all_of_it], []),
        ("shardway::broadcast", [all_of_it], []),
        ("shardway::gather_v", [part, []], sizes),
        ("shardway::scatter_v", [all_of_it, []] if rank == 0 else [all_of_it], sizes if rank == 0 else []),
        ("shardway::gather_sizes", [part], []),
        ("shardway::all_gather_v", [part, all_of_it], []),
        ("shardway::redistribute", [part], []),
    ]


@ranks(2)
def test_a_profile_names_the_gradient_and_the_operators_once(rank, size):
    x = torch.ones(rank + 1, 4, requires_grad=True)
    y = sw.all_gather_v(x)[0]
    assert [name for name, *_ in recorded(lambda: y.sum().backward())] == ["shardway::all_gather_v_backward"]
    group = torch.distributed.group.WORLD.group_name
    called = recorded(lambda: torch.ops.shardway.all_gather_v(x.detach(), [1, 2], 0, "sum", group))
    assert [name for name, *_ in called] == ["shardway::all_gather_v"]


@ranks(2)
def test_a_call_behind_an_asynchronous_one_is_told_by_the_thread_that_makes_it(rank, size):
    """It may be made by the thread that made the asynchronous one, and an event ends where it began."""
    large, x = torch.ones(1 << 20), torch.ones(rank + 1, 4)

    def calls():
        handle = sw.all_gather_v(large, sizes=(1 << 20,) * 2, async_op=True)
        sw.all_to_all_v(torch.ones(3, 4), (1, 2))
        sw.all_gather_v(x)
        handle.wait()

    for _ in range(20):
        names = [name for name, *_ in recorded(calls)]
        assert names == ["shardway::all_gather_v", "shardway::all_to_all_v", "shardway::all_gather_v"]


def comms_of(body):
    """What a profile tells of each exchange, in order."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
        body()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        found.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    named = [event for event in events if event.get("name") == "record_param_comms"]
    return [event["args"] for event in sorted(named, key=lambda event: event["ts"])]


def summary(args):
    return (
        args["Collective name"],
        args["In msg nelems"],
        args["Out msg nelems"],
        args["In split size"],
        args["Out split size"],
    )


@ranks(2)
def test_a_profile_tells_each_exchange_as_torchs_own(rank, size):
    mine, whole = torch.ones(rank + 1, 4, requires_grad=True), torch.ones(3, 4)

    def every_call():
        gathered, _ = sw.all_gather_v(mine)
        gathered.sum().backward()
        sw.reduce_scatter_v(whole, (1, 2))
        sw.all_to_all_v(whole, (1, 2))
        sw.all_reduce(whole)
        sw.broadcast(whole, 1)
        sw.gather_v(mine.detach(), 0)
        sw.scatter_v(whole, 0, sizes=(1, 2))
        sw.all_gather_v([mine.detach(), 2 * mine.detach(), whole])

    told = comms_of(every_call)
    own, n = 4 * (rank + 1), 4 * 2 * (rank + 1)
    assert [summary(args) for args in told] == [
        ("all_gather_v", own, 12, "[]", "[4, 8]"),
        ("all_gather_v_backward", 12, own, "[4, 8]", "[]"),
        ("reduce_scatter_v", 12, own, "[4, 8]", "[]"),
        ("all_to_all_v", 12, n, "[4, 8]", f"[{own}, {own}]"),
        ("all_reduce", 12, 12, "[]", "[]"),
        ("broadcast", 12, 12, "[]", "[0, 12]"),
        ("gather_v", own, 12 if rank == 0 else 0, f"[{own}, 0]", "[4, 8]" if rank == 0 else "[0, 0]"),
        ("scatter_v", 12 if rank == 0 else 0, own, "[4, 8]" if rank == 0 else "[0, 0]", f"[{own}, 0]"),
        ("all_gather_v", 2 * own + 12, 2 * 12 + 24, "[]", "[]"),
    ]
    for args in told:
        assert args["dtype"] == "Float" and args["Group size"] == size
        assert args["Process Group Name"] == dist.group.WORLD.group_name
        assert args["Process Group Description"] == "default_pg"


@ranks(2, backend="shardway")
def test_a_profile_tells_each_call_of_the_backend(rank, size):
    x, both = torch.ones(3, 2, dtype=torch.int64), torch.empty(6, 2, dtype=torch.int64)

    def every_call():
        dist.all_reduce(x)
        dist.all_gather_into_tensor(both, x)
        dist.all_to_all_single(both, both, [3, 3], [3, 3])
        dist.barrier()
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)

    told = comms_of(every_call)
    assert [summary(args) for args in told] == [
        ("all_reduce", 6, 6, "[]", "[]"),
        ("_all_gather_base", 6, 12, "[]", "[]"),
        ("all_to_all", 12, 12, "[3, 3]", "[3, 3]"),
        ("barrier", 0, 0, "[]", "[]"),
        ("send" if rank == 0 else "recv", 6, 6, "[]", "[]"),
    ]
    assert [args["Process Group Name"] for args in told] == [dist.group.WORLD.group_name] * 5
    assert told[0]["dtype"] == "Long"


def messages_in_a_profile():
    with profile(activities=[ProfilerActivity.CPU]) as found:
        sw.all_reduce(torch.ones(8))
    return sum(event.name.startswith("gloo:") for event in found.events())


@ranks(3)
def test_the_first_call_of_a_gloo_group_leaves_nothing_in_a_profile_that_ends_later(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    first = messages_in_a_profile()
    assert first == messages_in_a_profile()  # the receives that watch over the group are not the profile's
