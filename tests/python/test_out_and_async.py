"""Results into the caller's memory, and calls that go on while the caller does something else."""

from __future__ import annotations

import torch
import torch.distributed as dist

import shardway as sw
from tests.support.cases import all_gather_case, each_op, each_op_with_out
from tests.support.dense import Draw, assert_close, assert_same_bits, memory_forms
from tests.support.ranks import ranks


@ranks(1, 2, 3, 4)
def test_out_receives_the_result_and_is_what_the_call_returns(rank, size, seed):
    draw = Draw(seed)
    for dtype in (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.bool):
        for dim in (0, 1):
            for case in each_op_with_out(draw, size, (3, 4), dim, dtype):
                for known in ({}, case.known[rank]):
                    out = torch.empty_like(case.outputs[rank])
                    result = case.call(case.inputs[rank], rank, out=out, **known)
                    case.check(result, rank, f"out, {dtype} dim={dim}")
                    assert case.tensor_of(result) is out or case.tensor_of(result).data_ptr() == out.data_ptr()
                    assert_same_bits(out, case.outputs[rank], case.op)


@ranks(2, 3)
def test_a_non_contiguous_out_is_filled_and_nothing_around_it_is_touched(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1):
        for case in each_op_with_out(draw, size, (3, 4), dim, torch.float32):
            want = case.outputs[rank]
            room = torch.full([2 * n + 1 for n in want.shape], 7.0)
            out = room[1::2, 1::2]
            case.check(case.call(case.inputs[rank], rank, out=out), rank, f"strided out, dim={dim}")
            assert_same_bits(out, want, case.op)
            assert room.eq(7.0).sum() >= room.numel() - want.numel()
            assert room[0::2].eq(7.0).all() and room[:, 0::2].eq(7.0).all()


@ranks(2, 3)
def test_out_takes_the_result_of_an_input_of_any_memory_layout(rank, size, seed):
    draw = Draw(seed)
    for dtype in (torch.float64, torch.complex64):
        for case in each_op_with_out(draw, size, (3, 4), 0, dtype):
            for form, x in memory_forms(case.inputs[rank]):
                out = torch.empty_like(case.outputs[rank])
                case.check(case.call(x, rank, out=out), rank, f"out, {form}")
                assert_same_bits(out, case.outputs[rank], f"{case.op} {form}")


@ranks(2, 3)
def test_one_out_serves_many_calls(rank, size, seed):
    draw = Draw(seed)
    sizes = [r + 1 for r in range(size)]
    out = torch.empty(sum(sizes), 2)
    for _ in range(20):
        case = all_gather_case(draw, (1, 2), 0, sizes, torch.float32)
        sw.all_gather_v(case.inputs[rank], out=out)
        assert_same_bits(out, case.outputs[rank])
        sw.all_gather_v(case.inputs[rank], sizes=sizes, out=out)
        assert_same_bits(out, case.outputs[rank])


@ranks(1, 2, 3, 4)
def test_wait_gives_what_the_plain_call_would_as_often_as_asked(rank, size, seed):
    draw = Draw(seed)
    for rows in (3, 3000):
        for dim in (0, 1):
            for case in each_op(draw, size, (3, 5), dim, torch.float32, most=rows):
                for known in ({}, case.known[rank]):
                    handle = case.call(case.inputs[rank], rank, async_op=True, **known)
                    first, second = handle.wait(), handle.wait()
                    case.check(first, rank, "async")
                    case.check(second, rank, "async, second wait")
                    assert case.tensor_of(first).data_ptr() == case.tensor_of(second).data_ptr()


@ranks(1, 2, 3)
def test_several_calls_in_flight_finish_in_any_order(rank, size, seed):
    draw = Draw(seed)
    cases = [case for most in (3, 2000, 3) for case in each_op(draw, size, (3, 2), 0, torch.float32, most=most)]
    handles = [case.call(case.inputs[rank], rank, async_op=True) for case in cases]
    handles += [case.call(case.inputs[rank], rank, async_op=True, **case.known[rank]) for case in cases]
    plain = all_gather_case(draw, (1, 2), 0, draw.sizes(size), torch.float32)
    plain.check(plain.call(plain.inputs[rank], rank), rank, "a plain call while others are in flight")
    order = list(range(len(handles)))
    if rank % 2:
        order.reverse()
    for i in order:
        cases[i % len(cases)].check(handles[i].wait(), rank, f"handle {i}")


@ranks(2, 3)
def test_a_dropped_handle_disturbs_no_later_call(rank, size, seed):
    draw = Draw(seed)
    for most in (3, 20_000):
        for _ in range(5):
            for case in each_op(draw, size, (3, 2), 0, torch.float32, most=most):
                handle = case.call(case.inputs[rank], rank, async_op=True, **case.known[rank])
                del handle
                case.check(case.call(case.inputs[rank], rank), rank, "after a dropped handle")


@ranks(2, 3)
def test_a_call_in_flight_outlives_its_group(rank, size, seed, tmp_path):
    case = all_gather_case(Draw(seed), (1, 2), 0, [50_000 * (r + 1) for r in range(size)], torch.float32)
    for turn in range(3):
        case.call(case.inputs[rank], rank, async_op=True, **case.known[rank])  # dropped at once
        handle = case.call(case.inputs[rank], rank, async_op=True, **case.known[rank])
        dist.barrier()
        dist.destroy_process_group()
        case.check(handle.wait(), rank, "a wait after the end of the group")
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/{turn}", rank=rank, world_size=size)
        case.check(case.call(case.inputs[rank], rank), rank, "the group after it")


@ranks(2, 3)
def test_the_input_of_a_call_in_flight_may_be_dropped(rank, size, seed):
    draw = Draw(seed)
    for case in each_op(draw, size, (3, 2), 0, torch.float32, most=5000):
        x = case.inputs[rank].clone()
        handle = case.call(x, rank, async_op=True, **case.known[rank])
        del x
        rubbish = [torch.full((5000, 2), -1.0) for _ in range(8)]
        case.check(handle.wait(), rank, "async, input dropped")
        del rubbish


@ranks(2, 3)
def test_async_with_out_fills_it_by_the_time_of_wait(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1):
        for case in each_op_with_out(draw, size, (3, 4), dim, torch.float32, most=50):
            out = torch.empty_like(case.outputs[rank])
            handle = case.call(case.inputs[rank], rank, out=out, async_op=True)
            case.check(handle.wait(), rank, "async out")
            assert_same_bits(out, case.outputs[rank])


@ranks(1, 2, 3)
def test_what_wait_gives_is_differentiable(rank, size, seed):
    draw = Draw(seed)
    for case in each_op(draw, size, (3, 2), 0):
        leaves = [x.clone().requires_grad_() for x in case.inputs]
        weights = [draw.tensor(y.shape) for y in case.outputs]
        total = sum((y * w).sum() for y, w in zip(case.dense(leaves), weights, strict=True))
        wanted = torch.autograd.grad(total, leaves)

        x = case.inputs[rank].clone().requires_grad_()
        handle = case.call(x, rank, async_op=True)
        handle.wait()
        y = case.tensor_of(handle.wait())
        (grad,) = torch.autograd.grad(y, x, weights[rank])
        assert_close(grad, wanted[rank])
