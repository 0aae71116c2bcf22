"""Tensors that go from any layout to any other, against a reference in one process."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.dense import memory_forms
from tests.support.mesh_reference import Layouts, check, same_bits
from tests.support.ranks import ranks

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


@TRANSPORTS
@ranks(2, 3, 4, 6, timeout_s=120)
def test_random_pairs_give_what_one_process_computes(rank, size, seed, transport):
    """Uneven, empty, ragged, reordered, on other meshes, of every dtype, addends of every kind; small ones travel
    beside the header, large ones by their routes."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layouts = Layouts(seed, size)
    for turn in range(400):
        pair = layouts.pair(longest=60 if turn % 16 == 0 else 7)
        local = pair.input(rank)
        kept = None if local is None else local.clone()
        t = sw.MeshTensor(local, pair.before)
        check(pair, sw.redistribute(t, pair.after), rank)
        if turn % 4 == 0:
            check(pair, sw.redistribute(t, pair.after, async_op=True).wait(), rank, "async")
        assert kept is None or same_bits(local, kept), "the input was changed"


def rows_of(whole, rank, size):
    return whole.tensor_split(size)[rank].clone()


def on_world(shape, size, placements, dtype=torch.float32):
    return sw.Layout(shape, dtype, sw.Mesh((size,)), placements)


@ranks(2, 3)
def test_any_memory_layout_of_the_input_is_read(rank, size, seed):
    layouts = Layouts(seed, size)
    for _ in range(40):
        pair = layouts.pair(torch.float64)
        local = pair.input(rank)
        forms = [("none", None)] * 5 if local is None else list(memory_forms(local))
        for form, x in forms:
            check(pair, sw.redistribute(sw.MeshTensor(x, pair.before), pair.after), rank, form)


@ranks(1, 2, 3)
def test_an_unchanged_layout_gives_the_tensor_itself_and_others_share_no_memory(rank, size):
    whole = torch.arange(12.0).view(6, 2)
    t = sw.MeshTensor(whole, on_world((6, 2), size, [sw.Replicate()]))
    assert sw.redistribute(t, [sw.Replicate()]).local is whole
    slice_of_it = sw.redistribute(t, [sw.Shard(0)])
    if size > 1:
        slice_of_it.local.fill_(-1)
        assert torch.equal(whole, torch.arange(12.0).view(6, 2))
    else:
        assert slice_of_it.local is whole  # one rank: every op gives its input back


@ranks(2, 3)
def test_without_communication_ranks_need_not_meet_on_gloo(rank, size):
    """Only rank 0 slices; in shared memory all would have to, since the header costs nothing there."""
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    whole = torch.arange(12.0).view(6, 2)
    t = sw.MeshTensor(whole, on_world((6, 2), size, [sw.Replicate()]))
    t.full()  # unchanged as well
    if rank == 0:
        assert torch.equal(sw.redistribute(t, [sw.Shard(0)]).local, rows_of(whole, 0, size))


@TRANSPORTS
@ranks(4)
def test_a_given_plan_runs(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.arange(64.0).view(8, 8)
    mesh = sw.Mesh((2, 2))
    before = sw.Layout((8, 8), torch.float32, mesh, [sw.Shard(0), sw.Shard(1)])
    after = before.with_([sw.Shard(1), sw.Shard(0)])
    t = sw.distribute(whole, mesh, before.placements)
    wanted = sw.redistribute(t, after)
    for topology in (sw.Topology(base_us=100), sw.Topology(base_us=0, within_host=(0.0, 1.0))):
        plan = sw.plan(before, after, topology)
        for given in (plan, sw.Plan.from_json(plan.to_json())):
            for placements in (None, after, after.placements):
                assert torch.equal(sw.redistribute(t, placements, plan=given).local, wanted.local)


@ranks(2)
def test_a_memory_limit_holds_or_is_refused_with_the_least(rank, size):
    layout = on_world((64, 64), size, [sw.Partial()])
    t = sw.MeshTensor(torch.ones(64, 64), layout)
    least = sw.plan(layout, layout.with_([sw.Replicate()])).peak_bytes
    assert torch.equal(sw.redistribute(t, [sw.Replicate()], max_bytes=least).local, torch.full((64, 64), 2.0))
    with pytest.raises(ValueError, match=r"redistribute: .*max_bytes=1.*least is \d+ bytes \(rank 0\)"):
        sw.redistribute(t, [sw.Replicate()], max_bytes=1)


@TRANSPORTS
@ranks(2, 3, 4)
def test_many_calls_in_flight_finish_in_any_order(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layouts = Layouts(seed, size)
    pairs = [layouts.pair(longest=60 if turn % 4 == 0 else 7) for turn in range(24)]
    handles = []
    for turn, pair in enumerate(pairs):
        t = sw.MeshTensor(pair.input(rank), pair.before)
        handles.append(sw.redistribute(t, pair.after, async_op=True))
        if turn % 5 == 0:
            check(pair, sw.redistribute(t, pair.after), rank, "a plain call while others are in flight")
            gathered, _ = sw.all_gather_v(torch.full((rank + 1,), float(rank)))
            assert gathered.tolist() == [float(r) for r in range(size) for _ in range(r + 1)]
    order = list(range(len(pairs)))
    if rank % 2:
        order.reverse()
    for turn in order:
        check(pairs[turn], handles[turn].wait(), rank, "async")
        check(pairs[turn], handles[turn].wait(), rank, "second wait")


@TRANSPORTS
@ranks(2)
def test_a_call_goes_on_while_its_caller_computes(rank, size, transport):
    """The handle is waited for long after; the input may be dropped at once."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.randn(1024, 512, generator=torch.Generator().manual_seed(0))
    t = sw.MeshTensor(rows_of(whole, rank, size), on_world((1024, 512), size, [sw.Shard(0)]))
    handle = sw.redistribute(t, [sw.Shard(1)], async_op=True)
    del t
    product = whole @ whole.T
    assert torch.equal(handle.wait().local, whole.tensor_split(size, 1)[rank])
    assert product.shape == (1024, 1024)


@TRANSPORTS
@ranks(2, 3)
def test_a_dropped_handle_disturbs_no_later_call(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layouts = Layouts(seed, size)
    for turn in range(20):
        pair = layouts.pair(longest=60 if turn % 4 == 0 else 7)
        t = sw.MeshTensor(pair.input(rank), pair.before)
        sw.redistribute(t, pair.after, async_op=True)
        check(pair, sw.redistribute(t, pair.after), rank, "after a dropped handle")


@TRANSPORTS
@ranks(4)
def test_a_group_of_some_ranks_in_another_order_serves_a_mesh_of_them(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    some = dist.new_group([1, 3])
    if rank not in (1, 3):
        return
    whole = torch.arange(24.0).view(6, 4)
    mesh = sw.Mesh((2,), ranks=(3, 1))
    layout = sw.Layout((6, 4), torch.float32, mesh, [sw.Shard(0, (4, 2))])
    t = sw.MeshTensor((whole[:4] if rank == 3 else whole[4:]).clone(), layout, some)
    assert t.group is some and t.rank == rank
    columns = sw.redistribute(t, [sw.Shard(1)])
    assert torch.equal(columns.local, whole[:, :2] if rank == 3 else whole[:, 2:])
    assert columns.group is some
    assert torch.equal(columns.full(), whole)


@TRANSPORTS
@ranks(4)
def test_weights_move_between_disjoint_meshes(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    whole = torch.arange(24.0).view(6, 4)
    train = sw.Layout((6, 4), torch.float32, sw.Mesh((2,), ranks=(0, 1)), [sw.Shard(0)])
    t = sw.MeshTensor(rows_of(whole, rank, 2) if rank < 2 else None, train)
    u = sw.redistribute(t, [sw.Shard(1)], mesh=sw.Mesh((2,), ranks=(2, 3)))
    assert (u.local is None) == (rank < 2)
    if rank >= 2:
        assert torch.equal(u.local, whole.tensor_split(2, 1)[rank - 2])
    back = sw.redistribute(u, [sw.Replicate()], mesh=sw.Mesh((1,), ranks=(0,)))
    assert torch.equal(back.local, whole) if rank == 0 else back.local is None


def test_without_a_group_a_mesh_of_one_rank_works_and_a_larger_one_is_not_moved():
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    t = sw.MeshTensor(x, on_world((2, 3), 1, [sw.Partial()]))
    u = sw.redistribute(t, [sw.Shard(0)])
    assert u.local is x and u.layout.placements == (sw.Shard(0),)
    assert t.full() is x and t.group is None
    assert sw.redistribute(t, [sw.Replicate()], async_op=True).wait().local is x
    part = sw.MeshTensor(x, on_world((2, 3), 2, [sw.Replicate()]))  # for a link between jobs
    with pytest.raises(ValueError, match=r"\(rank -1\)"):
        sw.redistribute(part, [sw.Shard(0)])


@ranks(2)
def test_a_mesh_tensor_says_what_it_is(rank, size):
    layout = on_world((5, 4), size, [sw.Shard(0)], torch.bfloat16)
    t = sw.MeshTensor(torch.ones(3 - rank, 4, dtype=torch.bfloat16), layout)
    assert t.shape == torch.Size((5, 4)) and isinstance(t.shape, torch.Size)
    assert t.dtype == torch.bfloat16 and t.layout == layout and t.rank == rank
    assert t.group is dist.group.WORLD
    assert t.box == (((0, 0), (3, 4)) if rank == 0 else ((3, 0), (2, 4)))
    assert repr(t) == f"MeshTensor(bf16[5,4] on 2: S0; rank {rank} holds {'[0,3)' if rank == 0 else '[3,5)'}×[0,4))"
    outside = sw.Layout((5, 4), torch.float32, sw.Mesh((1,), ranks=(1 - rank,)), [sw.Replicate()])
    assert repr(sw.MeshTensor(None, outside)) == f"MeshTensor(f32[5,4] on 1: R; rank {rank} holds nothing)"
    assert sw.MeshTensor(None, outside).box is None


@ranks(2)
def test_the_local_part_is_pickled_with_its_layout(rank, size, tmp_path):
    t = sw.MeshTensor(torch.full((3 - rank, 4), float(rank)), on_world((5, 4), size, [sw.Shard(0)]))
    loaded = pickle.loads(pickle.dumps(t))
    assert torch.equal(loaded.local, t.local) and loaded.layout == t.layout and loaded.group is dist.group.WORLD
    assert torch.equal(loaded.full(), t.full())
    torch.save(t, tmp_path / str(rank))
    dist.barrier()
    other = torch.load(tmp_path / str(1 - rank), weights_only=False)
    assert other.rank == 1 - rank and other.group is None and other.box == t.layout.box(1 - rank)
    with pytest.raises(ValueError, match=rf"redistribute: the mesh 2 has rank {rank}"):
        other.full()


def ascending_pair(layouts, longest):
    """Without addends, and with a target that has no order of shards of its own."""
    while True:
        pair = layouts.pair(longest=longest, ops=())
        if all(list(mesh_dims) == sorted(mesh_dims) for mesh_dims in pair.after.order):
            return pair


@TRANSPORTS
@ranks(2, 3, 4)
def test_distribute_from_one_rank_or_from_all(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layouts = Layouts(seed, size)
    for turn in range(60):
        pair = ascending_pair(layouts, 40 if turn % 10 == 0 else 7)
        whole = next(iter(pair.addends.values()))
        mesh, placements = pair.after.mesh, pair.after.placements
        check(pair, sw.distribute(whole, mesh, placements), rank, "from all")
        src = layouts.random.randrange(size)
        mine = whole if rank == src else None
        check(pair, sw.distribute(mine, mesh, placements, src=src), rank, f"from {src}")
    columns = sw.distribute(torch.ones(2, 6) if rank == 0 else None, sw.Mesh((size,)), [sw.Shard(-1)], src=0)
    assert columns.layout.placements == (sw.Shard(1),)
