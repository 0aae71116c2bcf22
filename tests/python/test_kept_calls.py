"""Calls that are made again: what a group keeps of one never shows in the result of another."""

from __future__ import annotations

import itertools
import resource

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.cases import each_op_with_out
from tests.support.dense import Draw, assert_same_bits
from tests.support.ranks import ranks


@ranks(2, 3)
def test_a_repeated_call_gives_what_the_first_one_would(rank, size, seed):
    draw = Draw(seed)
    for dtype, dim in itertools.product((torch.float32, torch.bfloat16, torch.int64), (0, 1)):
        out: dict[str, torch.Tensor] = {}
        for _ in range(3):
            for case in each_op_with_out(draw, size, (3, 4), dim, dtype):
                into = out.setdefault(case.op, torch.empty_like(case.outputs[rank]))
                if into.shape != case.outputs[rank].shape:
                    into = torch.empty_like(case.outputs[rank])
                for known in ({}, case.known[rank]):
                    case.check(case.call(case.inputs[rank], rank, **known), rank, f"fresh, {dtype} dim={dim}")
                    case.check(case.call(case.inputs[rank], rank, out=into, **known), rank, f"out, {dtype} dim={dim}")
                    assert_same_bits(into, case.outputs[rank], case.op)


def _gathered(rank: int, size: int, make) -> None:
    """Compares two calls in a row with the concatenation of what all ranks brought."""
    inputs = [make(r) for r in range(size)]
    sizes = tuple(x.shape[0] for x in inputs)
    for _ in range(2):
        result, found = sw.all_gather_v(inputs[rank], sizes=sizes)
        assert found == sizes
        assert_same_bits(result, torch.cat(inputs), "all_gather_v")


@ranks(2, 3)
def test_another_shape_dtype_or_stride_after_a_kept_call(rank, size):
    def numbers(r, rows, columns=4, dtype=torch.float32):
        return (torch.arange(rows * columns).reshape(rows, columns) + 100 * r).to(dtype)

    for _ in range(2):
        _gathered(rank, size, lambda r: numbers(r, 3))
        _gathered(rank, size, lambda r: numbers(r, 3, dtype=torch.float64))
        _gathered(rank, size, lambda r: numbers(r, 3, dtype=torch.int32))
        _gathered(rank, size, lambda r: numbers(r, 3, 5))
        _gathered(rank, size, lambda r: numbers(r, r))
        _gathered(rank, size, lambda r: numbers(r, 3, 8)[:, ::2])
        _gathered(rank, size, lambda r: numbers(r, 4, 3).t())
        _gathered(rank, size, lambda r: torch.complex(numbers(r, 3), numbers(r, 3)))
        _gathered(rank, size, lambda r: torch.complex(numbers(r, 3), numbers(r, 3)).conj())


@ranks(2, 3)
def test_another_group_after_a_kept_call(rank, size):
    reverse = dist.new_group(list(reversed(range(size))))
    ours = dist.new_group(backend="shardway")
    x = torch.full((2,), float(rank))
    for _, group in itertools.product(range(3), (None, reverse, ours)):
        in_order = dist.get_process_group_ranks(group) if group is not None else range(size)
        want = torch.cat([torch.full((2,), float(r)) for r in in_order])
        assert torch.equal(sw.all_gather_v(x, sizes=(2,) * size, group=group)[0], want)
        assert torch.equal(sw.all_reduce(x, group=group), torch.full((2,), sum(range(size)) * 1.0))


@ranks(2, 3)
def test_a_peer_that_changes_its_call_is_told_on_every_rank_and_the_group_goes_on(rank, size):
    x, sizes = torch.ones(4, 2), (4,) * size
    whole = torch.ones(4 * size, 2)

    def plain() -> None:
        for _ in range(3):
            assert torch.equal(sw.all_gather_v(x, sizes=sizes)[0], whole)
            assert torch.equal(sw.all_reduce(x), x * size)
            assert torch.equal(sw.reduce_scatter_v(whole, sizes), x * size)

    plain()
    last = rank == size - 1
    with pytest.raises(ValueError, match="float64"):
        sw.all_gather_v(x.double() if last else x, sizes=sizes)
    plain()
    with pytest.raises(ValueError, match="all_gather_v"):
        sw.all_gather_v(x[:, :1] if last else x, sizes=sizes)
    plain()
    with pytest.raises(ValueError, match="all_reduce"):
        sw.all_reduce(x[:3] if last else x)
    plain()
    with pytest.raises(ValueError, match="op"):
        sw.all_reduce(x, op="max" if last else "sum")
    plain()
    with pytest.raises(ValueError, match=r"different|all_reduce|all_gather_v"):
        sw.all_reduce(x) if last else sw.all_gather_v(x, sizes=sizes)
    plain()


@ranks(2, 3)
def test_sizes_that_a_peer_changes_are_learnt_again(rank, size):
    for step in range(6):
        rows = 2 if step % 2 == 0 or rank > 0 else 3
        gathered, sizes = sw.all_gather_v(torch.full((rows, 2), float(rank)))
        assert sizes == (2 if step % 2 == 0 else 3, *(2,) * (size - 1))
        assert torch.equal(gathered, torch.cat([torch.full((n, 2), float(r)) for r, n in enumerate(sizes)]))


@ranks(2, 3)
def test_a_peer_changes_the_length_of_a_tensor_of_one_dim(rank, size):
    """From a few bytes to more than a header carries, and back, while the other ranks' call stays the same."""
    for step, own in itertools.product(range(2), (4, 4, 7, 0, 3000, 30000, 4)):
        lengths = [own if r == 0 else 2500 + r for r in range(size)]
        want = torch.cat([torch.arange(float(n)) + r for r, n in enumerate(lengths)])
        gathered, sizes = sw.all_gather_v(torch.arange(float(lengths[rank])) + rank)
        assert list(sizes) == lengths and torch.equal(gathered, want)
        send = [[own if r == 0 and to == size - 1 else 3 + r for to in range(size)] for r in range(size)]
        arrived, _ = sw.all_to_all_v(torch.full((sum(send[rank]),), float(rank + step)), send[rank])
        want = torch.cat([torch.full((send[r][rank],), float(r + step)) for r in range(size)])
        assert torch.equal(arrived, want)


@ranks(2, 3)
def test_a_gradient_that_only_a_peer_wants_is_found_after_a_kept_call(rank, size):
    plain = torch.full((3,), rank + 1.0)
    for op in (lambda x: sw.all_gather_v(x, sizes=(3,) * size)[0], sw.all_reduce):
        for wants in (False, False, True, False, True):
            x = plain.clone().requires_grad_(wants and rank == 0)
            result = op(x)
            assert result.requires_grad == wants
            if wants:
                result.sum().backward()  # a collective
                if rank == 0:
                    assert torch.equal(x.grad, torch.full((3,), float(size)))


@ranks(2)
def test_what_is_checked_in_the_first_call_is_checked_in_a_kept_one(rank, size):
    room = torch.zeros(12)
    x, out, sizes = room[:4], torch.zeros(8), (4, 4)
    for _ in range(2):
        sw.all_gather_v(x, sizes=sizes, out=out)
    version = out._version
    sw.all_gather_v(x, sizes=sizes, out=out)
    assert out._version == version + 1
    with pytest.raises(ValueError, match="overlaps x"):
        sw.all_gather_v(x, sizes=sizes, out=room[2:10])
    with pytest.raises(ValueError, match="requires grad"):
        sw.all_gather_v(x, sizes=sizes, out=torch.zeros(8, requires_grad=True))
    with pytest.raises(ValueError, match="out has extent 7"):
        sw.all_gather_v(x, sizes=sizes, out=torch.zeros(7))
    with pytest.raises(ValueError, match="not this rank's own size"):
        sw.all_gather_v(x, sizes=(5, 3), out=out)
    sw.all_gather_v(torch.ones(4), sizes=sizes, out=out)
    assert torch.equal(out, torch.ones(8))


@ranks(2)
def test_ten_thousand_different_calls_leave_no_memory_behind(rank, size):
    def calls(numbers: range) -> None:
        for n in numbers:
            rows, columns = n % 100 + 1, n // 100 + 1
            sw.reduce_scatter_v(torch.ones(2 * rows, columns), (rows, rows))

    calls(range(2000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls(range(2000, 10000))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 8 << 10
