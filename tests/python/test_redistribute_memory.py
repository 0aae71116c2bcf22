"""How much memory a redistribute takes at its peak, as the kernel counts it."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest
import torch

import shardway as sw
from tests.support.ranks import ranks

MIB = 1 << 20
LOCAL = 8 * MIB  # bytes that each rank holds, before and after
SLACK = 3 * MIB // 2  # rings and what an allocator rounds up
M_PERTURB = -6  # of mallopt: fresh memory is filled, and so counts before anybody uses it

# In shared memory nothing but the result, on gloo one buffer for the messages as well.
TRANSPORTS = pytest.mark.parametrize(("transport", "buffers"), [("shm", 0), ("c10d", 1)])


def resident(what: str) -> int:
    """VmRSS, or VmHWM for the most since the last reset, in bytes."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def peak_above_the_input(t, placements) -> int:
    assert ctypes.CDLL(None).mallopt(M_PERTURB, 0)
    sw.redistribute(t, placements)  # what is made once: rings, plans, mappings of peers
    sw.empty_cache()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    result = sw.redistribute(t, placements)
    assert result.local is not None
    return resident("VmHWM") - before


def rows_and_columns(shape, mesh, before):
    layout = sw.Layout(shape, torch.float32, mesh, before)
    rank = torch.distributed.get_rank()
    return sw.MeshTensor(torch.full(layout.box(rank)[1], float(rank)), layout)


@TRANSPORTS
@ranks(4)
def test_blocks_that_change_places_take_their_result_alone(rank, size, transport, buffers):
    """(S0,S1) to (S1,S0) on 2x2."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    t = rows_and_columns((2048, 4096), sw.Mesh((2, 2)), [sw.Shard(0), sw.Shard(1)])
    assert peak_above_the_input(t, [sw.Shard(1), sw.Shard(0)]) < (1 + buffers) * LOCAL + SLACK


@TRANSPORTS
@ranks(8, timeout_s=120)
def test_shards_of_another_dim_take_their_result_alone(rank, size, transport, buffers):
    """(S0,S0,S0) to (S1,S1,S1) on 2x2x2."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    t = rows_and_columns((4096, 4096), sw.Mesh((2, 2, 2)), [sw.Shard(0)] * 3)
    assert peak_above_the_input(t, [sw.Shard(1)] * 3) < (1 + buffers) * LOCAL + SLACK


@TRANSPORTS
@ranks(2, 4)
def test_sums_in_place_take_their_result_alone(rank, size, transport, buffers):
    """P to R: every rank's share lands in its place in the result."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    t = rows_and_columns((1024, 2048), sw.Mesh((size,)), [sw.Partial()])
    assert peak_above_the_input(t, [sw.Replicate()]) < (1 + buffers) * LOCAL + SLACK
