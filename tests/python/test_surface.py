"""What each collective gives, over dims, sizes, dtypes and memory layouts, against a reference in one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import shardway as sw
from tests.support import dense
from tests.support.cases import all_gather_case, all_to_all_case, each_op, reduce_scatter_case
from tests.support.dense import Draw, assert_same_bits
from tests.support.ranks import ranks


@ranks(1, 2, 3, 4)
def test_any_dim_of_1d_to_6d_tensors_works_with_sizes_given_or_not(rank, size, seed):
    draw = Draw(seed)
    for ndim in range(1, 7):
        for dim in range(-ndim, ndim):
            shape = [draw.integer(1, 4) for _ in range(ndim)]
            for case in each_op(draw, size, shape, dim):
                what = f"{ndim}-d dim={dim}"
                case.check(case.call(case.inputs[rank], rank), rank, what)
                case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, f"{what} sizes given")


@ranks(1, 2, 3, 4)
def test_every_dtype_moves(rank, size, seed):
    draw = Draw(seed)
    for dtype in dense.MOVABLE:
        for dim in (0, 1):
            for case in each_op(draw, size, (3, 3), dim, dtype):
                case.check(case.call(case.inputs[rank], rank), rank, dtype)
                case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, f"{dtype} sizes given")


@ranks(2, 3, 4)
def test_payloads_of_every_magnitude_arrive(rank, size, seed):
    """From less than a header's slot to more than a socket buffer, ragged 1:3:5:…, along dim 0 and along another."""
    draw = Draw(seed)
    for unit in (1, 7, 64, 1000, 40_000):
        sizes = [unit * (2 * r + 1) for r in range(size)]
        for dim in (0, 1):
            for case in (
                all_gather_case(draw, (3, 3), dim, sizes, torch.float32),
                reduce_scatter_case(draw, (3, 3), dim, sizes, torch.float32),
                all_to_all_case(draw, (3, 3), dim, [sizes] * size, torch.float32),
            ):
                case.check(case.call(case.inputs[rank], rank), rank, f"unit={unit} dim={dim}")
                case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, f"unit={unit} sizes given")


@ranks(1, 2, 3, 4)
def test_ranks_without_rows_contribute_and_receive_nothing(rank, size, seed):
    draw = Draw(seed)
    for empty in range(2**size):  # every set of ranks without rows, none and all included
        sizes = [0 if empty >> r & 1 else r + 1 for r in range(size)]
        table = [[0 if empty >> (r + s) % size & 1 else s + 1 for s in range(size)] for r in range(size)]
        for dim in (0, -1):
            for case in (
                all_gather_case(draw, (2, 3, 2), dim, sizes, torch.float32),
                reduce_scatter_case(draw, (2, 3, 2), dim, sizes, torch.float32),
                all_to_all_case(draw, (2, 3, 2), dim, table, torch.float32),
            ):
                case.check(case.call(case.inputs[rank], rank), rank, sizes)
                case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, f"{sizes} given")


@ranks(1, 3)
def test_another_dim_of_length_zero_gives_an_empty_tensor_with_the_right_sizes(rank, size, seed):
    draw = Draw(seed)
    for case in each_op(draw, size, (4, 0, 2), 0):
        case.check(case.call(case.inputs[rank], rank), rank)
        case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, "sizes given")


@ranks(1, 2, 3, 4)
def test_equal_sizes_take_the_fast_path_to_the_same_result(rank, size, seed):
    draw = Draw(seed)
    for rows in (1, 3, 3000):
        for dim in (0, 1):
            for case in (
                all_gather_case(draw, (2, 2), dim, [rows] * size, torch.float32),
                reduce_scatter_case(draw, (2, 2), dim, [rows] * size, torch.float32),
                all_to_all_case(draw, (2, 2), dim, [[rows] * size] * size, torch.float32),
            ):
                case.check(case.call(case.inputs[rank], rank), rank, rows)
                case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, f"{rows} given")


@ranks(1, 3)
def test_any_memory_layout_gives_the_same_bits_and_keeps_its_input(rank, size, seed):
    draw = Draw(seed)
    for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bool, torch.float8_e5m2):
        for shape in ((3, 4), (2, 3, 2, 3), (2, 2, 2, 2, 2)):
            for dim in (0, len(shape) - 1):
                for case in each_op(draw, size, shape, dim, dtype):
                    for form, x in dense.memory_forms(case.inputs[rank]):
                        version = x._version
                        case.check(case.call(x, rank), rank, f"{dtype} {shape} {form}")
                        case.check(case.call(x, rank, **case.known[rank]), rank, f"{dtype} {shape} {form} given")
                        assert_same_bits(x, case.inputs[rank], f"the input of {case.op}, {form}")
                        assert x._version == version


@ranks(1, 3)
def test_a_large_transposed_input_gives_the_same_bits(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1):
        for case in each_op(draw, size, (300, 300), dim, torch.float32, most=300):
            for form, x in dense.memory_forms(case.inputs[rank]):
                case.check(case.call(x, rank), rank, form)


@ranks(1, 2, 3)
def test_expanded_inputs_count_every_repeat(rank, size, seed):
    draw = Draw(seed)
    for dim, repeated in ((0, 0), (0, 1), (1, 0), (1, 1)):
        rows = [r + 1 for r in range(size)]
        shapes = [dense.resized((4, 4), dim, n) for n in rows]
        parts = [draw.tensor(dense.resized(shape, repeated, 1)).expand(shape) for shape in shapes]
        gathered, sizes = sw.all_gather_v(parts[rank], dim)
        assert_same_bits(gathered, torch.cat([p.contiguous() for p in parts], dim))
        assert sizes == tuple(rows)

        addends = [draw.tensor(dense.resized((size, size), repeated, 1)).expand(size, size) for _ in range(size)]
        mine = sw.reduce_scatter_v(addends[rank], dim=dim)
        assert_same_bits(mine, dense.reduced([a.contiguous() for a in addends]).narrow(dim, rank, 1))


@ranks(1, 2, 3)
def test_the_results_own_their_memory_and_are_contiguous(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1):
        for case in each_op(draw, size, (3, 5), dim):
            x = case.inputs[rank]
            kept = x.clone()
            result = case.tensor_of(case.call(x, rank))
            if size == 1:
                assert result is x
                continue
            assert result.is_contiguous()
            result.add_(1)
            assert_same_bits(x, kept, case.op)


@ranks(1, 2, 3, 4)
def test_sizes_go_in_as_any_sequence_or_a_long_tensor(rank, size, seed):
    draw = Draw(seed)
    sizes = [r + 1 for r in range(size)]
    forms = (tuple(sizes), sizes, torch.tensor(sizes), torch.Size(sizes), range(1, size + 1), np.array(sizes))
    gather = all_gather_case(draw, (1, 2), 0, sizes, torch.float32)
    reduce = reduce_scatter_case(draw, (1, 2), 0, sizes, torch.float32)
    swap = all_to_all_case(draw, (1, 2), 0, [sizes] * size, torch.float32)
    arriving = [rank + 1] * size
    for form in forms:
        gather.check(sw.all_gather_v(gather.inputs[rank], sizes=form), rank, form)
        reduce.check(sw.reduce_scatter_v(reduce.inputs[rank], form), rank, form)
        swap.check(sw.all_to_all_v(swap.inputs[rank], form), rank, form)
        swap.check(sw.all_to_all_v(swap.inputs[rank], form, recv_sizes=torch.tensor(arriving)), rank, form)
        swap.check(sw.all_to_all_v(swap.inputs[rank], form, recv_sizes=arriving), rank, form)


@ranks(1, 2, 3, 4)
def test_reduce_scatter_without_sizes_splits_as_torch_chunk(rank, size, seed):
    draw = Draw(seed)
    for length in range(2 * size + 2):
        for dim in (0, -1):
            case = reduce_scatter_case(draw, (2, 3, 2), dim, None, torch.float32, ranks=size, length=length)
            case.check(sw.reduce_scatter_v(case.inputs[rank], dim=dim), rank, length)
            case.check(sw.reduce_scatter_v(case.inputs[rank], None, dim), rank, length)


@ranks(2, 3)
def test_sizes_beyond_32_bits_are_kept(rank, size):
    """Rows of no columns take no memory."""
    rows = [2**33 + r for r in range(size)]
    gathered, sizes = sw.all_gather_v(torch.empty(rows[rank], 0))
    assert gathered.shape == (sum(rows), 0) and sizes == tuple(rows)
    assert sw.all_gather_v(torch.empty(rows[rank], 0), sizes=rows)[0].shape == (sum(rows), 0)
    assert sw.gather_sizes(torch.empty(rows[rank], 0)) == tuple(rows)
    assert sw.reduce_scatter_v(torch.empty(sum(rows), 0), rows).shape == (rows[rank], 0)
    swapped, arrived = sw.all_to_all_v(torch.empty(sum(rows), 0), rows)
    assert swapped.shape == (rows[rank] * size, 0) and arrived == (rows[rank],) * size


@ranks(1, 3)
def test_calls_in_inference_mode_and_of_parameters_work(rank, size, seed):
    for case in each_op(Draw(seed), size, (3, 2), 0):
        with torch.inference_mode():
            x = case.inputs[rank].clone()
            case.check(case.call(x, rank), rank, "inference mode")
            if case.takes_out:
                case.check(case.call(x, rank, out=torch.empty_like(case.outputs[rank])), rank, "inference mode, out")
        case.check(case.call(x, rank), rank, "an inference tensor outside that mode")
        result = case.tensor_of(case.call(torch.nn.Parameter(case.inputs[rank]), rank))
        assert result.requires_grad
        assert_same_bits(result, case.outputs[rank], "a parameter")


@ranks(2, 3)
def test_ranks_may_give_the_sizes_in_different_forms(rank, size, seed):
    case = all_gather_case(Draw(seed), (1, 2), 0, [r + 1 for r in range(size)], torch.float32)
    sizes = case.known[rank]["sizes"]
    case.check(sw.all_gather_v(case.inputs[rank], sizes=sizes if rank else torch.tensor(sizes)), rank)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64, torch.bool])
def test_without_a_group_every_call_gives_its_input_back(dtype):
    x = Draw(0).tensor((3, 2), dtype)
    for dim in (0, 1, -1):
        rows = (x.shape[dim],)
        assert sw.all_gather_v(x, dim)[0] is x and sw.all_gather_v(x, dim)[1] == rows
        assert sw.all_gather_v(x, dim, sizes=rows)[0] is x
        assert sw.reduce_scatter_v(x, dim=dim) is x
        assert sw.reduce_scatter_v(x, rows, dim) is x
        assert sw.all_to_all_v(x, rows, dim)[0] is x and sw.all_to_all_v(x, list(rows), dim)[1] == rows
        assert sw.gather_sizes(x, dim) == rows


def test_without_a_group_gradients_pass_through():
    x = Draw(0).tensor((3, 2)).requires_grad_()
    weight = Draw(1).tensor((3, 2))
    for y in (sw.all_gather_v(x)[0], sw.reduce_scatter_v(x), sw.all_to_all_v(x, (3,))[0]):
        (grad,) = torch.autograd.grad(y, x, weight)
        assert torch.equal(grad, weight)
