"""Tensors that have lost ranks go on to the living from replicas and copies, or say what is lost."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.mesh_reference import DTYPES, Layouts, Pair, coordinate, held, part, same_bits
from tests.support.ranks import ranks

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def group_of(living: Sequence[int]) -> dist.ProcessGroup:
    """The ranks that go on. The others are as good as dead: they make the group, as torch wants it, and no call."""
    group = dist.new_group(list(living))
    assert group is not None
    return group


def turned(mesh: sw.Mesh, by: int = 1) -> sw.Mesh:
    """The mesh in which the next rank keeps what a rank holds."""
    return sw.Mesh(mesh.shape, [mesh.ranks[(i + by) % len(mesh.ranks)] for i in range(len(mesh.ranks))])


def is_held(layout: sw.Layout, living: Sequence[int]) -> torch.Tensor:
    """For every element whether a living rank holds it or, of addends, each of them."""
    partial = [dim for dim, placement in enumerate(layout.placements) if placement.is_partial()]
    keys = list(itertools.product(*(range(layout.mesh.shape[dim]) for dim in partial)))
    found = {key: torch.zeros(layout.shape, dtype=torch.bool) for key in keys}
    for rank in set(living) & set(layout.mesh.ranks):
        at, indices = coordinate(layout.mesh, rank), held(layout, rank)
        assert at is not None and indices is not None
        box = tuple(slice(along[0], along[-1] + 1) if along else slice(0, 0) for along in indices)
        found[tuple(at[dim] for dim in partial)][box] = True
    return torch.stack(list(found.values())).all(0)


def named_boxes(message: str, shape: Sequence[int]) -> torch.Tensor:
    """For every element whether the message says that it is lost."""
    lost = torch.zeros(shape, dtype=torch.bool)
    for box in re.findall(r"(its element|(?:\[\d+,\d+\)×?)+) with rank", message):
        lost[tuple(slice(int(a), int(b)) for a, b in re.findall(r"\[(\d+),(\d+)\)", box))] = True
    return lost


@TRANSPORTS
@pytest.mark.parametrize("living", [(0, 1, 2), (1, 2, 3), (0, 3), (2,)], ids=str)
@ranks(4, timeout_s=120)
def test_random_wrecks_give_what_one_process_computes_or_name_what_is_lost(rank, size, seed, transport, living):
    """Uneven, empty, ragged, reordered, of every dtype, addends of every kind, with another layout's copy or none."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    group = group_of(living)
    if rank not in living:
        return
    layouts = Layouts(seed, size)
    outcomes = {"whole": 0, "lost": 0}
    for turn in range(150):
        dtype, shape = layouts.random.choice(DTYPES), layouts.shape(60 if turn % 16 == 0 else 7)
        mesh = layouts.mesh()
        before = layouts.layout(shape, dtype, mesh, layouts._partials(mesh, dtype, None))
        after = layouts.layout(shape, dtype, sw.Mesh((len(living),), living), {})
        pair = Pair(before, after, layouts._addends(before))
        whole = pair.whole()
        t = sw.MeshTensor(pair.input(rank), before)
        sources, copies = [before], None
        if turn % 3:
            copy = layouts.layout(shape, dtype, turned(mesh), {})
            indices = held(copy, rank)
            sources.append(copy)
            copies = sw.MeshTensor(None if indices is None else part(whole, indices), copy)
        lost = ~torch.stack([is_held(layout, living) for layout in sources]).any(0)
        if lost.any():
            with pytest.raises(ValueError, match=r"redistribute: .* has lost .*, and no living rank holds") as raised:
                sw.redistribute(t, after, group=group, copies=copies)
            named = named_boxes(str(raised.value), shape)
            assert not (named & ~lost).any(), f"{pair}: {raised.value}"
            assert "boxes more" in str(raised.value) or torch.equal(named, lost), f"{pair}: {raised.value}"
            outcomes["lost"] += 1
            continue
        done = sw.redistribute(t, after, group=group, copies=copies, async_op=turn % 2 == 1)
        result = done.wait() if turn % 2 else done
        assert result.layout == after and result.group is group
        assert same_bits(result.local, part(whole, held(after, rank))), f"{pair}\n{result.local}\n{whole}"
        outcomes["whole"] += 1
    assert min(outcomes.values()) > 10, outcomes


@TRANSPORTS
@pytest.mark.parametrize("dead", [0, 1, 3])
@ranks(4)
def test_a_list_goes_on_from_the_copies_of_the_next_ranks(rank, size, transport, dead):
    """The copies are made by a redistribute themselves; small and large tensors, one call."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = sw.Mesh((size,), names=("dp",))
    wholes = [torch.arange(rows * 3, dtype=torch.float32).view(rows, 3) for rows in (1, 5, 10, 100_000)]
    state = [sw.distribute(whole, mesh, [sw.Shard(0)]) for whole in wholes]
    copies = sw.redistribute(state, [sw.Shard(0)], mesh=turned(mesh))
    living = [r for r in range(size) if r != dead]
    group = group_of(living)
    if rank == dead:
        return
    rescued = sw.redistribute(state, [sw.Shard(0)], group=group, copies=copies)
    for whole, t in zip(wholes, rescued, strict=True):
        assert t.layout.mesh == sw.Mesh((3,), living) and t.layout.mesh.names == ("dp",)
        assert torch.equal(t.local, part(whole, held(t.layout, rank)))
        assert torch.equal(t.full(), whole)  # the group serves on


@ranks(4)
def test_replicas_on_two_by_two_outlive_one_rank_of_each_pair(rank, size):
    """Rows are split over the first dim and replicated over the second: ranks 0, 1 and ranks 2, 3 hold the same."""
    whole = torch.arange(14, dtype=torch.int64).view(7, 2)
    t = sw.distribute(whole, sw.Mesh((2, 2)), [sw.Shard(0), sw.Replicate()])
    for living in ((1, 2, 3), (1, 2), (0, 3), (0, 1, 2)):
        group = group_of(living)
        if rank not in living:
            continue
        rows = sw.redistribute(t, [sw.Shard(0)], mesh=sw.Mesh((len(living),), living), group=group)
        assert torch.equal(rows.local, part(whole, held(rows.layout, rank)))
    group = group_of((2, 3))
    if rank in (2, 3):
        with pytest.raises(ValueError) as raised:
            sw.redistribute(t, [sw.Shard(0)], mesh=sw.Mesh((2,), (2, 3)), group=group)
        lost = "[0,4)×[0,2) with ranks 0,1, and no living rank holds a copy"
        assert str(raised.value) == f"redistribute: i64[7,2] on 2x2: S0,R has lost {lost}"
        with pytest.raises(ValueError, match=r"the mesh 2x2 has lost 2 ranks: say with mesh= how the others lie"):
            sw.redistribute(t, [sw.Shard(0), sw.Replicate()], group=group)


@ranks(3)
def test_an_addend_that_died_is_lost_and_the_others_are_not_taken_for_the_sum(rank, size):
    t = sw.MeshTensor(torch.full((2, 2), 1.0 + rank), sw.Layout((2, 2), torch.float32, sw.Mesh((3,)), [sw.Partial()]))
    group = group_of((0, 2))
    if rank == 1:
        return
    with pytest.raises(ValueError, match=r"f32\[2,2\] on 3: P has lost \[0,2\)×\[0,2\) with rank 1"):
        sw.redistribute(t, [sw.Replicate()], group=group)


@TRANSPORTS
@ranks(3)
def test_a_disagreement_or_a_bad_argument_is_the_same_error_on_all_survivors(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = sw.Mesh((3,))
    t = sw.distribute(torch.arange(6.0), mesh, [sw.Replicate()])
    other = sw.distribute(torch.arange(7.0), mesh, [sw.Shard(0)])
    group = group_of((0, 2))
    if rank == 1:
        return

    def refusal(**options):
        with pytest.raises(ValueError) as raised:
            sw.redistribute(options.pop("t", t), options.pop("placements", [sw.Shard(0)]), group=group, **options)
        told = [None] * 2
        dist.all_gather_object(told, str(raised.value), group=group)
        assert told[0] == told[1]
        return told[0]

    assert re.search(
        "ranks disagree on tensor 0: .*: R of ranks.*: S0 of ranks",
        refusal(placements=[sw.Shard(0) if rank else sw.Replicate()]),
    )
    assert "copy 0: the shapes differ: 7 and 6" in refusal(copies=other)
    assert "copies has a str, which is not a MeshTensor" in refusal(copies=["next"] if rank == 2 else [])
    assert "topology and max_bytes are for a tensor whose ranks all live" in refusal(max_bytes=1000)
    assert "grad_placements" in refusal(grad_placements=[sw.Shard(0)])
    assert "the mesh 3 has rank 1, but the group has the ranks 0,2" in refusal(mesh=mesh)
    assert "group, copies, out and relabel are for MeshTensors" in refusal(t="a DTensor")
    assert "t is an empty list" in refusal(t=[])
    assert "copies is a MeshTensor, but t is a list" in refusal(t=[t, t], copies=t)
    assert "there are copies for 1 tensors, but t has 2" in refusal(t=[t, t], copies=[t])
    assert "tensor 1: copy 0: the shapes differ" in refusal(t=[t, t], copies=[None, other])
    with pytest.raises(ValueError, match=r"copies are for a tensor that has lost ranks: pass group= of the living too"):
        sw.redistribute(
            sw.MeshTensor(t.local[:3] if rank == 0 else t.local[3:], rows_on((0, 2)), group),
            [sw.Replicate()],
            copies=[t],
        )
    assert torch.equal(sw.redistribute(t, [sw.Replicate()], group=group).local, torch.arange(6.0))


def rows_on(living):
    return sw.Layout((6,), torch.float32, sw.Mesh((len(living),), living), [sw.Shard(0)])


@ranks(2)
def test_the_result_has_no_gradient_and_no_memory_of_the_input(rank, size):
    x = torch.ones(4, requires_grad=True)
    t = sw.MeshTensor(x, sw.Layout((4,), torch.float32, sw.Mesh((2,)), [sw.Replicate()]))
    group = group_of((0,))
    if rank == 0:
        y = sw.redistribute(t, [sw.Replicate()], group=group).local
        assert not y.requires_grad and y.data_ptr() != x.data_ptr()
        assert torch.equal(y, torch.ones(4))
