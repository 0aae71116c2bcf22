"""Uses every public name as a typed program would. Checked by mypy --strict, never run: test_types.py."""

from __future__ import annotations

from datetime import timedelta

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor

import shardway as sw


def collectives(x: Tensor, group: ProcessGroup) -> None:
    gathered, sizes = sw.all_gather_v(x, grad="mean", group=group)
    lists: tuple[list[Tensor], list[tuple[int, ...]]] = sw.all_gather_v([x, x])
    mine: Tensor = sw.reduce_scatter_v(gathered, sizes, op="avg")
    several: list[Tensor] = sw.reduce_scatter_v([x, x], op=torch.distributed.ReduceOp.SUM)
    there, counts = sw.all_to_all_v(mine, [1, 2], recv_sizes=sizes)
    total: Tensor = sw.all_reduce(x, op="max", grad="local")
    first: Tensor = sw.broadcast(x, src=0)
    rooted, _ = sw.gather_v(x, dst=0)
    part: Tensor = sw.scatter_v(None, src=0)
    lengths: tuple[int, ...] = sw.gather_sizes(x)
    own, _ = sw.split_by_rank([x, x])
    print(lists, several, there, counts, total, first, rooted, part, lengths, own)


def handles(x: Tensor, t: sw.MeshTensor) -> None:
    ragged: sw.Handle[tuple[Tensor, tuple[int, ...]]] = sw.all_gather_v(x, async_op=True)
    ragged_list: sw.Handle[tuple[list[Tensor], list[tuple[int, ...]]]] = sw.all_gather_v([x], async_op=True)
    tensor: sw.Handle[Tensor] = sw.all_reduce(x, async_op=True)
    tensor_list: sw.Handle[list[Tensor]] = sw.reduce_scatter_v([x], async_op=True)
    moved: sw.Handle[sw.MeshTensor] = sw.redistribute(t, [sw.Replicate()], async_op=True)
    moved_list: sw.Handle[list[sw.MeshTensor]] = sw.redistribute([t], [sw.Replicate()], async_op=True)
    gathered, sizes = ragged.wait()
    all_gathered, all_sizes = ragged_list.wait()
    one: Tensor = tensor.wait()
    several: list[Tensor] = tensor_list.wait()
    u: sw.MeshTensor = moved.wait()
    us: list[sw.MeshTensor] = moved_list.wait()
    print(gathered, sizes, all_gathered, all_sizes, one, several, u, us)


def modules() -> list[torch.nn.Module]:
    return [
        sw.AllGather(0, grad="sum"),
        sw.AllReduce(op="mean"),
        sw.AllToAll(1),
        sw.Broadcast(0),
        sw.Gather(0),
        sw.ReduceScatter(op="sum"),
        sw.Scatter(0),
    ]


def plans() -> str:
    mesh = sw.Mesh((2, 4), names=("dp", "tp"))
    placements: list[sw.Placement] = [sw.Shard(0, sizes=(1, 2)), sw.Partial("avg")]
    layout = sw.Layout((3, 4), torch.float32, mesh, placements)
    topology = sw.Topology(within_host=sw.Link(1.0, 10.0), ranks_per_host=4)
    plan: sw.Plan = sw.plan(layout, layout.with_([sw.Replicate(), sw.Shard(1)]), topology, rules="shardway")
    steps: tuple[sw.Step, ...] = plan.steps
    others: tuple[sw.Alternative, ...] = plan.alternatives
    places: sw.Relabelling | None = plan.relabelling
    cost: float = sw.redistribute_cost(layout, layout)
    sw.clear_plans()
    return f"{steps} {others} {places} {cost} {sw.draw(layout)}"


def tensors_on_a_mesh(x: Tensor, d: DTensor, mesh: sw.Mesh) -> None:
    t: sw.MeshTensor = sw.distribute(x, mesh, [sw.Shard(0)])
    u: sw.MeshTensor = sw.redistribute(t, [sw.Replicate()])
    e: DTensor = sw.redistribute(d, [sw.Replicate()])
    with sw.use_for_dtensor():
        print(sw.for_checkpoint({"u": u}), e)
    owners: sw.Owners = sw.to_owners([t])
    print(owners.run()[0], owners.owner)
    call: sw.PreparedCall[sw.MeshTensor] = sw.prepare(sw.redistribute, t, [sw.Replicate()])
    again: sw.MeshTensor = call.run()
    print(again.local)


def two_jobs(layout: sw.Layout, t: sw.MeshTensor) -> None:
    link: sw.JobLink = sw.connect("tcp://127.0.0.1:29700", "trainer", timeout=timedelta(minutes=1))
    source: sw.Source = link.publish({"w": t})
    version: int = source.send(wait=False)
    target: sw.Target = link.subscribe({"w": sw.Load(layout, torch.bfloat16, lambda name, piece: None)}, cast=True)
    plan: sw.ModelPlan = target.plan
    print(version + target.receive(), plan.explain())
    link.close()


def the_rest() -> None:
    living: ProcessGroup = sw.shrink(timeout=5.0)
    calls: list[dict[str, object]] = sw.last_calls()
    print(living, calls, sw.dump_last_calls("calls/rank_"), sw.stats(), sw.memory_stats())
    trace: sw.Trace = sw.trace("trace.json")
    trace.stop()
    x: Tensor = sw.empty(2, 3, dtype=torch.float16)
    sw.empty_cache()
    sw.use_shared_allocator()
    print(x, sw.BackendOptions(timedelta(seconds=30)), sw.cmake_prefix_path, sw.__version__)
