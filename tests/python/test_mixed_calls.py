"""Ranks in different calls, of which one may be a gradient: all raise the same, and the group goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

Step = Callable[[], Any]
SMALL, LARGE = 2, 3000  # rows: with the header, and through rings


def leaf(rows: int) -> torch.Tensor:
    return torch.ones(rows, 8, requires_grad=True)


def gather_backward(rows: int) -> Step:
    y, _ = sw.all_gather_v(leaf(rows))
    return lambda: y.sum().backward()


def swap_backward(rows: int) -> Step:
    size = dist.get_world_size()
    y, _ = sw.all_to_all_v(leaf(rows * size), (rows,) * size)
    return lambda: y.sum().backward()


def reduce_backward(rows: int) -> Step:
    y = sw.all_reduce(leaf(rows))
    return lambda: y.sum().backward()


def list_backward(rows: int) -> Step:
    ys = sw.reduce_scatter_v([leaf(rows * dist.get_world_size())])
    return lambda: ys[0].sum().backward()


def move_backward(rows: int) -> Step:
    size = dist.get_world_size()
    layout = sw.Layout((rows * size, 8), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    moved = sw.redistribute(sw.MeshTensor(leaf(rows), layout), [sw.Shard(1)])
    return lambda: moved.local.sum().backward()


def two_backwards(rows: int) -> tuple[Step, Step]:
    first, _ = sw.all_gather_v(leaf(rows))
    second, _ = sw.all_gather_v(leaf(rows))
    return (lambda: first.sum().backward(), lambda: second.sum().backward())


# name: (makes the calls of rank 1 and of the others, words of the message)
MIXED: dict[str, tuple[Callable[[int], tuple[Step, Step]], list[str]]] = {
    "forward and backward": (
        lambda rows: (lambda: sw.all_gather_v(torch.full((rows, 8), 3.0)), gather_backward(rows)),
        ["backward of all_gather_v", "on rank 0", "all_gather_v", "on rank 1"],
    ),
    "backward and forward": (
        lambda rows: (gather_backward(rows), lambda: sw.all_gather_v(torch.full((rows, 8), 3.0))),
        ["all_gather_v", "on rank 0", "backward of all_gather_v", "on rank 1"],
    ),
    "backward of another op": (
        lambda rows: (swap_backward(rows), gather_backward(rows)),
        ["backward of all_gather_v", "on rank 0", "backward of all_to_all_v", "on rank 1"],
    ),
    "backward of an earlier call": (two_backwards, ["backward of all_gather_v (call ", "on rank 0", "on rank 1"]),
    "backward of an all_reduce": (
        lambda rows: (reduce_backward(rows), lambda: sw.all_reduce(torch.ones(rows, 8))),
        ["all_reduce", "on rank 0", "backward of all_reduce", "on rank 1"],
    ),
    "backward of a list": (
        lambda rows: (list_backward(rows), lambda: sw.all_gather_v([torch.ones(rows, 8)])),
        ["all_gather_v of a list", "on rank 0", "backward of reduce_scatter_v of a list", "on rank 1"],
    ),
    "a list and its bytes": (
        lambda rows: (
            lambda: sw.all_gather_v(torch.ones(rows, dtype=torch.uint8)),
            lambda: sw.all_gather_v([torch.ones(rows, 8)]),
        ),
        ["all_gather_v of a list", "on rank 0", "all_gather_v", "on rank 1"],
    ),
    "backward of a move": (
        lambda rows: (move_backward(rows), lambda: sw.all_reduce(torch.ones(rows, 8))),
        ["all_reduce", "on rank 0", "backward of redistribute", "on rank 1"],
    ),
    "async": (
        lambda rows: (
            lambda: sw.all_reduce(torch.ones(rows, 8), async_op=True).wait(),
            gather_backward(rows),
        ),
        ["backward of all_gather_v", "on rank 0", "all_reduce", "on rank 1"],
    ),
}


# Beside those, on the backend "shardway", whose own calls meet the same boards.
WITH_TORCH: dict[str, tuple[Callable[[int], tuple[Step, Step]], list[str]]] = {
    "torch's and shardway's": (
        lambda rows: (lambda: dist.all_reduce(torch.ones(rows, 8)), lambda: sw.all_reduce(torch.ones(rows, 8))),
        ["all_reduce", "on rank 0", "torch.distributed's all_reduce", "on rank 1"],
    ),
    "torch's and a backward": (
        lambda rows: (gather_backward(rows), dist.barrier),
        ["torch.distributed's barrier", "on rank 0", "backward of all_gather_v", "on rank 1"],
    ),
}


def assert_mixed(rank: int, size: int, what: str, rows: int, mine: Step, words: list[str]) -> None:
    for _ in range(3):  # so that what is kept between calls holds old values of the same kind
        sw.all_gather_v(torch.full((rows, 8), 2.0))
    message = message_of(mine)
    assert_says(message, [r".*".join(re.escape(word) for word in words)], f"{what} ({rows} rows)")
    assert_usable(rank, size)


def assert_all_mixed(rank: int, size: int, cases: dict[str, Any]) -> None:
    for rows in (SMALL, LARGE):
        for what, (make, words) in cases.items():
            ours, others = make(rows)
            assert_mixed(rank, size, what, rows, ours if rank == 1 else others, words)


@pytest.mark.parametrize("what", MIXED)
@ranks(3, timeout_s=20)
def test_ranks_in_different_calls_all_raise_the_same(rank, size, what):
    assert_all_mixed(rank, size, {what: MIXED[what]})


@ranks(2, 3, timeout_s=40, backend="shardway")
def test_so_do_those_of_the_backend(rank, size):
    assert_all_mixed(rank, size, MIXED | WITH_TORCH)


@ranks(3, timeout_s=20)
def test_errors_say_which_numbers_ranks_have_where_that_is_a_question(rank, size):
    group = dist.new_group([0, 2])
    if rank != 1:
        with pytest.raises(ValueError, match=r"on rank 1 .ranks are those of the group, whose global ranks are 0, 2"):
            sw.all_gather_v(torch.ones(2), group=group) if rank == 0 else sw.all_reduce(torch.ones(2), group=group)
    with pytest.raises(ValueError, match=r"on rank 1$"):
        sw.all_gather_v(torch.ones(2)) if rank != 1 else sw.all_reduce(torch.ones(2))
