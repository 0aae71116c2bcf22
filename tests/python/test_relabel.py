"""Redistributions to ranks that the planner chooses: fewer bytes, the same values."""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import replace

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

import shardway as sw
from tests.support.mesh_reference import Layouts, held, part, same_bits
from tests.support.ranks import ranks
from tests.support.refusals import assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def on(layout: sw.Layout, ranks_: tuple[int, ...]) -> sw.Layout:
    return layout.with_(layout.placements, mesh=sw.Mesh(layout.mesh.shape, ranks_), order=layout.order)


def missing_bytes(before: sw.Layout, after: sw.Layout) -> int:
    """What ranks have to receive, from lists of indices."""
    missing = 0
    for rank in after.mesh.ranks:
        wanted, have = held(after, rank), held(before, rank)
        count = math.prod(map(len, wanted))
        common = 0 if have is None else math.prod(len({*a} & {*b}) for a, b in zip(wanted, have, strict=True))
        missing += (count - common) * after.dtype.itemsize
    return missing


def test_a_plan_moves_no_more_than_the_best_of_all_orders(seed):
    draw = Layouts(seed, 4)
    saved = 0
    for _ in range(40):
        shape, mesh = draw.shape(7), draw.mesh()
        before = draw.layout(shape, torch.float32, mesh, {})
        after = draw.layout(shape, torch.float32, draw.mesh(), {})
        plan = sw.plan(before, after, sw.Topology(), relabel=True)
        assert sorted(plan.to.mesh.ranks) == sorted(after.mesh.ranks) and plan.to.placements == after.placements
        found = plan.relabelling
        assert found.ranks == plan.to.mesh.ranks and found.given_ranks == after.mesh.ranks
        assert found.given_total_bytes == sw.plan(before, after, sw.Topology()).total_bytes
        if found.saved_bytes:
            saved += 1
            least = min(missing_bytes(before, on(after, order)) for order in itertools.permutations(after.mesh.ranks))
            assert missing_bytes(before, plan.to) == least
            assert "relabelled: ranks" in plan.explain()
        else:
            assert plan.to == after and "relabelling saves nothing" in plan.explain()
    assert saved


def test_bad_ranks_are_refused():
    rows = sw.Layout((4,), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
    for relabel, message in (
        ([0], "1 ranks to choose from are too few for a mesh of 2"),
        ([0, 1, 1], "rank 1 is named twice"),
        ([], "relabel names no ranks"),
        (["a", "b"], "relabel"),
        (3, "relabel"),
    ):
        with pytest.raises(ValueError, match=message):
            sw.plan(rows, rows, relabel=relabel)
    with pytest.raises(ValueError, match="no way between meshes"):
        sw.plan(rows, rows, rules="torch_2_13", relabel=True)


@TRANSPORTS
@ranks(2, 3, 4)
def test_values_are_those_of_the_layout_that_was_chosen(rank, size, transport, seed):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Layouts(seed, size)
    for _ in range(10):
        pair = draw.pair()
        relabel = draw.random.choice([True, tuple(range(size))])
        t = sw.MeshTensor(pair.input(rank), pair.before)
        u = sw.redistribute(t, pair.after, relabel=relabel)
        chosen = replace(pair, after=u.layout)
        expected = chosen.output(rank)
        assert u.layout == on(pair.after, u.layout.mesh.ranks), pair
        assert (u.local is None) == (expected is None), pair
        assert expected is None or same_bits(u.local, expected), f"{pair}: {u.local} instead of {expected}"
        assert u.layout == sw.plan(t, pair.after, relabel=relabel).to


@ranks(4)
def test_a_list_is_relabelled_alike_and_less_of_it_moves(rank, size):
    turned = sw.Mesh((4,), (1, 2, 3, 0))
    wholes = [torch.arange(64.0).view(16, 4), torch.arange(8.0)]
    befores = [sw.Layout(tuple(w.shape), w.dtype, sw.Mesh((4,)), [sw.Shard(0)]) for w in wholes]
    tensors = [sw.MeshTensor(part(w, held(b, rank)), b) for w, b in zip(wholes, befores, strict=True)]
    tensors.append(sw.redistribute(tensors[1], [sw.Shard(0)], mesh=turned))  # lies as it is asked for
    moved = {}
    for relabel in (False, True):
        with sw.prepare(sw.redistribute, tensors, [sw.Shard(0)], mesh=turned, relabel=relabel) as call:
            moved[relabel] = sum(map(sum, call.bytes))
            assert len({u.layout.mesh.ranks for u in call.run()}) == 1
            for u, whole in zip(call.run(), [*wholes, wholes[1]], strict=True):
                assert torch.equal(u.local, part(whole, held(u.layout, rank)))
    assert moved == {False: (64 + 8) * 4, True: 8 * 4}


@ranks(3)
def test_a_rank_without_a_part_may_be_chosen_and_gradients_come_back(rank, size):
    before = sw.Layout((6,), torch.float64, sw.Mesh((2,)), [sw.Shard(0)])
    after = sw.Mesh((1,), (2,))
    t = sw.MeshTensor(torch.arange(3.0, dtype=torch.float64) + 3 * rank, before) if rank < 2 else None
    u = sw.redistribute(t, [sw.Replicate()], mesh=after, relabel=[0, 1, 2])
    assert u.layout.mesh.ranks == (0,) and (rank != 0 or torch.equal(u.local, torch.arange(6.0, dtype=torch.float64)))
    leaf = torch.ones(3, dtype=torch.float64, requires_grad=True) if rank < 2 else None
    u = sw.redistribute(sw.MeshTensor(leaf, before), [sw.Replicate()], mesh=after, relabel=[0, 1, 2])
    weights = torch.arange(6.0, dtype=torch.float64)
    u.backward(weights if rank == 0 else None)
    assert leaf is None or torch.equal(leaf.grad, weights[3 * rank : 3 * rank + 3])


@TRANSPORTS
@ranks(3)
def test_ranks_that_do_not_all_relabel_are_told(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    rows = sw.Layout((6,), torch.float32, sw.Mesh((3,)), [sw.Shard(0)])
    t = sw.MeshTensor(torch.ones(2), rows)
    turned, uneven = sw.Mesh((3,), (1, 2, 0)), sw.Shard(0, [3, 2, 1])
    message = message_of(lambda: sw.redistribute(t, [uneven], mesh=turned, relabel=rank == 1))
    assert "ranks disagree on the target" in message
    message = message_of(lambda: sw.redistribute(t, [uneven], mesh=turned, relabel=[0] if rank == 1 else True))
    assert "too few for a mesh of 3" in message and "rank 1" in message
    plan = sw.plan(t, rows)
    assert "relabel is for making a plan" in message_of(lambda: sw.redistribute(t, plan=plan, relabel=True))
    assert_usable(rank, size)


@ranks(2)
def test_a_dtensor_keeps_its_ranks(rank, size):
    mesh = DeviceMesh("cpu", [0, 1])
    d = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
    for given in (d, [d]):
        assert "relabel are for MeshTensors" in message_of(lambda: sw.redistribute(given, [Shard(0)], relabel=True))  # noqa: B023
    assert_usable(rank, size)
