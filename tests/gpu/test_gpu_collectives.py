"""Every collective on tensors of a GPU, against one process on the CPU."""

from __future__ import annotations

import torch

import shardway as sw
from tests.support import dense
from tests.support.cases import all_gather_case, all_reduce_case, each_op, each_op_with_out, reduce_scatter_case
from tests.support.dense import Draw
from tests.support.gpu_cases import (
    DEVICE,
    assert_close,
    check,
    check_close,
    forms,
    on_cpu,
    on_device,
    one_process_gradient,
    sizes_of_groups,
)


def every_dtype(rank, size, seed):
    """Deterministic reductions have the same bits as on the CPU."""
    torch.use_deterministic_algorithms(True)
    draw = Draw(seed)
    for dtype in dense.MOVABLE:
        for dim in (0, 1):
            for case in each_op(draw, size, (3, 2), dim, dtype):
                x = on_device(case.inputs[rank])
                what = f"{dtype} dim={dim}"
                for known in ({}, case.known[rank]):
                    check(case, case.call(x, rank, **known), rank, what)
                check(case, case.call(x, rank, async_op=True, **case.known[rank]).wait(), rank, f"{what} async")
                dense.assert_same_bits(x.cpu(), case.inputs[rank], f"{case.op} {what}: the input")
        for op in ("min", "max", "product", "avg"):
            if dtype in dense.FLOAT8 or (op in ("min", "max") and dtype.is_complex):
                continue
            if op == "avg" and not (dtype.is_floating_point or dtype.is_complex):
                continue
            # a product of complex numbers is rounded in another order there
            is_exact = not (op == "product" and dtype.is_complex)
            check_reductions(draw, rank, size, dtype, op, check if is_exact else check_close)


def check_reductions(draw, rank, size, dtype, op, checks):
    sizes = draw.sizes(size)
    for case in (
        reduce_scatter_case(draw, (2, 3), 1, sizes, dtype, op),
        reduce_scatter_case(draw, (2, 3), 0, [2] * size, dtype, op),
        all_reduce_case(draw, (3, 4), size, dtype, op),
        all_reduce_case(draw, (70, 81), size, dtype, op),
    ):
        x = on_device(case.inputs[rank])
        checks(case, case.call(x, rank), rank, f"{dtype} {op}")


@sizes_of_groups
def test_every_op_moves_every_dtype(run, size, seed):
    run(size, every_dtype, seed)


def reduced_by_the_engine(rank, size, seed):
    draw = Draw(seed)
    for dtype in (*dense.FLOATS, torch.int32, torch.int64):
        for op in ("sum", "min", "max", "product", "avg"):
            if op != "avg" or dtype.is_floating_point:
                check_reductions(draw, rank, size, dtype, op, check_close)


def every_form(rank, size, seed):
    draw = Draw(seed)
    for dim in range(4):
        for case in each_op(draw, size, (2, 3, 2, 3), dim, torch.float64):
            for form, x in forms(case.inputs[rank]):
                check_close(case, case.call(x, rank), rank, f"{case.op} dim={dim} {form}")
        for case in each_op_with_out(draw, size, (2, 3, 2, 3), dim, torch.float64):
            x = on_device(case.inputs[rank])
            for form, out in forms(torch.zeros_like(case.outputs[rank])):
                for known in ({}, case.known[rank]):
                    result = case.call(x, rank, out=out, **known)
                    assert case.tensor_of(result).data_ptr() == out.data_ptr()
                    check_close(case, result, rank, f"{case.op} dim={dim} out {form}")


def gradients(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1):
        for case in each_op(draw, size, (3, 2), dim, torch.float64):
            upstream = [draw.tensor(y.shape) for y in case.outputs]
            direction = [draw.tensor(x.shape) for x in case.inputs]
            want = one_process_gradient(case, upstream, rank)
            for known in ({}, case.known[rank]):
                what = f"{case.op} dim={dim} {known}"
                x = on_device(case.inputs[rank]).requires_grad_()
                y = case.tensor_of(case.call(x, rank, **known))
                g = on_device(upstream[rank]).requires_grad_()
                (grad,) = torch.autograd.grad(y, x, g, create_graph=True)
                assert_close(grad, want, what)
                # the gradient of a linear map's gradient is the map
                (again,) = torch.autograd.grad(grad, g, on_device(direction[rank]))
                assert_close(again, case.dense(direction)[rank], f"{what}, second order")
                h = case.call(x, rank, async_op=True, **known)
                (grad,) = torch.autograd.grad(case.tensor_of(h.wait()), x, on_device(upstream[rank]))
                assert_close(grad, want, f"{what} async")


def gradient_modes(rank, size, seed):
    draw = Draw(seed)
    sizes = [2 * r for r in range(size)]
    case = all_gather_case(draw, (1, 3), 1, sizes, torch.float64)
    upstream = [draw.tensor(y.shape) for y in case.outputs]
    mine = [dense.block(g, sizes, rank, 1) for g in upstream]
    for grad, want in (("sum", sum(mine)), ("mean", sum(mine) / size), ("local", mine[rank])):
        x = on_device(case.inputs[rank]).requires_grad_()
        y, _ = sw.all_gather_v(x, 1, grad=grad)
        (got,) = torch.autograd.grad(y, x, on_device(upstream[rank]))
        # a group of one gives its input back, whose gradient is the upstream one
        assert_close(got, want, grad)


@sizes_of_groups
def test_forward_and_backward_along_every_dim(run, size, seed):
    def body(rank, size):
        for part in (reduced_by_the_engine, every_form, gradients, gradient_modes):
            part(rank, size, seed)

    run(size, body)


def lists(rank, size, seed):
    draw = Draw(seed)
    dtypes = (torch.float64, torch.bfloat16, torch.uint8)
    sizes = [draw.sizes(size) for _ in dtypes]
    parts = [draw.parts((3, 2), 1, s, dtype) for s, dtype in zip(sizes, dtypes, strict=True)]
    wholes = [[draw.tensor((sum(s), 3), dtype) for _ in range(size)] for s, dtype in zip(sizes, dtypes, strict=True)]
    torch.use_deterministic_algorithms(True)
    for given in (None, sizes):
        xs = [on_device(part[rank]) for part in parts]
        xs[0].requires_grad_()
        for result in (sw.all_gather_v(xs, 1, sizes=given), sw.all_gather_v(xs, 1, sizes=given, async_op=True).wait()):
            gathered, found = result
            assert [list(s) for s in found] == sizes
            for got, part in zip(gathered, parts, strict=True):
                dense.assert_same_bits(on_cpu(got), dense.gathered(part, 1), f"list {given}")
            (grad,) = torch.autograd.grad(gathered[0].sum(), xs[0])
            assert_close(grad, torch.full_like(parts[0][rank], size))
        ys = [on_device(whole[rank]) for whole in wholes]
        for reduced in (sw.reduce_scatter_v(ys, given), sw.reduce_scatter_v(ys, given, async_op=True).wait()):
            for got, whole, s in zip(reduced, wholes, sizes, strict=True):
                cut = s if given else dense.chunk_sizes(sum(s), size)
                dense.assert_same_bits(on_cpu(got), dense.block(dense.reduced(whole), cut, rank, 0), "reduced list")
    torch.use_deterministic_algorithms(False)


def own_memory(rank, size, seed):
    """A result is the caller's, and an input is left as it is, whatever the engine does in place."""
    x = torch.full((3, 2), float(rank + 1), device=DEVICE)
    for result in (sw.all_reduce(x), sw.broadcast(x), sw.all_gather_v(x)[0], sw.reduce_scatter_v(x)):
        if size > 1:
            result.fill_(-1)
    assert on_cpu(x).eq(rank + 1).all()


@sizes_of_groups
def test_lists_travel_in_one_exchange_and_inputs_stay(run, size, seed):
    def body(rank, size):
        lists(rank, size, seed)
        own_memory(rank, size, seed)

    run(size, body)
