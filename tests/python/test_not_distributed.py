"""A call that sees one rank where the environment promises more says so."""

from __future__ import annotations

import os
import warnings

import pytest
import torch

import shardway as sw
from shardway import _groups
from shardway.compat import musiclm, spear_tts
from tests.support.ranks import ranks

X = torch.ones(2, 3)
CALLS = {
    "all_gather_v": lambda: sw.all_gather_v(X),
    "reduce_scatter_v": lambda: sw.reduce_scatter_v([X]),
    "all_to_all_v": lambda: sw.all_to_all_v(X, [2]),
    "all_reduce": lambda: sw.AllReduce()(X),
    "broadcast": lambda: sw.broadcast(X),
    "gather_v": lambda: sw.gather_v(X, async_op=True).wait(),
    "scatter_v": lambda: sw.scatter_v(X),
    "gather_sizes": lambda: sw.gather_sizes(X),
    "split_by_rank": lambda: sw.split_by_rank([X]),
    "distribute": lambda: sw.distribute(X, sw.Mesh((1,)), [sw.Shard(0)]),
    "all_gather": lambda: spear_tts.all_gather(X, 0, None),
    "AllGather": lambda: musiclm.AllGather(0)(X),
}


@pytest.fixture(autouse=True)
def not_warned(monkeypatch):
    monkeypatch.setattr(_groups, "_has_warned", False)


def said(call):
    """The warnings of a call that is made twice, each in the place where it points to."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
        call()
    return found


@pytest.mark.parametrize("op", CALLS)
def test_the_first_call_without_a_group_warns_once(op, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    (warning,) = said(CALLS[op])
    assert issubclass(warning.category, RuntimeWarning)
    assert str(warning.message) == (
        f"{op}: WORLD_SIZE=4 is set, but torch.distributed is not initialised: this call, and those after it, see one "
        f"rank and give their input back; call torch.distributed.init_process_group first"
    )
    assert warning.filename == __file__


def test_a_compiled_call_warns_too(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    compiled = torch.compile(lambda x: sw.all_reduce(x), fullgraph=True, backend="eager")
    (warning,) = said(lambda: compiled(X))
    assert "all_reduce: WORLD_SIZE=2" in str(warning.message)


@pytest.mark.parametrize("size", [None, "1", "", "many"])
def test_a_program_of_one_rank_is_not_warned(size, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    for call in CALLS.values():
        assert not said(call)


def test_a_tensor_on_a_mesh_can_be_looked_at_without_a_word(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    layout = sw.Layout((2, 3), torch.float32, sw.Mesh((1,)), [sw.Replicate()])
    assert not said(lambda: sw.MeshTensor(X, layout))


@ranks(2)
def test_ranks_with_a_group_are_not_warned(rank, size):
    os.environ["WORLD_SIZE"] = str(size)
    assert not said(lambda: sw.all_reduce(X))
