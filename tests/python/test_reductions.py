"""Reductions give the same bits on every rank, in every call, for every message size: those of a loop in rank order."""

from __future__ import annotations

import torch
import torch.distributed as dist

import shardway as sw
from tests.support import dense
from tests.support.cases import all_gather_case, reduce_scatter_case
from tests.support.dense import Draw, ops_of
from tests.support.ranks import ranks


@ranks(1, 2, 3, 4)
def test_every_op_and_dtype_has_the_bits_of_a_loop_in_rank_order(rank, size, seed):
    draw = Draw(seed)
    for dtype in (*dense.FLOATS, *dense.COMPLEX, *dense.INTEGERS, torch.bool):
        for op in ops_of(dtype):
            for shape, dim, most in (((3,), 0, 5), ((4, 3), 1, 5), ((3, 5), 0, 2000)):
                case = reduce_scatter_case(draw, shape, dim, draw.sizes(size, most), dtype, op)
                result = case.call(case.inputs[rank], rank)
                if op == "product" and dtype.is_complex:  # a compiler may fuse its multiplications and additions
                    dense.assert_close(result, case.outputs[rank])
                else:
                    case.check(result, rank, f"{op} {dtype} {shape}")


@ranks(4)
def test_bf16_256_and_three_ones_are_259_rounded_once(rank, size):
    """In bf16 every partial sum 256+1 falls back to 256; in f32 the sum is 259, a tie, which rounds to 260."""
    for length in (4, 4 * 1000, 4 * 50_000):
        x = torch.full((length,), 256.0 if rank == 0 else 1.0, dtype=torch.bfloat16)
        assert torch.equal(sw.reduce_scatter_v(x).float(), torch.full((length // 4,), 260.0)), length


@ranks(2, 4)
def test_the_mean_of_large_f16_numbers_does_not_overflow(rank, size):
    x = torch.full((size, 3), 60_000.0, dtype=torch.float16)
    assert sw.reduce_scatter_v(x, op="avg").tolist() == [[60_000.0] * 3]


@ranks(3)
def test_avg_divides_before_it_rounds(rank, size):
    """149 + 233 + 225 = 607, a third of which is 202.3; rounded to bf16 first, 608 / 3 would give 203."""
    rows = torch.tensor([[149.0, 147.0], [233.0, 134.0], [225.0, 40.0]], dtype=torch.bfloat16)
    assert sw.reduce_scatter_v(rows[rank].repeat(3, 1), op="avg").tolist() == [[202.0, 107.0]]


@ranks(3)
def test_the_order_of_the_addends_is_that_of_the_ranks(rank, size):
    """In f64, 1e16 + 1 is 1e16 again: only when the two large addends meet first does the 1 survive."""
    for values, want in (((1e16, 1.0, -1e16), 0.0), ((1e16, -1e16, 1.0), 1.0), ((1.0, 1e16, -1e16), 0.0)):
        x = torch.full((3, 2), values[rank], dtype=torch.float64)
        assert sw.reduce_scatter_v(x).tolist() == [[want, want]]


@ranks(3)
def test_bits_do_not_depend_on_how_the_tensor_is_cut(rank, size, seed):
    addends = Draw(seed).parts((999, 7), 0, [999] * size, torch.float32)
    whole = dense.reduced(addends)
    for sizes in ([333, 333, 333], [0, 999, 0], [1, 2, 996], [500, 0, 499]):
        dense.assert_same_bits(sw.reduce_scatter_v(addends[rank], sizes), dense.block(whole, sizes, rank, 0), sizes)
    for _ in range(3):
        dense.assert_same_bits(sw.reduce_scatter_v(addends[rank]), dense.block(whole, [333] * 3, rank, 0))


@ranks(2, 3)
def test_a_nan_stays_in_min_and_max(rank, size):
    for op in ("min", "max"):
        for holder in range(size):
            x = torch.full((size, 2), float(rank))
            if rank == holder:
                x[:, 0] = float("nan")
            mine = sw.reduce_scatter_v(x, op=op)
            assert mine[0, 0].isnan()
            assert mine[0, 1] == (0 if op == "min" else size - 1)


@ranks(2, 3)
def test_integers_wrap_as_torch_adds_them(rank, size):
    x = torch.full((size, 2), 100, dtype=torch.int8)
    assert torch.equal(sw.reduce_scatter_v(x), dense.reduced([x] * size)[:1])
    big = torch.full((size,), 2**62 + 1, dtype=torch.int64)
    assert torch.equal(sw.reduce_scatter_v(big), dense.reduced([big] * size)[:1])


@ranks(1, 3)
def test_op_takes_torchs_words_mean_and_reduce_ops(rank, size, seed):
    draw = Draw(seed)
    words = {
        "sum": ("sum", dist.ReduceOp.SUM),
        "avg": ("avg", "mean", dist.ReduceOp.AVG),
        "min": ("min", dist.ReduceOp.MIN),
        "max": ("max", dist.ReduceOp.MAX),
        "product": ("product", dist.ReduceOp.PRODUCT),
    }
    for op, spellings in words.items():
        case = reduce_scatter_case(draw, (3, 2), 0, None, torch.float32, op, ranks=size, length=5)
        for spelling in spellings:
            case.check(sw.reduce_scatter_v(case.inputs[rank], op=spelling), rank, spelling)


@ranks(2, 3, 4)
def test_the_gradient_of_a_gather_is_summed_in_rank_order_too(rank, size, seed):
    draw = Draw(seed)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for rows in (2, 700):
            sizes = [rows * (r + 1) for r in range(size)]
            case = all_gather_case(draw, (1, 3), 0, sizes, dtype)
            upstream = draw.parts((1, 3), 0, [sum(sizes)] * size, dtype)
            for grad in ("sum", "mean"):
                x = case.inputs[rank].clone().requires_grad_()
                gathered, _ = sw.all_gather_v(x, grad=grad)
                gathered.backward(upstream[rank])
                want = dense.reduced(upstream, "sum" if grad == "sum" else "avg")
                dense.assert_same_bits(x.grad, dense.block(want, sizes, rank, 0), f"{dtype} {grad}")
