"""Every mistake is a ValueError that names the op, the value, the limit and the rank, on every rank alike."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import shardway as sw
from tests.support.dense import Draw, assert_same_bits
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

SIX = (6, 3)


def good():
    return torch.ones(2, 3)


def sparse():
    return good().to_sparse()


def quantised():
    return torch.quantize_per_tensor(good(), 0.1, 0, torch.qint8)


def overlapping():
    """An input and an out that share memory."""
    room = torch.ones(100)
    return room[:6].view(2, 3), room[3:21].view(6, 3)


def gather_into_overlap(**options):
    x, out = overlapping()
    return sw.all_gather_v(x, out=out, **options)


def reduce_into_overlap():
    room = torch.ones(100)
    return sw.reduce_scatter_v(room[:18].view(6, 3), out=room[3:9].view(2, 3))


def swap_into_overlap():
    room = torch.ones(100)
    return sw.all_to_all_v(room[:18].view(6, 3), (2, 2, 2), out=room[3:21].view(6, 3))


# what is wrong: (the call on the rank at fault, the call on the others, words of the message)
MISTAKES = {
    "gather: dim too large": (
        lambda: sw.all_gather_v(good(), 2),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "dim=2", "2-d", "rank 1"],
    ),
    "gather: dim too negative": (
        lambda: sw.all_gather_v(good(), -3),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "dim=-3", "2-d", "rank 1"],
    ),
    "gather: 0-d tensor": (
        lambda: sw.all_gather_v(torch.tensor(1.0)),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "0-d", "rank 1"],
    ),
    "gather: unknown grad mode": (
        lambda: sw.all_gather_v(good(), grad="average"),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "average", "sum", "local", "mean", "rank 1"],
    ),
    "gather: out of the wrong shape": (
        lambda: sw.all_gather_v(good(), out=torch.empty(5, 3)),
        lambda: sw.all_gather_v(good(), out=torch.empty(6, 3)),
        ["all_gather_v", "out", r"\b5\b", r"\b6\b", "rank 1"],
    ),
    "gather: out of the wrong dtype": (
        lambda: sw.all_gather_v(good(), out=torch.empty(6, 3, dtype=torch.float64)),
        lambda: sw.all_gather_v(good(), out=torch.empty(6, 3)),
        ["all_gather_v", "out", "float64", "float32", "rank 1"],
    ),
    "gather: out on the wrong device": (
        lambda: sw.all_gather_v(good(), out=torch.empty(6, 3, device="meta")),
        lambda: sw.all_gather_v(good(), out=torch.empty(6, 3)),
        ["all_gather_v", "out", "meta", "cpu", "rank 1"],
    ),
    "gather: out overlaps the input": (
        gather_into_overlap,
        lambda: sw.all_gather_v(good(), out=torch.empty(6, 3)),
        ["all_gather_v", "out", "overlap", "rank 1"],
    ),
    "gather: out overlaps itself": (
        lambda: sw.all_gather_v(good(), out=torch.empty(1, 3).expand(6, 3)),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "out", "overlap", "rank 1"],
    ),
    "gather: out requires grad": (
        lambda: sw.all_gather_v(good(), out=torch.empty(6, 3, requires_grad=True)),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "out", "requires grad", "rank 1"],
    ),
    "gather: x is no tensor": (
        lambda: sw.all_gather_v([1.0, 2.0]),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "list", "tensor", "rank 1"],
    ),
    "gather: dim is no integer": (
        lambda: sw.all_gather_v(good(), 0.5),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "dim=0.5", "rank 1"],
    ),
    "gather: too many dims": (
        lambda: sw.all_gather_v(torch.ones([1] * 17)),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "17", "16", "rank 1"],
    ),
    "gather: the meta device": (
        lambda: sw.all_gather_v(torch.empty(2, 3, device="meta")),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "meta", "rank 1"],
    ),
    "gather: sparse": (
        lambda: sw.all_gather_v(sparse()),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "(?i)sparse", "rank 1"],
    ),
    "gather: quantised": (
        lambda: sw.all_gather_v(quantised()),
        lambda: sw.all_gather_v(good()),
        ["all_gather_v", "(?i)quanti[sz]ed|qint8", "rank 1"],
    ),
    "reduce: dim too large": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), dim=2),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "dim=2", "2-d", "rank 1"],
    ),
    "reduce: 0-d tensor": (
        lambda: sw.reduce_scatter_v(torch.tensor(1.0)),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "0-d", "rank 1"],
    ),
    "reduce: unknown op": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), op="median"),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "median", "sum", "avg", "rank 1"],
    ),
    "reduce: a ReduceOp that is none of ours": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), op=dist.ReduceOp.BAND),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "BAND", "sum", "avg", "rank 1"],
    ),
    "reduce: a number for the op": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), op=3),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "op=.*3", "rank 1"],
    ),
    "reduce: avg of integers": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX, dtype=torch.int64), op="avg"),
        lambda: sw.reduce_scatter_v(torch.ones(SIX, dtype=torch.int64)),
        ["reduce_scatter_v", "avg", "int64", "rank 1"],
    ),
    "reduce: min of complex numbers": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX, dtype=torch.complex64), op="min"),
        lambda: sw.reduce_scatter_v(torch.ones(SIX, dtype=torch.complex64)),
        ["reduce_scatter_v", "min", "complex", "rank 1"],
    ),
    "reduce: float8": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX).to(torch.float8_e4m3fn)),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "float8_e4m3fn", "rank 1"],
    ),
    "reduce: out of the wrong shape": (
        lambda: sw.reduce_scatter_v(torch.ones(SIX), out=torch.empty(3, 3)),
        lambda: sw.reduce_scatter_v(torch.ones(SIX), out=torch.empty(2, 3)),
        ["reduce_scatter_v", "out", r"\b3\b", r"\b2\b", "rank 1"],
    ),
    "reduce: out overlaps the input": (
        reduce_into_overlap,
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "out", "overlap", "rank 1"],
    ),
    "reduce: sparse": (
        lambda: sw.reduce_scatter_v(sparse()),
        lambda: sw.reduce_scatter_v(torch.ones(SIX)),
        ["reduce_scatter_v", "(?i)sparse", "rank 1"],
    ),
    "swap: dim too large": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2), 2),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "dim=2", "2-d", "rank 1"],
    ),
    "swap: 0-d tensor": (
        lambda: sw.all_to_all_v(torch.tensor(1.0), (2, 2, 2)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "0-d", "rank 1"],
    ),
    "swap: send_sizes of the wrong length": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (3, 3)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "send_sizes", "2", "3", "rank 1"],
    ),
    "swap: a negative send size": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (8, -2, 0)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "send_sizes", "-2", "rank 1"],
    ),
    "swap: send_sizes that do not add up": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 1)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "send_sizes", "5", "6", "rank 1"],
    ),
    "swap: out of the wrong shape": (
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2), out=torch.empty(7, 3)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "out", r"\b7\b", r"\b6\b", "rank 1"],
    ),
    "swap: out overlaps the input": (
        swap_into_overlap,
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "out", "overlap", "rank 1"],
    ),
    "swap: quantised": (
        lambda: sw.all_to_all_v(quantised(), (2, 0, 0)),
        lambda: sw.all_to_all_v(torch.ones(SIX), (2, 2, 2)),
        ["all_to_all_v", "(?i)quanti[sz]ed|qint8", "rank 1"],
    ),
    "sizes: dim too large": (
        lambda: sw.gather_sizes(good(), 2),
        lambda: sw.gather_sizes(good()),
        ["gather_sizes", "dim=2", "2-d", "rank 1"],
    ),
    "sizes: 0-d tensor": (
        lambda: sw.gather_sizes(torch.tensor(1.0)),
        lambda: sw.gather_sizes(good()),
        ["gather_sizes", "0-d", "rank 1"],
    ),
}


@ranks(3)
def test_a_mistake_on_one_rank_is_the_same_error_on_every_rank_and_the_group_lives_on(rank, size):
    for name, (wrong, right, words) in MISTAKES.items():
        message = message_of(wrong if rank == 1 else right)
        assert_says(message, words, name)
        assert_usable(rank, size)


@ranks(3)
def test_a_mistake_on_every_rank_is_the_same_error_on_every_rank(rank, size):
    for name, (wrong, _, words) in MISTAKES.items():
        message = message_of(wrong)
        assert_says(message, words[:-1], name)
        assert_usable(rank, size)


@ranks(3)
def test_of_several_mistakes_every_rank_hears_of_the_first_ranks(rank, size):
    dims = [0, 7, -8]
    assert message_of(lambda: sw.all_gather_v(good(), dims[rank])) == (
        "all_gather_v: dim=7 is out of range for a 2-d tensor (rank 1)"
    )
    assert_usable(rank, size)


@ranks(3)
def test_an_async_call_with_a_mistake_raises_at_once(rank, size):
    assert message_of(lambda: sw.all_gather_v(good(), 3 if rank == 1 else 0, async_op=True)) == (
        "all_gather_v: dim=3 is out of range for a 2-d tensor (rank 1)"
    )
    assert_usable(rank, size)


@ranks(3)
def test_sizes_that_add_up_to_more_than_64_bits_are_refused(rank, size):
    huge = torch.empty(2**62, 0)
    assert_says(message_of(lambda: sw.all_gather_v(huge)), ["all_gather_v", "2\\^63"], "a sum over 64 bits")
    assert_usable(rank, size)


@ranks(3)
def test_a_group_that_this_rank_is_not_in_is_refused(rank, size):
    others = dist.new_group([0, 1])
    if rank == 2:
        for call in (
            lambda: sw.all_gather_v(good(), group=others),
            lambda: sw.reduce_scatter_v(torch.ones(SIX), group=others),
            lambda: sw.all_to_all_v(torch.ones(SIX), (3, 3), group=others),
            lambda: sw.gather_sizes(good(), group=others),
            lambda: sw.all_reduce(good(), group=others),
            lambda: sw.broadcast(good(), group=others),
            lambda: sw.gather_v(good(), group=others),
            lambda: sw.scatter_v(good(), group=others),
        ):
            with pytest.raises(ValueError, match=r"group.*rank 2"):
                call()
    assert_usable(rank, size)


@ranks(2)
def test_what_is_no_group_is_refused(rank, size):
    for group in ("no such group", 7, object(), (1, 2)):
        with pytest.raises((ValueError, TypeError), match="group"):
            sw.all_gather_v(good(), group=group)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    for group in (mesh, (mesh, "no such dim"), (mesh, 2)):
        with pytest.raises(ValueError):
            sw.all_gather_v(good(), group=group)
    assert_usable(rank, size)


@ranks(3)
def test_an_input_is_unchanged_after_a_refusal(rank, size):
    x = Draw(rank).tensor((2, 3))
    kept = x.clone()
    message_of(lambda: sw.all_gather_v(x, 0 if rank else 9))
    assert_same_bits(x, kept)


BAD_WITHOUT_A_GROUP = {
    "dim": (lambda: sw.all_gather_v(good(), 2), r"all_gather_v.*dim=2.*2-d"),
    "0-d": (lambda: sw.all_gather_v(torch.tensor(1.0)), r"all_gather_v.*0-d"),
    "grad": (lambda: sw.all_gather_v(good(), grad="average"), r"all_gather_v.*average"),
    "sizes length": (lambda: sw.all_gather_v(good(), sizes=(2, 2)), r"all_gather_v.*sizes"),
    "own size": (lambda: sw.all_gather_v(good(), sizes=(3,)), r"all_gather_v.*sizes"),
    "op": (lambda: sw.reduce_scatter_v(good(), op="median"), r"reduce_scatter_v.*median"),
    "reduce sizes": (lambda: sw.reduce_scatter_v(good(), (3,)), r"reduce_scatter_v.*sizes"),
    "send sizes": (lambda: sw.all_to_all_v(good(), (1,)), r"all_to_all_v.*send_sizes"),
}


@pytest.mark.parametrize("mistake", BAD_WITHOUT_A_GROUP)
def test_mistakes_are_refused_without_a_group_too(mistake):
    call, pattern = BAD_WITHOUT_A_GROUP[mistake]
    with pytest.raises(ValueError, match=pattern):
        call()


@ranks(2)
def test_a_group_in_the_place_of_something_else_is_asked_about(rank, size):
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
    x = good()
    for group, shown in (
        (dist.group.WORLD, "is a ProcessGroup"),
        (mesh, "is a DeviceMesh"),
        ((mesh, "dp"), "is a tuple"),
        ("dp", "='dp' is not a 64-bit integer"),
    ):
        for op, place, call in (
            ("all_gather_v", "dim", lambda g: sw.all_gather_v(x, g)),
            ("all_gather_v", "dim", lambda g: sw.all_gather_v([x], g)),
            ("gather_sizes", "dim", lambda g: sw.gather_sizes(x, g)),
            ("broadcast", "src", lambda g: sw.broadcast(x, g)),
            ("gather_v", "dst", lambda g: sw.gather_v(x, g)),
            ("scatter_v", "src", lambda g: sw.scatter_v(x, g)),
            ("all_to_all_v", "send_sizes", lambda g: sw.all_to_all_v(x, g)),
            ("reduce_scatter_v", "sizes", lambda g: sw.reduce_scatter_v(x, g)),
            ("reduce_scatter_v", "sizes", lambda g: sw.reduce_scatter_v([x], g)),
        ):
            message = message_of(lambda: call(group))  # noqa: B023
            assert message.startswith(f"{op}: {place}"), message
            assert message.endswith(": did you mean group=? (rank 0)"), message
            if not place.endswith("sizes"):
                assert shown in message
    assert_says(message_of(lambda: sw.all_gather_v(x, 1.5)), [r"dim=1\.5 is not a 64-bit integer \(rank 0\)$"], "1.5")
    assert_usable(rank, size)
