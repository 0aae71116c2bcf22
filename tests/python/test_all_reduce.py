"""all_reduce in shared memory and on gloo's own engine: every rank has the bits of a loop in rank order."""

from __future__ import annotations

import os

import pytest
import torch

import shardway as sw
from tests.support import dense
from tests.support.cases import all_reduce_case
from tests.support.dense import Draw, assert_close, assert_same_bits, ops_of
from tests.support.ranks import ranks

both_transports = pytest.mark.parametrize("transport", ["shm", "c10d"])

# One number; none; few, which travel with the header; many, of which each rank combines a share.
SHAPES = ((), (0, 3), (5, 3), (7, 1, 11_111))


def use(transport, size):
    if size > 1:
        os.environ["SHARDWAY_TRANSPORT"] = transport


@ranks(1, 2, 3, 4)
@both_transports
def test_every_op_dtype_and_size_has_the_bits_of_a_loop_in_rank_order(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for dtype in (*dense.FLOATS, *dense.COMPLEX, *dense.INTEGERS, torch.bool):
        for op in ops_of(dtype):
            for shape in SHAPES:
                case = all_reduce_case(draw, shape, size, dtype, op)
                result = case.call(case.inputs[rank], rank)
                if op == "product" and dtype.is_complex:  # a compiler may fuse its multiplications and additions
                    assert_close(result, case.outputs[rank])
                else:
                    case.check(result, rank, f"{op} {dtype} {shape}")


@ranks(4)
@both_transports
def test_bf16_256_and_three_ones_are_259_rounded_once(rank, size, transport):
    use(transport, size)
    for length in (1, 1000, 200_000):
        x = torch.full((length,), 256.0 if rank == 0 else 1.0, dtype=torch.bfloat16)
        assert torch.equal(sw.all_reduce(x).float(), torch.full((length,), 260.0)), length


@ranks(2, 3)
@both_transports
def test_any_memory_layout_and_any_out_give_the_same_bits(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for shape in ((3, 4, 2, 5), (30, 4, 20, 50)):
        case = all_reduce_case(draw, shape, size, torch.float32)
        for form, x in dense.memory_forms(case.inputs[rank]):
            for out_form, out in dense.memory_forms(torch.zeros(shape)):
                if out_form == "negative view":
                    continue
                assert case.call(x, rank, out=out) is out
                case.check(out, rank, f"{form} into {out_form}")
            assert_same_bits(x, case.inputs[rank], form)


@ranks(1, 2, 3, 4)
@both_transports
def test_each_grad_mode_has_its_dense_formula(rank, size, transport, seed):
    """Of the second order too: mean divides at each of the two passes."""
    use(transport, size)
    draw = Draw(seed)
    for shape in ((2, 3), (20_001,)):
        case = all_reduce_case(draw, shape, size, torch.float64)
        y = case.outputs[0]
        weights = [draw.tensor(shape) for _ in range(size)]
        directions = [draw.tensor(shape) for _ in range(size)]
        for op, share in (("sum", 1.0), ("avg", 1.0 / size)):
            total, v = sum(weights), sum(directions)
            for grad, once, twice in (
                ("sum", total, total * v),
                ("mean", total / size, total * v / size**2),
                ("local", weights[rank], weights[rank] * directions[rank]),
            ):
                x = case.inputs[rank].clone().requires_grad_()
                loss = (weights[rank] * sw.all_reduce(x, op=op, grad=grad) ** 3).sum()
                (first,) = torch.autograd.grad(loss, x, create_graph=True)
                assert_close(first, 3 * once * share**3 * y**2, f"{op} {grad}")
                (second,) = torch.autograd.grad(first, x, directions[rank])
                assert_close(second, 6 * twice * share**3 * y, f"{op} {grad}, second order")


@ranks(3)
@both_transports
def test_local_gradients_need_no_other_rank(rank, size, transport):
    use(transport, size)
    x = torch.ones(2, requires_grad=True)
    y = sw.all_reduce(x, grad="local")
    if rank == 1:
        y.sum().backward()
        assert torch.equal(x.grad, torch.ones(2))


@ranks(2, 3)
@both_transports
def test_calls_in_flight_may_be_waited_for_in_any_order_among_others(rank, size, transport, seed):
    """Large ones take two steps, the second of which must not get between the messages of other calls."""
    use(transport, size)
    draw = Draw(seed)
    cases = [all_reduce_case(draw, shape, size, torch.float32) for shape in ((3,), (100_000,), (50_001,), ())]
    handles = [case.call(case.inputs[rank], rank, async_op=True) for case in cases]
    cases[1].check(cases[1].call(cases[1].inputs[rank], rank), rank, "a plain call among those in flight")
    order = list(range(len(cases)))
    if rank % 2:
        order.reverse()
    for i in order:
        cases[i].check(handles[i].wait(), rank, "async")
        cases[i].check(handles[i].wait(), rank, "async, again")
    dropped = all_reduce_case(draw, (70_000,), size, torch.float32)
    dropped.call(dropped.inputs[rank], rank, async_op=True)
    cases[2].check(cases[2].call(cases[2].inputs[rank], rank), rank, "after a dropped call")


@ranks(3)
@both_transports
def test_min_max_and_product_refuse_an_input_that_requires_grad(rank, size, transport):
    use(transport, size)
    for op in ("min", "max", "product"):
        x = torch.ones(3, requires_grad=True)
        with pytest.raises(ValueError, match=rf"all_reduce.*{op}"):
            sw.all_reduce(x, op=op)
        with torch.no_grad():
            assert torch.equal(sw.all_reduce(x, op=op), torch.ones(3))


def test_without_a_group_the_input_comes_back():
    x = torch.ones(3, requires_grad=True)
    assert sw.all_reduce(x) is x
    assert sw.all_reduce(x, op="avg", grad="mean") is x
    out = torch.empty(3)
    assert sw.all_reduce(x.detach(), out=out) is out and torch.equal(out, x)
