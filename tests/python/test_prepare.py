"""Calls that are prepared once and run many times."""

from __future__ import annotations

import os
import random

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import shardway as sw
from tests.support import dense
from tests.support.dense import Draw, assert_same_bits
from tests.support.mesh_reference import Layouts, check, held, part, same_bits
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def poison(*tensors):
    """Fills them with NaN patterns: what a run does not write is seen."""
    for t in tensors:
        if t is not None:
            t.view(-1).view(torch.uint8).fill_(0xFF)


# By op: its call on a rank, given all ranks' inputs and sizes, and what the rank gets.
def _all_gather(xs, sizes, rank):
    return (sw.all_gather_v, (xs[rank],), {}), lambda: dense.gathered(xs, 0)


def _given_sizes(xs, sizes, rank):
    return (sw.all_gather_v, (xs[rank],), {"sizes": sizes}), lambda: dense.gathered(xs, 0)


def _gather(xs, sizes, rank):
    last = len(xs) - 1
    return (sw.gather_v, (xs[rank], last), {}), lambda: dense.gathered(xs, 0) if rank == last else xs[rank][:0]


def _reduce_scatter(xs, sizes, rank):
    return (sw.reduce_scatter_v, (xs[rank], sizes), {}), lambda: dense.block(dense.reduced(xs), sizes, rank, 0)


def _all_to_all(xs, sizes, rank):
    return (sw.all_to_all_v, (xs[rank], sizes), {}), lambda: dense.exchanged(xs, [sizes] * len(xs), rank, 0)


def _scatter(xs, sizes, rank):
    given, parts = (xs[0], sizes) if rank == 0 else (None, None)
    return (sw.scatter_v, (given, 0), {"sizes": parts}), lambda: dense.block(xs[0], sizes, rank, 0)


def _all_reduce(xs, sizes, rank):
    return (sw.all_reduce, (xs[rank],), {}), lambda: dense.reduced(xs)


def _broadcast(xs, sizes, rank):
    return (sw.broadcast, (xs[rank], 0), {}), lambda: xs[0].clone()


RAGGED = (_all_gather, _given_sizes, _gather)
ALIKE = (_reduce_scatter, _all_to_all, _scatter, _all_reduce, _broadcast)


def tensor_in(result):
    return result[0] if isinstance(result, tuple) else result


@TRANSPORTS
@ranks(1, 2, 3)
def test_every_op_gives_what_the_plain_call_gives_in_the_same_memory(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Draw(size)
    for make in (*RAGGED, *ALIKE):
        for dtype, columns in ((torch.float32, 3), (torch.int64, 2), (torch.bfloat16, 9001)):
            sizes = draw.sizes(size)
            rows = sizes if make in RAGGED else [sum(sizes)] * size
            xs = draw.parts((1, columns), 0, rows, dtype)
            (op, args, kwargs), wanted = make(xs, sizes, rank)
            call = sw.prepare(op, *args, **kwargs)
            first = call.result
            assert_same_bits(tensor_in(first), wanted(), op.__name__)
            for _ in range(3):
                for x in xs:
                    x.copy_(draw.tensor(x.shape, dtype))
                if size > 1:
                    poison(tensor_in(first))
                result = call.run()
                assert_same_bits(tensor_in(result), wanted(), op.__name__)
                assert size == 1 or result is first
            call.close()
    assert_usable(rank, size)


@TRANSPORTS
@ranks(2, 3)
def test_lists_of_ops(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Draw(7)
    shapes = [(2, 3), (0, 4), (200, 300), (5,)]
    for op in (sw.all_gather_v, sw.reduce_scatter_v):
        all_xs = [[draw.tensor(shape, torch.float32) for shape in shapes] for _ in range(size)]
        call = sw.prepare(op, all_xs[rank])
        results = call.result[0] if op is sw.all_gather_v else call.result
        for _ in range(2):
            for xs in all_xs:
                for x in xs:
                    x.copy_(draw.tensor(x.shape, torch.float32))
            poison(*results)
            call.run()
            for i, shape in enumerate(shapes):
                parts = [xs[i] for xs in all_xs]
                sizes = dense.chunk_sizes(shape[0], size)
                reduced = dense.block(dense.reduced(parts), sizes, rank, 0)
                assert_same_bits(results[i], dense.gathered(parts, 0) if op is sw.all_gather_v else reduced)


@TRANSPORTS
@ranks(2, 3)
def test_any_redistribution_of_any_list(rank, size, transport, seed):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Layouts(seed, size)
    for _ in range(8):
        pairs = [draw.pair() for _ in range(draw.random.randint(1, 6))]
        if draw.random.random() < 0.5:
            pairs.append(draw.pair(torch.float32, longest=60))
        inputs = [pair.input(rank) for pair in pairs]
        given = [sw.MeshTensor(x, pair.before) for x, pair in zip(inputs, pairs, strict=True)]
        call = sw.prepare(sw.redistribute, given, [pair.after for pair in pairs])
        for _ in range(2):
            poison(*(result.local for result in call.result))
            for pair, result in zip(pairs, call.run(), strict=True):
                check(pair, result, rank)
        for x, pair in zip(inputs, pairs, strict=True):
            assert x is None or same_bits(x, pair.input(rank)), pair
        call.close()
        one = sw.prepare(sw.redistribute, given[0], pairs[0].after)
        poison(one.result.local)
        check(pairs[0], one.run(), rank)


@TRANSPORTS
@ranks(3)
def test_new_inputs_and_replaced_storages(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = sw.Mesh((size,))
    wholes = [torch.arange(35.0).view(7, 5), torch.arange(600 * 200.0).view(600, 200)]
    befores = [sw.Layout(w.shape, w.dtype, mesh, [sw.Shard(0)]) for w in wholes]

    def tensors(scale):
        return [sw.MeshTensor(part(w * scale, held(b, rank)), b) for w, b in zip(wholes, befores, strict=True)]

    def assert_moved(scale):
        for result, whole, before in zip(call.result, wholes, befores, strict=True):
            assert torch.equal(result.local, part(whole * scale, held(before.with_([sw.Shard(1)]), rank)))

    first = tensors(1)
    call = sw.prepare(sw.redistribute, first, [sw.Shard(1)])
    assert_moved(1)
    call.run(tensors(2))
    assert_moved(2)
    strided = [sw.MeshTensor(t.local.t().contiguous().t(), t.layout) for t in tensors(3)]
    call.run(strided)
    assert_moved(3)
    for t in strided:
        t.local.data = t.local * 2  # other memory
    call.run()
    assert_moved(6)
    call.run(first)
    assert_moved(1)
    x = torch.full((rank + 1, 2), float(rank))
    gather = sw.prepare(sw.all_gather_v, x)
    gathered, _ = gather.run(x + 10)
    assert gathered[:, 0].tolist() == [r + 10 for r in range(size) for _ in range(r + 1)]
    x.zero_()  # is not read any more
    assert gather.run()[0][0, 0] == 10


@TRANSPORTS
@ranks(2)
def test_dtensors_and_none(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = DeviceMesh("cpu", [0, 1])
    whole = torch.arange(12.0).view(4, 3)
    mine = slice(0, 2) if rank == 0 else slice(2, 3)  # of the columns
    t = distribute_tensor(whole.clone(), mesh, [Shard(0)], src_data_rank=None)
    call = sw.prepare(sw.redistribute, [t, t], [[Replicate()], [Shard(1)]])
    t.to_local().mul_(2)
    full, columns = call.run()
    assert isinstance(full, DTensor) and torch.equal(full.to_local(), whole * 2)
    assert torch.equal(columns.to_local(), (whole * 2)[:, mine])
    call.run([t, distribute_tensor(whole + 1, mesh, [Shard(0)], src_data_rank=None)])
    assert torch.equal(full.to_local(), whole * 2)
    assert torch.equal(columns.to_local(), (whole + 1)[:, mine])

    source = sw.Layout((3, 2), torch.float32, sw.Mesh((1,)), [sw.Replicate()])
    local = torch.ones(3, 2)
    given = sw.MeshTensor(local, source) if rank == 0 else None
    absent = sw.prepare(sw.redistribute, given, [sw.Replicate()], mesh=sw.Mesh((1,), ranks=[1]))
    moved = absent.result
    for scale in (2.0, 3.0):
        local.fill_(scale)
        absent.run()
        assert moved.local is None if rank == 0 else torch.equal(moved.local, torch.full((3, 2), scale))
    absent.run(sw.MeshTensor(torch.full((3, 2), 9.0), source) if rank == 0 else None)
    assert moved.local is None if rank == 0 else torch.equal(moved.local, torch.full((3, 2), 9.0))


@ranks(2)
def test_a_run_changes_plain_memory(rank, size):
    x = torch.full((2,), 1.0 + rank)
    call = sw.prepare(sw.all_gather_v, x)
    weight = torch.ones(4, requires_grad=True)
    loss = (weight * call.result[0]).sum()  # saves the result
    call.run()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    out = torch.empty(4)
    given = sw.prepare(sw.all_gather_v, x, out=out)
    x.add_(1)
    assert given.run()[0].data_ptr() == out.data_ptr() and out.tolist() == [2, 2, 3, 3]
    z = x + 1j
    conjugate = sw.prepare(sw.all_gather_v, z.conj())  # computed anew in every run
    z.add_(1)
    assert conjugate.run()[0].tolist() == [3 - 1j, 3 - 1j, 4 - 1j, 4 - 1j]


@TRANSPORTS
@ranks(3)
def test_mistakes_in_preparing_are_one_error_on_every_rank(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    here = rank == 1
    x = torch.ones(2, 3)
    layout = sw.Layout((6, 3), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    needs = torch.ones(2, 3, requires_grad=here)

    def says(words, op, *args, **kwargs):
        assert_says(message_of(lambda: sw.prepare(op, *args, **kwargs)), [words, "rank 1"], words)

    grad = "requires grad, but a prepared call has no gradient"
    says(grad, sw.all_gather_v, needs)
    says(grad, sw.all_gather_v, needs, sizes=[2] * size)
    says(grad, sw.all_gather_v, [x, needs])
    says(grad, sw.all_reduce, needs)
    says(grad, sw.redistribute, sw.MeshTensor(needs, layout), [sw.Replicate()])
    says(grad, sw.redistribute, [sw.MeshTensor(needs, layout)], [sw.Replicate()])
    d = distribute_tensor(torch.ones(6, 3), DeviceMesh("cpu", list(range(size))), [Shard(0)], src_data_rank=None)
    says(grad, sw.redistribute, d.requires_grad_(here), [Replicate()])
    says(grad, sw.redistribute, [d], [Replicate()])
    says("async_op is given", sw.all_gather_v, x, async_op=here)
    says("async_op is given", sw.redistribute, sw.MeshTensor(x, layout), [sw.Replicate()], async_op=here)
    says("sizes", sw.all_gather_v, x, sizes=[1, 2, 2] if here else [2] * size)
    with pytest.raises(ValueError, match="prepare: 'add' is not an op that can be prepared"):
        sw.prepare(torch.add, x, x)
    with torch.no_grad():
        assert sw.prepare(sw.all_gather_v, needs).run()[0].shape == (6, 3)
    assert_usable(rank, size)
    assert not sw._C.is_preparing()


@TRANSPORTS
@ranks(3)
def test_mistakes_in_a_run_are_one_error_on_every_rank(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    os.environ["SHARDWAY_CHECK"] = "1"
    here = rank == 1
    mesh = sw.Mesh((size,))
    layout = sw.Layout((6, 3), torch.float32, mesh, [sw.Shard(0)])
    x = torch.full((2, 3), float(rank))
    t = sw.MeshTensor(x, layout)
    call, other = sw.prepare(sw.redistribute, t, [sw.Replicate()]), sw.prepare(sw.redistribute, t, [sw.Shard(1)])

    def says(words, run):
        assert_says(message_of(run), [words, "rank 1"], words)

    says("t is a Tensor, but the call was prepared for a MeshTensor", lambda: call.run(x if here else None))
    wide = sw.MeshTensor(torch.ones(2, 4), sw.Layout((6, 4), torch.float32, mesh, [sw.Shard(0)]))
    says("t lies as", lambda: call.run(wide if here else None))
    says("prepared for a MeshTensor, not for a list", lambda: call.run([t] if here else t))
    needs = sw.MeshTensor(torch.ones(2, 3, requires_grad=True), layout)
    says("requires grad", lambda: call.run(needs if here else None))
    assert call.run(t).local[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    says("run 6 of the redistribute prepared as call", lambda: (other if here else call).run())
    gather = sw.prepare(sw.all_gather_v, x)
    says("lies in the memory of a result", lambda: gather.run(gather.result[0][:2] if here else None))
    says(r"shape \[1, 3\]", lambda: gather.run(torch.ones(1, 3) if here else None))
    if here:
        gather.close()
    says("closed", gather.run)
    assert_usable(rank, size)
    assert sw.prepare(sw.redistribute, t, [sw.Replicate()]).run().local[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


@TRANSPORTS
@ranks(3)
def test_a_fixed_call_keeps_to_its_tensors(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    os.environ["SHARDWAY_CHECK"] = "1"
    here = rank == 1
    x = torch.full((rank + 1, 2), float(rank))
    call = sw.prepare(sw.all_gather_v, x)
    call.fix()
    for turn in range(3):
        x.fill_(10.0 * turn + rank)
        poison(call.result[0])
        gathered, _ = call.run()
        assert gathered[:, 0].tolist() == [10 * turn, *[10 * turn + 1] * 2, *[10 * turn + 2] * 3]

    def says(words, run):
        assert_says(message_of(run), [words, "rank 1"], words)

    says("a call that was fixed takes no other tensors", lambda: call.run(x.clone() if here else None))
    if here:
        x.data = x.clone()
    says("a tensor of the prepared call has moved since fix()", call.run)
    if here:
        call.close()
        with pytest.raises(ValueError, match="closed"):
            call.fix()
    assert_usable(rank, size)


@ranks(2)
def test_on_gloo_a_rank_that_cannot_run_ends_the_group(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    call = sw.prepare(sw.all_gather_v, torch.ones(2, 3))
    if rank == 1:
        with pytest.raises(ValueError, match=r"tensor 0 has shape \[9, 3\], but the call was prepared for \[2, 3\]"):
            call.run(torch.ones(9, 3))
    else:
        with pytest.raises(dist.DistBackendError, match="tensor 0 has shape"):
            call.run()


@ranks(3)
def test_explain_says_who_sends_what_and_the_least(rank, size):
    rows = sw.Layout((6, 6), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    t = sw.MeshTensor(torch.ones(2, 6), rows)
    call = sw.prepare(sw.redistribute, [t, t], [[sw.Shard(1)], [sw.Replicate()]])
    # Columns: a box of 2 by 2 between any two ranks. Everywhere: the 2 by 6 of each to the others.
    between = 4 * (2 * 2 + 2 * 6)
    assert call.bytes == tuple(tuple(0 if a == b else between for b in range(size)) for a in range(size))
    assert call.least_bytes == (2 * between,) * size
    text = call.explain()
    assert text.startswith(
        "redistribute, prepared\none run: 1 exchange of 3 ranks\nmoved: 384 B (the least possible)\n"
    )
    assert "busiest: rank 0 sends 128 B and receives 128 B, of which it needs 128 B" in text
    sums = sw.prepare(sw.reduce_scatter_v, torch.ones(6, 2))
    assert sums.bytes[0] == (0, 16, 16) and sums.least_bytes == (16,) * size  # a sum of its rows would do
    assert "so it is 2.00 times the least" in sums.explain()


def test_without_a_group_a_run_is_the_plain_call():
    x, y = torch.ones(2), torch.zeros(2)
    call = sw.prepare(sw.all_gather_v, x)
    assert call.run()[0] is x
    assert call.run(y)[0] is y and call.run()[0] is y
    assert "1 rank" in call.explain() and call.bytes == ((0,),)
    call.close()
    with pytest.raises(ValueError, match="closed"):
        call.run()


@TRANSPORTS
@ranks(2)
def test_many_small_tensors_are_one_exchange(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    dice = random.Random(3)
    shapes = [dice.choice([(16, 16), (1, 256), (256,), (4, 8, 8)]) for _ in range(500)]
    wholes = [torch.arange(256.0).view(shape) + i for i, shape in enumerate(shapes)]
    befores = [sw.Layout(w.shape, w.dtype, sw.Mesh((size,)), [sw.Shard(0)]) for w in wholes]
    afters = [before.with_([sw.Shard(before.ndim - 1)]) for before in befores]
    tensors = [sw.MeshTensor(part(w, held(b, rank)), b) for w, b in zip(wholes, befores, strict=True)]
    sw.all_reduce(torch.ones(1))  # the group takes memory for itself
    shared = sw.memory_stats()["shared_in_use_bytes"]
    call = sw.prepare(sw.redistribute, tensors, afters)
    assert call.exchanges == 1
    if transport == "shm":  # what goes out is read where it lies
        assert sw.memory_stats()["shared_in_use_bytes"] - shared >= sum(call.bytes[rank]) > 50_000
    for t in tensors:
        t.local.mul_(2)
    poison(*(result.local for result in call.result))
    for result, whole, after in zip(call.run(), wholes, afters, strict=True):
        assert torch.equal(result.local, part(whole * 2, held(after, rank)))
    call.close()
    assert sw.memory_stats()["shared_in_use_bytes"] == shared


@ranks(2, 3)
def test_small_runs_of_one_rank_meet_boxes_of_another(rank, size):
    """Ranks choose by themselves how they move: small contiguous tensors in another way than large or strided ones."""
    for sizes in ([5] * size, [5000, *[3] * (size - 1)], [*[4] * (size - 1), 0]):
        inputs = [torch.arange(float(n)) + 10000 * r for r, n in enumerate(sizes)]
        mine = inputs[rank].clone() if rank == 0 else torch.stack([inputs[rank]] * 2, 1)[:, 0]  # strided
        whole = torch.arange(float(sum(sizes)))
        with (
            sw.prepare(sw.all_gather_v, mine, sizes=sizes) as gather,
            sw.prepare(sw.reduce_scatter_v, whole * (rank + 1), sizes) as scatter,
            sw.prepare(sw.all_to_all_v, whole + rank, sizes) as exchange,
        ):
            for step in range(3):
                assert torch.equal(gather.run()[0], torch.cat(inputs) + step)
                begin = sum(sizes[:rank])
                own = whole[begin : begin + sizes[rank]]
                assert torch.equal(scatter.run(), own * sum(range(1, size + 1)))
                assert torch.equal(exchange.run()[0], torch.cat([own + r for r in range(size)]))
                mine += 1
