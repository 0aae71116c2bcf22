"""The collectives of lists: as of each tensor by itself, in one exchange."""

from __future__ import annotations

import os

import pytest
import torch

import shardway as sw
from tests.support import dense
from tests.support.dense import Draw, assert_close, assert_same_bits
from tests.support.ranks import ranks
from tests.support.refusals import assert_usable, message_of

both_transports = pytest.mark.parametrize("transport", ["shm", "c10d"])


def use(transport, size):
    if size > 1:
        os.environ["SHARDWAY_TRANSPORT"] = transport


def several(draw, size, dtypes, rows=4):
    """For each dtype every rank's part of a tensor of 1 to 3 dims, cut along the last one, and the sizes."""
    for i, dtype in enumerate(dtypes):
        shape = [draw.integer(1, 4) for _ in range(i % 3 + 1)]
        sizes = draw.sizes(size, rows)
        yield draw.parts(shape, -1, sizes, dtype), sizes


@ranks(1, 2, 3, 4)
@both_transports
def test_a_list_of_any_dtypes_and_shapes_is_gathered_as_each_by_itself(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for rows in (4, 4000):
        parts, sizes = zip(*several(draw, size, dense.MOVABLE, rows), strict=True)
        mine = [of_one[rank] for of_one in parts]
        wanted = [dense.gathered(of_one, -1) for of_one in parts]
        for given in (None, sizes):
            handle = sw.all_gather_v(mine, -1, sizes=given, async_op=True)
            for tensors, found in (sw.all_gather_v(tuple(mine), -1, sizes=given), handle.wait(), handle.wait()):
                assert type(tensors) is list and found == [tuple(s) for s in sizes]
                for got, want in zip(tensors, wanted, strict=True):
                    assert_same_bits(got, want)


@ranks(1, 2, 3, 4)
@both_transports
def test_a_list_is_reduced_as_each_by_itself(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    dtypes = (*dense.FLOATS, torch.complex64)
    for op in ("sum", "avg"):
        for rows in (4, 4000):
            addends, sizes = [], []
            for _, cut in several(draw, size, dtypes, rows):
                shape = [3, sum(cut)]
                addends.append([draw.tensor(shape, dtypes[len(sizes)]) for _ in range(size)])
                sizes.append(cut)
            mine = [of_one[rank] for of_one in addends]
            whole = [dense.reduced(of_one, op) for of_one in addends]
            handle = sw.reduce_scatter_v(mine, sizes, 1, op=op, async_op=True)
            for results in (sw.reduce_scatter_v(mine, sizes, 1, op=op), handle.wait()):
                for got, want, cut in zip(results, whole, sizes, strict=True):
                    assert_same_bits(got, dense.block(want, cut, rank, 1), op)
            for got, want in zip(sw.reduce_scatter_v(mine, dim=-1, op=op), whole, strict=True):
                chunks = dense.chunk_sizes(want.shape[1], size)
                assert_same_bits(got, dense.block(want, chunks, rank, 1), op)


@ranks(1, 2, 3, 4)
@both_transports
def test_a_list_is_exchanged_as_each_by_itself(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for rows in (3, 3000):
        inputs, cuts = [], []
        for i, dtype in enumerate(dense.MOVABLE):
            cut = [draw.sizes(size, rows) for _ in range(size)]
            inputs.append([draw.tensor((2, sum(cut[r])) if i % 2 else (sum(cut[r]), 1), dtype) for r in range(size)])
            cuts.append(cut)
        dims = [i % 2 for i in range(len(inputs))]
        for dim in (0, 1):
            chosen = [i for i, d in enumerate(dims) if d == dim]
            mine = [inputs[i][rank] for i in chosen]
            sent = [cuts[i][rank] for i in chosen]
            came = [tuple(cuts[i][r][rank] for r in range(size)) for i in chosen]
            wanted = [dense.exchanged(inputs[i], cuts[i], rank, dim) for i in chosen]
            handle = sw.all_to_all_v(mine, sent, dim, async_op=True)
            for tensors, sizes in (sw.all_to_all_v(mine, sent, dim, recv_sizes=came), handle.wait()):
                assert sizes == came
                for got, want in zip(tensors, wanted, strict=True):
                    assert_same_bits(got, want)


@ranks(1, 2, 3, 4)
@both_transports
def test_a_list_is_collected_and_handed_out_as_each_by_itself(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for rows in (4, 4000):
        for root in range(size):
            parts, sizes = zip(*several(draw, size, dense.MOVABLE, rows), strict=True)
            whole = [dense.gathered(of_one, -1) for of_one in parts]
            mine = [of_one[rank] for of_one in parts]
            handle = sw.gather_v(mine, root, -1, async_op=True)
            for tensors, found in (sw.gather_v(mine, root, -1, sizes=sizes), handle.wait()):
                assert found == [tuple(s) for s in sizes]
                for got, want in zip(tensors, whole, strict=True):
                    assert_same_bits(got, want if rank == root else want.narrow(-1, 0, 0))
            given = whole if rank == root else []
            handle = sw.scatter_v(given, root, -1, sizes=sizes if rank == root else None, async_op=True)
            for tensors in (sw.scatter_v(given, root, -1, sizes=sizes if rank == root else None), handle.wait()):
                for got, want in zip(tensors, mine, strict=True):
                    assert_same_bits(got, want)


@ranks(2, 3)
@both_transports
def test_a_list_of_hundreds_of_tensors_small_and_large(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    shapes = [(1, 6000 if i % 3 == 0 else i % 7 + 1) for i in range(500)]
    cut = [r + 1 for r in range(size)]
    parts = [draw.parts(shape, 0, cut, torch.float32) for shape in shapes]
    tensors, sizes = sw.all_gather_v([of_one[rank] for of_one in parts])
    assert sizes == [tuple(cut)] * len(shapes)
    for got, of_one in zip(tensors, parts, strict=True):
        assert_same_bits(got, torch.cat(of_one))
    given = tensors if rank == size - 1 else []
    for got, of_one in zip(sw.scatter_v(given, size - 1, sizes=[cut] * len(given)), parts, strict=True):
        assert_same_bits(got, of_one[rank])


@ranks(2, 3)
@both_transports
def test_the_gradients_of_an_exchanged_a_collected_and_a_handed_out_list(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for rows in (2, 3000):
        cut = [rows * (r + 1) for r in range(size)]
        total = sum(cut)
        xs = [draw.tensor((total, k + 1)).requires_grad_() for k in range(2)]

        def ones(call, given):
            for x in given:
                x.grad = None
            results = call()
            sum((y * 3).sum() for y in results).backward()
            return [x.grad for x in given]

        for grad in ones(lambda xs=xs, cut=cut: sw.all_to_all_v(xs, [cut, cut])[0], xs):
            assert torch.equal(grad, torch.full_like(grad, 3))
        for grad in ones(lambda xs=xs: sw.gather_v(xs, 0)[0], xs):
            assert torch.equal(grad, torch.full_like(grad, 3))
        given = xs if rank == 0 else []
        for grad in ones(lambda given=given, cut=cut: sw.scatter_v(given, 0, sizes=[cut] * len(given)), given):
            assert torch.equal(grad, torch.full_like(grad, 3))


@ranks(1, 2, 3, 4)
@both_transports
def test_gradients_of_a_list_equal_those_of_one_process_of_second_order_too(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    cut = [(2 * r + 1) % 3 for r in range(size)]
    parts = [draw.parts(shape, 0, cut) for shape in ((1, 2), (1, 3))]
    addends = [[draw.tensor((sum(cut), *rest)) for _ in range(size)] for rest in ((), (2,))]

    def gathered(inputs):
        return [[torch.cat(of_one)] * size for of_one in inputs]

    def scattered(inputs):
        return [[dense.block(sum(of_one) / size, cut, r, 0) for r in range(size)] for of_one in inputs]

    calls = (
        (parts, gathered, lambda xs: sw.all_gather_v(xs)[0]),
        (addends, scattered, lambda xs: sw.reduce_scatter_v(xs, [cut, cut], op="avg")),
    )
    for inputs, formula, call in calls:
        leaves = [[x.clone().requires_grad_() for x in of_one] for of_one in inputs]
        flat = [x for of_one in leaves for x in of_one]
        loss = sum(((r + 1) * y**3).sum() for of_one in formula(leaves) for r, y in enumerate(of_one))
        first = torch.autograd.grad(loss, flat, create_graph=True)
        second = torch.autograd.grad(sum(g.sum() for g in first), flat)

        mine = [of_one[rank].clone().requires_grad_() for of_one in inputs]
        own_loss = sum(((rank + 1) * y**3).sum() for y in call(mine))
        got = torch.autograd.grad(own_loss, mine, create_graph=True)
        again = torch.autograd.grad(sum(g.sum() for g in got), mine)
        for i in range(2):
            assert_close(got[i], first[i * size + rank])
            assert_close(again[i], second[i * size + rank])


@ranks(2, 3)
@both_transports
def test_integers_ride_along_with_what_has_a_gradient(rank, size, transport):
    use(transport, size)
    x = torch.full((rank + 1, 2), 2.0, requires_grad=True)
    labels = torch.full((rank + 1,), rank)
    for grad, want in (("sum", float(size)), ("mean", 1.0), ("local", 1.0)):
        x.grad = None
        (features, all_labels), sizes = sw.all_gather_v([x, labels], grad=grad)
        assert all_labels.tolist() == [r for r in range(size) for _ in range(r + 1)]
        assert sizes == [tuple(range(1, size + 1))] * 2
        assert features.requires_grad and not all_labels.requires_grad
        features.sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, want)), grad


def two(rank, **of_rank_1):
    """A list of two tensors, with what is different on rank 1."""
    shape = of_rank_1.get("shape", (2, 3)) if rank == 1 else (2, 3)
    dtype = of_rank_1.get("dtype", torch.float32) if rank == 1 else torch.float32
    return [torch.ones(2, 3), torch.ones(shape, dtype=dtype)]


@ranks(3)
@both_transports
def test_a_mistake_or_a_disagreement_is_the_same_error_on_every_rank(rank, size, transport):
    use(transport, size)
    one = rank == 1
    expected = {
        "all_gather_v: ranks disagree on dtype of x[1]: float32 on rank 0, float64 on rank 1": (
            lambda: sw.all_gather_v(two(rank, dtype=torch.float64))
        ),
        "all_gather_v: ranks disagree on shape of x[1]: (*, 3) on rank 0, (*, 4) on rank 1": (
            lambda: sw.all_gather_v(two(rank, shape=(2, 4)))
        ),
        "all_gather_v: ranks disagree on the number of tensors: 2 on rank 0, 1 on rank 1": (
            lambda: sw.all_gather_v(two(rank)[: 1 if one else 2])
        ),
        "all_gather_v: x[1]: dim=1 is out of range for a 1-d tensor (rank 1)": (
            lambda: sw.all_gather_v(two(rank, shape=(2,)), 1)
        ),
        "all_gather_v: x is an empty list (rank 1)": lambda: sw.all_gather_v([] if one else two(rank)),
        "all_gather_v: grad='average' is not one of sum, mean, local (rank 1)": (
            lambda: sw.all_gather_v(two(rank), grad="average" if one else "sum")
        ),
        "all_gather_v: sizes has 1 entries for 2 tensors (rank 1)": (
            lambda: sw.all_gather_v(two(rank), sizes=[(2, 2, 2)] * (1 if one else 2))
        ),
        "reduce_scatter_v: ranks disagree on shape of x[1]: (2, 3) on rank 0, (4, 3) on rank 1": (
            lambda: sw.reduce_scatter_v(two(rank, shape=(4, 3)))
        ),
        "reduce_scatter_v: ranks disagree on op: sum on rank 0, max on rank 1": (
            lambda: sw.reduce_scatter_v(two(rank), op="max" if one else "sum")
        ),
        "reduce_scatter_v: x[1]: op='avg' of int64 is not defined: convert to a floating dtype (rank 1)": (
            lambda: sw.reduce_scatter_v(two(rank, dtype=torch.int64), op="avg")
        ),
        "reduce_scatter_v: op='median' is not one of sum, avg (or mean), min, max, product (rank 1)": (
            lambda: sw.reduce_scatter_v(two(rank), op="median" if one else "sum")
        ),
        "reduce_scatter_v: out is given, but x is a list, whose results are new tensors (rank 1)": (
            lambda: sw.reduce_scatter_v(two(rank), out=torch.empty(2) if one else None)
        ),
    }
    rooted = {
        "all_to_all_v: ranks disagree on recv_sizes of x[1]: rank 0 sends 1 to rank 1, which expects 2": (
            lambda: sw.all_to_all_v(two(rank), [(1, 1, 0)] * 2, recv_sizes=[came(rank), came(rank, one)])
        ),
        "all_to_all_v: send_sizes has 1 entries for 2 tensors (rank 1)": (
            lambda: sw.all_to_all_v(two(rank), [(1, 1, 0)] * (1 if one else 2))
        ),
        "gather_v: ranks disagree on dtype of x[1]: float32 on rank 0, int32 on rank 1": (
            lambda: sw.gather_v(two(rank, dtype=torch.int32), 2)
        ),
        "gather_v: ranks disagree on dst: 0 on rank 0, 1 on rank 1": lambda: sw.gather_v(two(rank), 1 if one else 0),
        "scatter_v: ranks disagree on src: 0 on rank 0, 1 on rank 1": (
            lambda: sw.scatter_v(two(rank) if rank < 2 else [], 1 if one else 0)
        ),
        "scatter_v: x is an empty list (rank 1)": lambda: sw.scatter_v([], 1),
        "scatter_v: src=3 is not in the group, whose ranks are 0, 1, 2 (rank 1)": lambda: sw.scatter_v(
            [], 3 if one else 1
        ),
    }
    for message, call in (expected | rooted).items():
        assert message_of(call) == message
        assert_usable(rank, size)


@ranks(2, 3)
@both_transports
def test_sizes_that_one_rank_alone_was_given_are_compared_with_what_the_ranks_bring(rank, size, transport):
    use(transport, size)
    os.environ["SHARDWAY_CHECK"] = "1"  # of one tensor on c10d, too
    right = tuple(r + 1 for r in range(size))
    for columns in (1, 6000):
        parts = [torch.full((r + 1, columns), float(r)) for r in range(size)]
        mine = [torch.ones(rank + 1, columns), parts[rank]]
        for call in (sw.all_gather_v, sw.gather_v):
            results, sizes = call(mine, sizes=[right] * 2 if rank == 0 else None)
            assert sizes == [right] * 2 and (rank != 0 or torch.equal(results[1], torch.cat(parts)))
            for told in (1, 3):
                wrong = (1, told, *right[2:])
                asked = [right, wrong] if rank == 0 else None
                says = f"{call.__name__}: ranks disagree on sizes%s: rank 0 expects {told} of rank 1, which has 2"
                assert message_of(lambda call=call, asked=asked, x=mine: call(x, sizes=asked)) == says % " of x[1]"
                asked = wrong if rank == 0 else None
                assert message_of(lambda call=call, asked=asked, x=mine[1]: call(x, sizes=asked)) == says % ""
            assert_usable(rank, size)


def came(rank, is_wrong=False):
    """What a rank gets where every rank sends one row to rank 0 and one to rank 1."""
    rows = [1, 1, 1] if rank < 2 else [0, 0, 0]
    return [2, *rows[1:]] if is_wrong else rows


@ranks(2)
@both_transports
def test_a_list_on_one_rank_and_a_tensor_on_the_other_are_told_apart(rank, size, transport):
    use(transport, size)
    x = torch.ones(2, 3)
    assert message_of(lambda: sw.all_gather_v([x] if rank else x)) == (
        "ranks called different collectives: all_gather_v on rank 0, all_gather_v of a list on rank 1"
    )
    assert "different collectives" in message_of(lambda: sw.reduce_scatter_v([x] if rank else x))
    assert "different collectives" in message_of(lambda: sw.gather_v([x] if rank else x))
    assert "different collectives" in message_of(lambda: sw.scatter_v([] if rank else x))
    assert "different collectives" in message_of(
        lambda: sw.all_to_all_v([x] if rank else x, [(1, 1)] if rank else (1, 1))
    )
    assert_usable(rank, size)


def test_without_a_group_the_tensors_of_a_list_come_back():
    xs = [torch.ones(2, 3, requires_grad=True), torch.ones(4)]
    tensors, sizes = sw.all_gather_v(xs)
    assert tensors[0] is xs[0] and tensors[1] is xs[1] and sizes == [(2,), (4,)]
    assert all(got is x for got, x in zip(sw.reduce_scatter_v(xs, dim=-1), xs, strict=True))
    assert all(got is x for got, x in zip(sw.all_to_all_v(xs, [(2,), (4,)])[0], xs, strict=True))
    assert all(got is x for got, x in zip(sw.gather_v(xs)[0], xs, strict=True))
    assert all(got is x for got, x in zip(sw.scatter_v(xs), xs, strict=True))
    with pytest.raises(ValueError, match=r"all_gather_v: x\[1\]: dim=1 is out of range for a 1-d tensor"):
        sw.all_gather_v(xs, 1)
