"""Tensors that go from any layout to any other, against a reference in one process."""

from __future__ import annotations

import os

import pytest
import torch

import shardway as sw
from tests.support.dense import memory_forms
from tests.support.mesh_reference import Layouts, same_bits
from tests.support.ranks import ranks

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def check(pair, result, rank, what=""):
    wanted = pair.output(rank)
    assert result.layout == pair.after
    if wanted is None:
        assert result.local is None, f"{pair} {what}"
    else:
        assert same_bits(result.local, wanted), f"{pair} {what}\n{result.local}\n{wanted}"


@TRANSPORTS
@ranks(2, 3, 4, 6, timeout_s=120)
def test_random_pairs_give_what_one_process_computes(rank, size, seed, transport):
    """Uneven, empty, ragged, reordered, on other meshes, of every dtype, addends of every kind; small ones travel
    beside the header, large ones by their routes."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layouts = Layouts(seed, size)
    for turn in range(400):
        pair = layouts.pair(longest=60 if turn % 16 == 0 else 7)
        local = pair.input(rank)
        kept = None if local is None else local.clone()
        t = sw.MeshTensor(local, pair.before)
        check(pair, sw.redistribute(t, pair.after), rank)
        if turn % 4 == 0:
            check(pair, sw.redistribute(t, pair.after, async_op=True).wait(), rank, "async")
        assert kept is None or same_bits(local, kept), "the input was changed"
