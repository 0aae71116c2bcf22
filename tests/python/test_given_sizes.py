"""Sizes that were given and differ between ranks, where ranks exchange nothing but messages: no value comes of it."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import run_ranks

TIMEOUT_S = 1.5


def enter_with_timeout(store: str) -> Callable[[int, int], None]:
    def enter(rank: int, size: int) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        os.environ["SHARDWAY_TRANSPORT"] = "c10d"
        timeout = datetime.timedelta(seconds=TIMEOUT_S)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timeout)

    return enter


def run(tmp_path: Any, size: int, body: Callable[..., Any]) -> list[Any]:
    def leave_last(rank: int, size: int) -> Any:
        result = body(rank, size)
        dist.destroy_process_group()  # the group is lost: nothing is to meet in it any more
        return result

    return run_ranks(size, leave_last, timeout_s=25, enter=enter_with_timeout(f"{tmp_path}/store"))


def failure_of(call: Callable[[], Any]) -> str:
    start = time.monotonic()
    try:
        result = call()
    except dist.DistBackendError as error:
        assert time.monotonic() - start < 4 * TIMEOUT_S
        return str(error)
    raise AssertionError(f"nothing was raised, but {result} came back")


# what a rank gives: rank 0 means one row more of rank 1 than that has
GIVEN: dict[str, Callable[[int], Any]] = {
    "gather": lambda rank: sw.all_gather_v(torch.ones(2, 40000), sizes=(2, 3) if rank == 0 else (2, 2)),
    "small gather": lambda rank: sw.all_gather_v(torch.ones(2, 4), sizes=(2, 3) if rank == 0 else (2, 2)),
    "swap": lambda rank: sw.all_to_all_v(torch.ones(4, 5), (2, 2), recv_sizes=(2, 3) if rank == 0 else (2, 2)),
    "reduce": lambda rank: sw.reduce_scatter_v(torch.ones(5, 3), (3, 2) if rank == 0 else (2, 3)),
    "async gather": lambda rank: sw.all_gather_v(
        torch.ones(2, 4), sizes=(2, 3) if rank == 0 else (2, 2), async_op=True
    ).wait(),
    "another op": lambda rank: (
        sw.all_gather_v(torch.ones(2, 4), sizes=(2, 2))
        if rank == 0
        else sw.all_to_all_v(torch.ones(4, 4), (2, 2), recv_sizes=(2, 2))
    ),
}


@pytest.mark.parametrize("what", GIVEN)
def test_sizes_that_differ_end_in_an_error_that_names_the_peer(tmp_path, what):
    def body(rank: int, size: int) -> None:
        for _ in range(3):
            sw.all_gather_v(torch.full((2, 4), 7.0), sizes=(2, 2))
        failure = failure_of(lambda: GIVEN[what](rank))
        assert f"rank {1 - rank} could not be reached" in failure, failure
        assert "SHARDWAY_CHECK=1" in failure, failure
        start = time.monotonic()
        later = failure_of(lambda: sw.all_gather_v(torch.ones(2, 4), sizes=(2, 2)))
        assert time.monotonic() - start < TIMEOUT_S
        assert "cannot be used any more" in later and f"rank {1 - rank}" in later, later

    run(tmp_path, 2, body)


def test_a_gradient_that_meets_a_call_ends_so_too(tmp_path):
    def body(rank: int, size: int) -> None:
        x = torch.ones(2, 4, requires_grad=True)
        y, _ = sw.all_gather_v(x, sizes=(2, 2))
        if rank == 0:
            failure = failure_of(lambda: y.sum().backward())
        else:
            failure = failure_of(lambda: sw.reduce_scatter_v(torch.ones(4, 4), (2, 2)))
        assert f"rank {1 - rank} could not be reached" in failure, failure

    run(tmp_path, 2, body)


def test_right_sizes_go_on_through_disagreements_and_async_calls(tmp_path):
    def body(rank: int, size: int) -> None:
        for turn in range(20):
            sizes = tuple((r + turn) % 3 for r in range(size))
            x = torch.full((sizes[rank], 3), float(turn), requires_grad=True)
            late = sw.all_reduce(torch.ones(2), async_op=True)
            y, _ = sw.all_gather_v(x, sizes=sizes)
            assert torch.equal(y, torch.full((sum(sizes), 3), float(turn)))
            y.sum().backward()
            assert torch.equal(x.grad, torch.full_like(x, float(size)))
            assert float(late.wait()[0]) == size
            with pytest.raises(ValueError, match="ranks disagree on dtype"):
                sw.all_gather_v(x.detach().double() if rank == 0 else x.detach())
            with pytest.raises(ValueError, match="sizes has 1 entries"):  # each sees it by itself
                sw.all_gather_v(x, sizes=(1,))

    run(tmp_path, 3, body)


@pytest.mark.parametrize("word", ["1", "true", "on", "yes", "True"])
def test_checks_compare_what_was_given(tmp_path, word):
    def body(rank: int, size: int) -> None:
        os.environ["SHARDWAY_CHECK"] = word
        with pytest.raises(ValueError, match="ranks disagree on sizes"):
            GIVEN["gather"](rank) if rank else sw.all_gather_v(torch.ones(2, 40000), sizes=(2, 3))
        x = torch.ones(2, 4, requires_grad=True)
        y, _ = sw.all_gather_v(x, sizes=(2, 2))
        z = sw.all_reduce(x)
        with pytest.raises(ValueError, match=r"backward of all_gather_v.*rank 0, backward of all_reduce.*rank 1"):
            (y if rank == 0 else z).sum().backward()
        y.sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, 2.0))

    run(tmp_path, 2, body)


def test_a_word_that_means_neither_yes_nor_no_is_refused(tmp_path):
    def body(rank: int, size: int) -> None:
        os.environ["SHARDWAY_CHECK"] = "perhaps"
        with pytest.raises(ValueError, match="SHARDWAY_CHECK=perhaps"):
            sw.all_gather_v(torch.ones(2), sizes=(2, 2))
        for word in ("", "0", "false", "off", "no"):
            os.environ["SHARDWAY_CHECK"] = word
            sw.all_gather_v(torch.ones(2), sizes=(2, 2))

    run(tmp_path, 2, body)
