"""Ranks that disagree, or one of which gives wrong sizes: all are told, with the values of both sides."""

from __future__ import annotations

import os

import pytest
import torch

import shardway as sw
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

SIX = (6, 3)


def good():
    return torch.ones(2, 3)


# what differs: (the call on rank 2, the call on the others, words of the message)
DISAGREEMENTS = {
    "gather: dtype": (
        lambda: sw.all_gather_v(good().double()),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v: ranks disagree on dtype: float32 on rank 0, float64 on rank 2"],
    ),
    "gather: number of dims": (
        lambda: sw.all_gather_v(torch.ones(2, 3, 1)),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "disagree", r"\b2\b.* on rank 0", r"\b3\b.* on rank 2"],
    ),
    "gather: another dim": (
        lambda: sw.all_gather_v(torch.ones(2, 4)),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "disagree", r"\b3\b.* on rank 0", r"\b4\b.* on rank 2"],
    ),
    "gather: dim": (
        lambda: sw.all_gather_v(good(), 1),
        lambda: sw.all_gather_v(good(), 0),
        ["all_gather_v", "disagree on dim", "0 on rank 0", "1 on rank 2"],
    ),
    "gather: grad mode": (
        lambda: sw.all_gather_v(good(), grad="local"),
        lambda: sw.all_gather_v(good(), grad="sum"),
        ["all_gather_v", "disagree on grad", "sum on rank 0", "local on rank 2"],
    ),
    "reduce: dtype": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX, dtype=torch.bfloat16)),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "disagree on dtype", "float32 on rank 0", "bfloat16 on rank 2"],
    ),
    "reduce: op": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), op="max"),
        lambda: sw.reduce_scatter_v(torch.ones(SIX), op="sum"),
        ["reduce_scatter_v", "disagree on op", "sum on rank 0", "max on rank 2"],
    ),
    "reduce: length along dim": (
        lambda: sw.reduce_scatter_v(torch.ones(7, 3)),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "disagree", r"\b6\b.* on rank 0", r"\b7\b.* on rank 2"],
    ),
    "reduce: another dim": (
        lambda: sw.reduce_scatter_v(torch.ones(6, 4)),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "disagree", r"\b3\b.* on rank 0", r"\b4\b.* on rank 2"],
    ),
    "reduce: number of dims": (
        lambda: sw.reduce_scatter_v(torch.ones(6, 3, 1)),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "disagree", r"\b2\b.* on rank 0", r"\b3\b.* on rank 2"],
    ),
    "swap: dtype": (
        lambda: sw.all_to_all_v(torch.ones(SIX, dtype=torch.int32), (2, 2, 2)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "disagree on dtype", "float32 on rank 0", "int32 on rank 2"],
    ),
    "swap: another dim": (
        lambda: sw.all_to_all_v(torch.ones(6, 4), (2, 2, 2)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "disagree", r"\b3\b.* on rank 0", r"\b4\b.* on rank 2"],
    ),
    "swap: dim": (
        lambda: sw.all_to_all_v(torch.ones(6, 6), (2, 2, 2), 1),
        lambda: sw.all_to_all_v(torch.ones(6, 6), (2, 2, 2), 0),
        ["all_to_all_v", "disagree on dim", "0 on rank 0", "1 on rank 2"],
    ),
    "two different ops": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        lambda: sw.all_gather_v(torch.ones(SIX)),
        ["different", "all_gather_v on rank 0", "all_to_all_v on rank 2"],
    ),
}


@ranks(3)
def test_a_disagreement_is_the_same_error_on_every_rank_with_both_sides_values(rank, size):
    for name, (other, usual, words) in DISAGREEMENTS.items():
        message = message_of(other if rank == 2 else usual)
        assert_says(message, words, name)
        assert_usable(rank, size)


def compare_every_call(transport):
    """In shared memory calls are always compared, on c10d when asked."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    if transport == "c10d":
        os.environ["SHARDWAY_CHECK"] = "1"


# with sizes given: (the call on rank 1, words of the message there)
WRONG_SIZES = {
    "gather: sizes of the wrong length": (
        lambda: sw.all_gather_v(good(), sizes=(2, 2)),
        ["all_gather_v", "sizes", "2", "3"],
    ),
    "gather: a negative size": (lambda: sw.all_gather_v(good(), sizes=(2, 2, -1)), ["all_gather_v", "sizes", "-1"]),
    "gather: not this rank's own size": (
        lambda: sw.all_gather_v(good(), sizes=(2, 4, 2)),
        ["all_gather_v", "sizes", r"\b4\b", r"\b2\b"],
    ),
    "gather: dim out of range": (lambda: sw.all_gather_v(good(), 5, sizes=(2, 2, 2)), ["all_gather_v", "dim=5", "2-d"]),
    "gather: out of the wrong shape": (
        lambda: sw.all_gather_v(good(), sizes=(2, 2, 2), out=torch.empty(6, 4)),
        ["all_gather_v", "out", "6, 4", r"\b3\b"],
    ),
    "gather: out overlaps the input": (
        lambda: (lambda room: sw.all_gather_v(room[:2], sizes=(2, 2, 2), out=room[1:7]))(torch.ones(9, 3)),
        ["all_gather_v", "out", "overlap"],
    ),
    "reduce: sizes of the wrong length": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), (3, 3)),
        ["reduce_scatter_v", "sizes", "2", "3"],
    ),
    "reduce: a negative size": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), (8, -2, 0)),
        ["reduce_scatter_v", "sizes", "-2"],
    ),
    "reduce: sizes that do not add up": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), (2, 2, 1)),
        ["reduce_scatter_v", "sizes", r"\b5\b", r"\b6\b"],
    ),
    "swap: recv_sizes of the wrong length": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2), recv_sizes=(6,)),
        ["all_to_all_v", "recv_sizes", "1", "3"],
    ),
    "swap: a negative recv size": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2), recv_sizes=(2, 2, -4)),
        ["all_to_all_v", "recv_sizes", "-4"],
    ),
    "swap: recv_sizes that gainsay what this rank sends itself": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2), recv_sizes=(2, 3, 2)),
        ["all_to_all_v", "recv_sizes", r"\b3\b", r"\b2\b"],
    ),
}


@ranks(3)
def test_wrong_sizes_are_refused_where_they_are_given(rank, size):
    """On c10d nothing is exchanged, so only the rank at fault can know: it raises before it communicates."""
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    for name, (wrong, words) in WRONG_SIZES.items():
        if rank == 1:
            with pytest.raises(ValueError) as raised:
                wrong()
            assert_says(str(raised.value), [*words, "rank 1"], name)
    assert_usable(rank, size)


@ranks(3)
@pytest.mark.parametrize("transport", ["shm", "c10d"])
def test_where_calls_are_compared_wrong_sizes_are_the_same_error_on_every_rank(rank, size, transport):
    compare_every_call(transport)
    right = {
        "gather": lambda: sw.all_gather_v(good(), sizes=(2, 2, 2)),
        "reduce": lambda: sw.reduce_scatter_v(torch.ones(SIX), (2, 2, 2)),
        "swap": lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2), recv_sizes=(2, 2, 2)),
    }
    for name, (wrong, words) in WRONG_SIZES.items():
        message = message_of(wrong if rank == 1 else right[name.split(":")[0]])
        assert_says(message, [*words, "rank 1"], name)
        assert_usable(rank, size)


@ranks(3)
@pytest.mark.parametrize("transport", ["shm", "c10d"])
def test_where_calls_are_compared_ranks_that_disagree_with_sizes_given_are_told(rank, size, transport):
    compare_every_call(transport)
    odd = rank == 2
    calls = {
        "dtype: float32 on rank 0, float64 on rank 2": lambda: sw.all_gather_v(
            good().double() if odd else good(), sizes=(2, 2, 2)
        ),
        r"disagree.*\b3\b.* on rank 0.*\b4\b.* on rank 2": lambda: sw.all_gather_v(
            torch.ones(2, 4 if odd else 3), sizes=(2, 2, 2)
        ),
        "op: sum on rank 0, avg on rank 2": lambda: sw.reduce_scatter_v(
            torch.ones(SIX), (2, 2, 2), op="avg" if odd else "sum"
        ),
        r"sizes.*2, 2, 2.* on rank 0.*1, 3, 2.* on rank 2": lambda: sw.reduce_scatter_v(
            torch.ones(SIX), (1, 3, 2) if odd else (2, 2, 2)
        ),
        r"all_gather_v.*sizes.*3.* on rank 0.*2.* on rank 2": lambda: sw.all_gather_v(
            good(), sizes=(2, 2, 2) if odd else (2, 2, 3)
        ),
        r"all_to_all_v.*rank 0.*rank 2": lambda: sw.all_to_all_v(
            torch.ones(SIX), (2, 2, 2), recv_sizes=(4, 2, 2) if odd else (2, 2, 2)
        ),
    }
    for pattern, call in calls.items():
        message = message_of(call)
        assert_says(message, [pattern], "sizes given")
        assert_usable(rank, size)


@ranks(3)
def test_the_messages_read_as_documented(rank, size):
    one, two = rank == 1, rank == 2
    expected = {
        "all_gather_v: dim=3 is out of range for a 2-d tensor (rank 1)": lambda: sw.all_gather_v(
            good(), 3 if one else 0
        ),
        "all_gather_v: grad='average' is not one of sum, mean, local (rank 1)": lambda: sw.all_gather_v(
            good(), grad="average" if one else "sum"
        ),
        "all_gather_v: ranks disagree on dtype: float32 on rank 0, float64 on rank 2": lambda: sw.all_gather_v(
            good().double() if two else good()
        ),
        "all_gather_v: ranks disagree on shape: (*, 3) on rank 0, (*, 4) on rank 2": lambda: sw.all_gather_v(
            torch.ones(2, 4 if two else 3)
        ),
        "all_gather_v: ranks disagree on dim: 0 on rank 0, 1 on rank 2": lambda: sw.all_gather_v(good(), int(two)),
        "reduce_scatter_v: ranks disagree on op: sum on rank 0, max on rank 2": lambda: sw.reduce_scatter_v(
            torch.ones(SIX), op="max" if two else "sum"
        ),
        "all_to_all_v: send_sizes add up to 5, but x has 6 along dim 0 (rank 1)": lambda: sw.all_to_all_v(
            torch.ones(SIX), (2, 2, 1) if one else (2, 2, 2)
        ),
    }
    for message, call in expected.items():
        assert message_of(call) == message
        assert_usable(rank, size)
