"""Gradients of ragged calls, one rank without rows: adjoints, differences, second order, dense formulas."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import shardway as sw
from tests.support import dense
from tests.support.cases import (
    all_gather_case,
    all_reduce_case,
    all_to_all_case,
    broadcast_case,
    gather_case,
    reduce_scatter_case,
    scatter_case,
)
from tests.support.dense import Draw
from tests.support.ranks import ranks

# For 1 to 4 ranks: sizes with a rank that has no rows (where there is more than one), and all-to-all tables likewise.
SIZES = {1: [3], 2: [0, 3], 3: [2, 0, 3], 4: [2, 0, 1, 3]}


def table(size):
    """What rank r sends to rank s: nothing to the rank after it, and the last rank sends nothing at all."""
    if size == 1:
        return [[2]]
    rows = [[0 if s == (r + 1) % size else 1 + (r + s) % 2 for s in range(size)] for r in range(size)]
    rows[-1] = [0] * size
    return rows


def true_adjoints(draw, size, dim, dtype=torch.float64, shape=(2, 2, 3)):
    """The calls whose gradient is that of the total loss over all ranks."""
    yield all_gather_case(draw, shape, dim, SIZES[size], dtype)
    for op in ("sum", "avg"):
        yield reduce_scatter_case(draw, shape, dim, SIZES[size], dtype, op)
        yield reduce_scatter_case(draw, shape, dim, None, dtype, op, ranks=size, length=size + 1)
        yield all_reduce_case(draw, shape, size, dtype, op)
    yield all_to_all_case(draw, shape, dim, table(size), dtype)
    for root in {0, size - 1}:
        yield broadcast_case(draw, shape, size, root, dtype)
        yield gather_case(draw, shape, dim, SIZES[size], root, dtype)
        yield scatter_case(draw, shape, dim, SIZES[size], root, dtype)


def total_over_ranks(value):
    total = torch.as_tensor(value, dtype=torch.float64).detach().clone()
    dist.all_reduce(total)
    return total.item()


def inner(a, b):
    return (a.conj() * b).real.sum().item() if a.is_complex() else (a * b).sum().item()


@ranks(1, 2, 3, 4)
def test_the_gradient_is_the_adjoint(rank, size, seed):
    """<Ax, y> = <x, A'y>, both summed over the ranks; of complex tensors the real part."""
    draw = Draw(seed)
    for dtype in (torch.float64, torch.complex128):
        for dim in (0, 1, -1):
            for case in true_adjoints(draw, size, dim, dtype):
                for known in ({}, case.known[rank]):
                    upstream = [draw.tensor(y.shape, dtype) for y in case.outputs]
                    x = case.inputs[rank].clone().requires_grad_()
                    y = case.tensor_of(case.call(x, rank, **known))
                    (grad,) = torch.autograd.grad(y, x, upstream[rank])
                    assert grad.shape == x.shape and grad.dtype == x.dtype
                    left = total_over_ranks(inner(y.detach(), upstream[rank]))
                    right = total_over_ranks(inner(x.detach(), grad))
                    assert left == pytest.approx(right, rel=1e-12, abs=1e-12), f"{case.op} {dtype} dim={dim}"


@ranks(1, 2, 3, 4)
def test_the_gradient_equals_the_one_process_gradient(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1, -1):
        for case in true_adjoints(draw, size, dim):
            leaves = [x.clone().requires_grad_() for x in case.inputs]
            weights = [draw.tensor(y.shape) for y in case.outputs]
            total = sum((y.sin() * w).sum() for y, w in zip(case.dense(leaves), weights, strict=True))
            wanted = torch.autograd.grad(total, leaves)
            for known in ({}, case.known[rank]):
                x = case.inputs[rank].clone().requires_grad_()
                y = case.tensor_of(case.call(x, rank, **known))
                (y.sin() * weights[rank]).sum().backward()
                dense.assert_close(x.grad, wanted[rank], f"{case.op} dim={dim}")


@ranks(1, 2, 3, 4)
def test_the_gradient_equals_differences_of_the_total_loss_in_lock_step(rank, size, seed):
    """One rank moves one element at a time, the others move nothing, and all evaluate together."""
    draw = Draw(seed)
    step = 1e-6
    for case in true_adjoints(draw, size, 0, shape=(2, 2)):
        weights = [draw.tensor(y.shape) for y in case.outputs]

        def loss(x, case=case, weights=weights):
            y = case.tensor_of(case.call(x, rank))
            return (weights[rank] * y.sin() * y).sum()

        x = case.inputs[rank].clone().requires_grad_()
        (grad,) = torch.autograd.grad(loss(x), x)
        for mover, count in enumerate(part.numel() for part in case.inputs):
            for element in range(count):
                losses = []
                for sign in (1, -1):
                    moved = case.inputs[rank].clone()
                    if rank == mover:
                        moved.view(-1)[element] += sign * step
                    losses.append(total_over_ranks(loss(moved)))
                if rank == mover:
                    difference = (losses[0] - losses[1]) / (2 * step)
                    assert grad.reshape(-1)[element].item() == pytest.approx(difference, rel=1e-5, abs=1e-6), case.op


@ranks(1, 2, 3, 4)
def test_second_order_gradients_equal_those_of_one_process(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, -1):
        for case in true_adjoints(draw, size, dim):
            weights = [draw.tensor(y.shape) for y in case.outputs]
            directions = [draw.tensor(x.shape) for x in case.inputs]

            leaves = [x.clone().requires_grad_() for x in case.inputs]
            total = sum((y**3 * w).sum() for y, w in zip(case.dense(leaves), weights, strict=True))
            first = torch.autograd.grad(total, leaves, create_graph=True)
            second = torch.autograd.grad(first, leaves, directions)

            x = case.inputs[rank].clone().requires_grad_()
            y = case.tensor_of(case.call(x, rank))
            (mine,) = torch.autograd.grad((y**3 * weights[rank]).sum(), x, create_graph=True)
            dense.assert_close(mine, first[rank], f"{case.op} first order")
            (again,) = torch.autograd.grad(mine, x, directions[rank])
            dense.assert_close(again, second[rank], f"{case.op} second order")


@ranks(1, 2, 3, 4)
def test_each_grad_mode_of_a_gather_has_its_dense_formula(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1, -1):
        case = all_gather_case(draw, (2, 2, 3), dim, SIZES[size], torch.float64)
        upstream = [draw.tensor(case.outputs[0].shape) for _ in range(size)]
        mine = [dense.block(y, SIZES[size], rank, dim) for y in upstream]
        wanted = {"sum": sum(mine), "mean": sum(mine) / size, "local": mine[rank]}
        for grad, want in wanted.items():
            for known in ({}, case.known[rank]):
                x = case.inputs[rank].clone().requires_grad_()
                gathered, _ = sw.all_gather_v(x, dim, grad=grad, **known)
                gathered.backward(upstream[rank])
                dense.assert_close(x.grad, want, f"{grad} dim={dim}")


@ranks(1, 2, 3, 4)
def test_each_grad_mode_of_a_gather_has_its_dense_formula_of_second_order(rank, size, seed):
    """loss = sum(c g^3): the first gradient is 3 c x^2, the second along v is 6 c x v, and c is what the mode makes of
    the ranks' weights; mean divides at each of the two passes through the gather."""
    draw = Draw(seed)
    case = all_gather_case(draw, (2, 2), 0, SIZES[size], torch.float64)
    weights = [draw.tensor(case.outputs[0].shape) for _ in range(size)]
    v = draw.parts((2, 2), 0, SIZES[size])[rank]
    mine = [dense.block(w, SIZES[size], rank, 0) for w in weights]
    for grad, once, twice in (
        ("sum", sum(mine), sum(mine)),
        ("mean", sum(mine) / size, sum(mine) / size**2),
        ("local", mine[rank], mine[rank]),
    ):
        x = case.inputs[rank].clone().requires_grad_()
        gathered, _ = sw.all_gather_v(x, grad=grad)
        (first,) = torch.autograd.grad((weights[rank] * gathered**3).sum(), x, create_graph=True)
        dense.assert_close(first, 3 * once * x**2, f"{grad} first order")
        (second,) = torch.autograd.grad(first, x, v)
        dense.assert_close(second, 6 * twice * x * v, f"{grad} second order")


@ranks(3)
def test_local_gradients_need_no_other_rank(rank, size):
    """Only one rank runs backward; in the modes sum and mean the others would have to."""
    x = torch.ones(rank + 1, 2, requires_grad=True)
    gathered, _ = sw.all_gather_v(x, grad="local")
    if rank == 1:
        gathered.sum().backward()
        assert torch.equal(x.grad, torch.ones(2, 2))


@ranks(2, 3, 4)
def test_requires_grad_may_differ_between_ranks(rank, size, seed):
    """With sizes not given every rank learns of it, and those that need no gradient still take part in backward."""
    draw = Draw(seed)
    for case in (
        all_gather_case(draw, (2, 3), 0, SIZES[size], torch.float64),
        reduce_scatter_case(draw, (2, 3), 0, None, torch.float64, "sum", ranks=size, length=2 * size - 1),
        reduce_scatter_case(draw, (2, 3), 0, None, torch.float64, "avg", ranks=size, length=2 * size - 1),
        all_to_all_case(draw, (2, 3), 0, table(size), torch.float64),
        all_reduce_case(draw, (2, 3), size, torch.float64),
        broadcast_case(draw, (2, 3), size, 1, torch.float64),
        gather_case(draw, (2, 3), 0, SIZES[size], 1, torch.float64),
    ):
        weights = [draw.tensor(y.shape) for y in case.outputs]
        for learner in range(size):
            leaves = [x.clone().requires_grad_(r == learner) for r, x in enumerate(case.inputs)]
            total = sum((y * w).sum() for y, w in zip(case.dense(leaves), weights, strict=True))
            (wanted,) = torch.autograd.grad(total, [leaves[learner]])

            x = case.inputs[rank].clone().requires_grad_(rank == learner)
            y = case.tensor_of(case.call(x, rank))
            assert y.requires_grad, f"{case.op}: rank {rank} would not take part"
            (y * weights[rank]).sum().backward()
            if rank == learner:
                dense.assert_close(x.grad, wanted, case.op)
            else:
                assert x.grad is None


@ranks(2, 3)
def test_no_gradient_is_asked_for_where_no_rank_wants_one(rank, size, seed):
    draw = Draw(seed)
    for case in true_adjoints(draw, size, 0):
        assert not case.tensor_of(case.call(case.inputs[rank], rank)).requires_grad
        with torch.no_grad():
            x = case.inputs[rank].clone().requires_grad_()
            assert not case.tensor_of(case.call(x, rank)).requires_grad


@ranks(1, 2, 3)
def test_incoming_gradients_may_lie_in_memory_as_they_like(rank, size, seed):
    draw = Draw(seed)
    for case in true_adjoints(draw, size, 0):
        weights = [draw.tensor(y.shape) for y in case.outputs]
        leaves = [x.clone().requires_grad_() for x in case.inputs]
        wanted = torch.autograd.grad(case.dense(leaves), leaves, weights)
        for form, upstream in dense.memory_forms(weights[rank]):
            x = case.inputs[rank].clone().requires_grad_()
            (grad,) = torch.autograd.grad(case.tensor_of(case.call(x, rank)), x, upstream)
            dense.assert_close(grad, wanted[rank], f"{case.op} {form}")
            dense.assert_same_bits(upstream, weights[rank], f"the incoming gradient of {case.op}, {form}")

        ones = torch.autograd.grad(sum(y.sum() for y in case.dense(leaves)), leaves)
        x = case.inputs[rank].clone().requires_grad_()
        case.tensor_of(case.call(x, rank)).sum().backward()  # an expanded gradient
        dense.assert_close(x.grad, ones[rank], f"{case.op} expanded")


@ranks(1, 2, 3)
def test_the_graph_may_be_used_twice_and_the_result_changed_in_place(rank, size):
    x = torch.ones(rank + 1, 2, requires_grad=True)
    gathered, _ = sw.all_gather_v(x)
    for _ in range(2):
        (grad,) = torch.autograd.grad(gathered.sum(), x, retain_graph=True)
        assert torch.equal(grad, torch.full_like(x, size))
    if size > 1:
        gathered, _ = sw.all_gather_v(x)
        (grad,) = torch.autograd.grad(gathered.mul_(3).sum(), x)
        assert torch.equal(grad, torch.full_like(x, 3 * size))


@ranks(2)
def test_a_checkpointed_gather_gathers_again_in_backward(rank, size):
    x = torch.ones(rank + 1, 2, requires_grad=True)
    checkpoint(lambda x: (sw.all_gather_v(x)[0] ** 2).sum(), x, use_reentrant=False).backward()
    assert torch.equal(x.grad, torch.full_like(x, 2 * size))


@ranks(1, 3)
def test_the_gradient_of_a_non_contiguous_leaf_has_its_shape_and_values(rank, size, seed):
    draw = Draw(seed)
    for case in true_adjoints(draw, size, 1):
        weights = [draw.tensor(y.shape) for y in case.outputs]
        leaves = [x.clone().requires_grad_() for x in case.inputs]
        wanted = torch.autograd.grad(case.dense(leaves), leaves, weights)
        for form, x in dense.memory_forms(case.inputs[rank]):
            if form == "negative view":
                continue  # is no leaf
            x = x.detach().requires_grad_()
            case.tensor_of(case.call(x, rank)).backward(weights[rank])
            dense.assert_close(x.grad, wanted[rank], f"{case.op} {form}")


@ranks(1, 2, 3)
def test_gradients_flow_through_what_made_the_input(rank, size, seed):
    """The input is no leaf: rows of a shared weight, of which every rank uses its own."""
    draw = Draw(seed)
    weight = draw.tensor((4, 2))
    batches = draw.parts((1, 4), 0, SIZES[size])
    scale = [draw.tensor((sum(SIZES[size]), 2)) for _ in range(size)]

    shared = weight.clone().requires_grad_()
    whole = torch.cat([(b @ shared).tanh() for b in batches])
    (wanted,) = torch.autograd.grad(sum((whole * s).sum() for s in scale), shared)

    mine = weight.clone().requires_grad_()
    gathered, _ = sw.all_gather_v((batches[rank] @ mine).tanh())
    (gathered * scale[rank]).sum().backward()
    dist.all_reduce(mine.grad)
    dense.assert_close(mine.grad, wanted)


@ranks(3)
def test_min_max_and_product_refuse_an_input_that_requires_grad(rank, size):
    for op in ("min", "max", "product"):
        x = torch.ones(3, 2, requires_grad=True)
        with pytest.raises(ValueError, match=rf"reduce_scatter_v.*{op}"):
            sw.reduce_scatter_v(x, op=op)
        with torch.no_grad():
            assert torch.equal(sw.reduce_scatter_v(x, op=op), torch.ones(1, 2))


@ranks(2, 3)
def test_half_precision_gradients_keep_their_dtype(rank, size, seed):
    draw = Draw(seed)
    for dtype in (torch.float16, torch.bfloat16, torch.complex64):
        case = all_gather_case(draw, (2, 2), 0, SIZES[size], dtype)
        x = case.inputs[rank].clone().requires_grad_()
        sw.all_gather_v(x)[0].sum().abs().backward()
        assert x.grad.dtype == dtype and x.grad.shape == x.shape


@ranks(2)
def test_many_forwards_before_their_backwards_keep_apart(rank, size, seed):
    draw = Draw(seed)
    cases = [case for dim in (0, 1, -1) for case in true_adjoints(draw, size, dim)]
    leaves = [case.inputs[rank].clone().requires_grad_() for case in cases]
    outputs = [case.tensor_of(case.call(x, rank)) for case, x in zip(cases, leaves, strict=True)]
    for case, x, y in reversed(list(zip(cases, leaves, outputs, strict=True))):
        all_leaves = [part.clone().requires_grad_() for part in case.inputs]
        wanted = torch.autograd.grad(sum((out**2).sum() for out in case.dense(all_leaves)), all_leaves)
        (grad,) = torch.autograd.grad((y**2).sum(), x)
        dense.assert_close(grad, wanted[rank], case.op)
