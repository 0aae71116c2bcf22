"""Bad arguments and disagreements of redistribute: every rank is told, with both sides' values, and can go on."""

from __future__ import annotations

import json
import os

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def rows(size, dtype=torch.float32, shape=(6, 4)):
    return sw.Layout(shape, dtype, sw.Mesh((size,)), [sw.Shard(0)])


def part_of(layout, rank, device="cpu", **options):
    return torch.ones(layout.box(rank)[1], dtype=layout.dtype, device=device, **options)


def tensor(size, rank, **options):
    return sw.MeshTensor(part_of(rows(size, **options), rank), rows(size, **options))


@ranks(2)
def test_a_local_tensor_that_does_not_fit_its_layout_is_refused(rank, size):
    layout = rows(size)
    with pytest.raises(
        ValueError, match=rf"MeshTensor: local has shape \[2, 4\].*f32\[6,4\] on 2: S0.*\[3, 4\].*rank {rank}"
    ):
        sw.MeshTensor(torch.ones(2, 4), layout)
    with pytest.raises(ValueError, match=r"local has dtype float64.*f32\[6,4\]"):
        sw.MeshTensor(torch.ones(3, 4, dtype=torch.float64), layout)
    with pytest.raises(ValueError, match=r"local has layout Sparse"):
        sw.MeshTensor(torch.ones(3, 4).to_sparse(), layout)
    with pytest.raises(ValueError, match=rf"this rank is in the mesh 2, but has no local \(rank {rank}\)"):
        sw.MeshTensor(None, layout)
    with pytest.raises(ValueError, match=r"this rank is outside the mesh 1, but has a local"):
        sw.MeshTensor(torch.ones(6, 4), sw.Layout((6, 4), torch.float32, sw.Mesh((1,), (1 - rank,)), [sw.Replicate()]))
    with pytest.raises(ValueError, match=r"local is a list, not a tensor"):
        sw.MeshTensor([1.0], layout)
    with pytest.raises(ValueError, match=r"layout='S0' is neither a Layout"):
        sw.MeshTensor(torch.ones(3, 4), "S0")
    with pytest.raises(ValueError, match=r"the mesh 3 has rank 2, but the group has the ranks 0,1"):
        sw.MeshTensor(torch.ones(2, 4), rows(3))
    if rank == 1:
        with pytest.raises(ValueError, match=r"MeshTensor: group=\('none',\) is no"):
            sw.MeshTensor(torch.ones(3, 4), layout, group=("none",))
    assert_usable(rank, size)


@TRANSPORTS
@ranks(3)
def test_one_ranks_bad_argument_is_the_same_error_on_all(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    other = sw.plan(rows(size, shape=(9, 9)), rows(size, shape=(9, 9)).with_([sw.Replicate()]))
    for bad, words in (
        ({"placements": [sw.Shard(2)]}, ["S2", "2-d tensor"]),
        ({"placements": [sw.Shard(0), sw.Replicate()]}, ["2 placements for a 1-d mesh"]),
        ({"placements": ["S1"]}, ["'S1' is not a Shard, Replicate or Partial"]),
        ({"placements": 7}, ["placements=7 is not a sequence"]),
        ({"placements": None}, ["placements is None"]),
        ({"placements": [sw.Shard(1, (1, 1, 1))]}, ["add up to 3", "length 4"]),
        ({"placements": [sw.Partial()]}, ["from S0 to P", "addends are never made"]),
        ({"placements": [sw.Shard(1)], "mesh": "cpu"}, ["'cpu' is neither a Mesh"]),
        ({"placements": [sw.Shard(1)], "mesh": sw.Mesh((4,))}, ["rank 3", "0,1,2"]),
        ({"placements": [sw.Shard(1)], "topology": "fast"}, ["topology='fast' is not a Topology"]),
        ({"placements": [sw.Shard(1)], "max_bytes": 1.5}, ["max_bytes=1.5 is not a 64-bit integer"]),
        ({"placements": [sw.Shard(1)], "max_bytes": 3}, ["max_bytes=3", "least"]),
        ({"placements": [sw.Shard(1)], "plan": "S0"}, ["plan='S0' is not a Plan"]),
        ({"plan": other}, [r"f32\[9,9\]", r"f32\[6,4\]"]),
        ({"placements": [sw.Shard(1)], "plan": other}, [r"leads from f32\[9,9\]", r"from f32\[6,4\] on 3: S0"]),
        ({"placements": [sw.Shard(1)], "grad_placements": [sw.Replicate()]}, ["grad_placements R", "S1"]),
        ({"placements": rows(size).with_([sw.Shard(1)]), "mesh": sw.Mesh((3,))}, ["mesh is given"]),
        ({"placements": rows(size, shape=(5, 4))}, ["shapes differ", "6x4", "5x4"]),
    ):
        arguments = {"placements": [sw.Shard(1)]} if rank != 1 else bad
        message = message_of(lambda: sw.redistribute(tensor(size, rank), **arguments))  # noqa: B023
        assert_says(message, ["redistribute: ", r"\(rank 1\)", *words], str(bad))
        message = message_of(lambda: sw.redistribute(tensor(size, rank), **bad))  # noqa: B023
        assert_says(message, ["redistribute: ", r"\(rank 0\)", *words], f"{bad} on all")
    assert_usable(rank, size)


def joined(first, second):
    """The steps of one plan after those of another."""
    plan, rest = json.loads(first.to_json()), json.loads(second.to_json())
    plan["steps"] += rest["steps"]
    plan["to"] = rest["to"]
    return sw.Plan.from_json(json.dumps(plan))


@TRANSPORTS
@ranks(3)
def test_ranks_that_disagree_are_told_both_sides(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    columns = rows(size).with_([sw.Shard(1)])
    whole = rows(size).with_([sw.Replicate()])
    detour = joined(sw.plan(rows(size), whole), sw.plan(whole, columns))

    def differ(**mine):
        arguments = {"placements": [sw.Shard(1)], **(mine if rank == 2 else {})}
        return message_of(lambda: sw.redistribute(tensor(size, rank), **arguments))

    both = r"on rank 0, .* on rank 2$"
    assert_says(
        differ(placements=[sw.Replicate()]), ["the target: f32.*: S1 on rank 0, f32.*: R on rank 2", both], "target"
    )
    assert_says(differ(plan=detour), ["the plan: S0 -all_to_all", "S0 -all_gather.*-> R -slice", both], "plan")
    assert_says(
        differ(placements=[sw.Replicate()], grad_placements=[sw.Partial()]), ["the target", both], "target and gradient"
    )
    assert_says(
        message_of(
            lambda: sw.redistribute(
                tensor(size, rank), [sw.Replicate()], grad_placements=[sw.Partial()] if rank == 2 else None
            )
        ),
        [r"the gradient: f32\[6,4\] on 3: R on rank 0, f32\[6,4\] on 3: P on rank 2"],
        "grad_placements",
    )
    other = sw.Mesh((size,), ranks=(1, 0, 2) if rank == 2 else (0, 1, 2))
    message = message_of(lambda: sw.redistribute(tensor(size, rank), [sw.Shard(1)], mesh=other))
    assert_says(message, [r"the target: f32\[6,4\] on 3: S1 on rank 0, .*of ranks \[1, 0, 2\] on rank 2"], "mesh")
    mine = tensor(size, rank, dtype=torch.float64 if rank == 2 else torch.float32)
    message = message_of(lambda: sw.redistribute(mine, [sw.Shard(1)]))
    assert_says(message, [r"the tensor: f32\[6,4\] on 3: S0 on rank 0, f64\[6,4\] on 3: S0 on rank 2"], "dtype")
    message = message_of(
        lambda: sw.redistribute(tensor(size, rank), [sw.Shard(1)]) if rank else sw.all_gather_v(torch.ones(2))
    )
    assert_says(message, ["different collectives: all_gather_v on rank 0, redistribute on rank 1"], "collectives")
    assert_usable(rank, size)


@TRANSPORTS
@ranks(2)
def test_an_async_calls_error_comes_with_wait_and_a_dropped_one_disturbs_nothing(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    target = [sw.Replicate()] if rank else [sw.Shard(1)]
    handle = sw.redistribute(tensor(size, rank), target, async_op=True)
    for _ in range(2):
        assert_says(message_of(handle.wait), ["the target", "S1 on rank 0", "R on rank 1"], "async")
    sw.redistribute(tensor(size, rank), target, async_op=True)  # dropped, error and all
    assert torch.equal(sw.redistribute(tensor(size, rank), [sw.Replicate()]).local, torch.ones(6, 4))
    assert_usable(rank, size)


@TRANSPORTS
@ranks(2)
def test_a_local_tensor_that_was_resized_is_refused(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    t = tensor(size, rank)
    if rank == 1:
        t.local.resize_(2, 4)
    assert_says(message_of(t.full), [r"shape \[2, 4\]", r"f32\[6,4\] on 2: S0", r"rank 1"], "resized")
    assert_usable(rank, size)


@TRANSPORTS
@ranks(2)
def test_addends_that_cannot_be_combined_are_refused(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    for dtype, op, word in (
        (torch.float8_e5m2, "sum", "float8_e5m2"),
        (torch.complex64, "max", "complex64"),
    ):
        layout = sw.Layout((2, 2), dtype, sw.Mesh((size,)), [sw.Partial(op)])
        t = sw.MeshTensor(torch.zeros(2, 2).to(dtype), layout)
        assert_says(message_of(lambda: sw.redistribute(t, [sw.Replicate()])), [f"op='{op}'", word], op)  # noqa: B023
    assert_usable(rank, size)


@TRANSPORTS
@ranks(3)
def test_distribute_reports_the_sources_mistakes_to_all(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = sw.Mesh((size,))
    whole = torch.ones(6, 4)

    def says(words, tensor=whole, mesh=mesh, placement=None, **options):
        placements = [placement or sw.Shard(0)]
        assert_says(message_of(lambda: sw.distribute(tensor, mesh, placements, **options)), words, str(words))

    says(["distribute: ", "tensor is a NoneType", "rank 1"], tensor=None, src=1)
    says(["src=7 is not in the group"], src=7)
    says(["S3", "2-d tensor"], placement=sw.Shard(3), src=1)
    says(["from R to P", "addends are never made"], placement=sw.Partial(), src=0)
    says([r"disagree on src: 0 on rank 0, 1 on rank 1"], src=rank)
    says(["disagree on target: 3: S0 on rank 0, 3: S1 on rank 2"], placement=sw.Shard(1 if rank == 2 else 0), src=1)
    says(["neither a Mesh"], mesh=None, src=1)
    for tensor, placement, words in ((whole, sw.Partial(), "from R to P"), (None, sw.Shard(0), "tensor is a NoneType")):
        with pytest.raises(ValueError, match=f"redistribute: .*{words}"):  # of all ranks, each by itself on gloo
            sw.distribute(tensor, mesh, [placement])
    assert_usable(rank, size)


@ranks(2)
def test_redistribute_takes_nothing_but_tensors_on_a_mesh(rank, size):
    with pytest.raises(ValueError, match=r"redistribute: t is a Tensor, neither a MeshTensor nor a DTensor"):
        sw.redistribute(torch.ones(2), [sw.Shard(0)])
    with pytest.raises(ValueError, match=r"from_dtensor: Tensor is not a DTensor"):
        sw.MeshTensor.from_dtensor(torch.ones(2))
    assert dist.is_initialized()
