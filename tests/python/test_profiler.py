"""torch.profiler shows every call by its name, with the shapes and sizes that it was given."""

from __future__ import annotations

import torch
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
