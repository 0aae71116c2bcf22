"""Counts and bytes above 2^31 in one call. They take 12 GiB and half a minute: `make large`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import run_ranks

LIMIT = 2**31
NEEDED_KIB = 14 << 20
LIMIT_S = 900  # ranks of an all-reduce go in step: where others want the cores, 8 s become minutes


def _available_kib() -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0])


pytestmark = [
    pytest.mark.skipif(not os.environ.get("SHARDWAY_LARGE"), reason="takes 12 GiB: make large"),
    pytest.mark.skipif(_available_kib() < NEEDED_KIB, reason=f"takes {NEEDED_KIB >> 20} GiB of free memory"),
]


def _marked(count, marks):
    """Zeros, but for the marks: elements by index."""
    x = torch.zeros(count, dtype=torch.int8)
    for at, value in marks.items():
        x[at] = value
    return x


def _is_marked(x, marks):
    return all(int(x[at]) == value for at, value in marks.items()) and int(x.count_nonzero()) == len(marks)


def _gather(rank, size):
    """More elements than 32 bits count, in the result and on one rank."""
    sizes = (LIMIT + 5, 7)
    mine = _marked(sizes[rank], {0: rank + 1, sizes[rank] - 1: rank + 3})
    all_, found = sw.all_gather_v(mine)
    assert found == sizes
    assert _is_marked(all_, {0: 1, LIMIT + 4: 3, LIMIT + 5: 2, LIMIT + 11: 4})


def _reduce_scatter(rank, size):
    sizes = (LIMIT + 3, 2)
    x = _marked(sum(sizes), {0: 1, LIMIT + 2: 2, LIMIT + 4: 3})
    mine = sw.reduce_scatter_v(x, sizes)
    assert len(mine) == sizes[rank]
    assert _is_marked(mine, {0: 2, LIMIT + 2: 4} if rank == 0 else {1: 6})


def _all_reduce_of_the_backend(rank, size):
    x = _marked(LIMIT + 9, {1: 1 + rank, LIMIT + 8: 2 + rank})
    dist.all_reduce(x)
    assert _is_marked(x, {1: 3, LIMIT + 8: 5})


def _exchange(rank, size):
    """Everything goes to the other rank."""
    count = LIMIT + 1 + rank
    x = _marked(count, {0: 1 + rank, count - 1: 3 + rank})
    found, sizes = sw.all_to_all_v(x, [0, count] if rank == 0 else [count, 0])
    theirs = LIMIT + 2 - rank
    assert sizes == ((0, theirs) if rank == 0 else (theirs, 0))
    assert _is_marked(found, {0: 2 - rank, theirs - 1: 4 - rank})


def _wide_elements(rank, size):
    """Fewer elements than 2^31, in more bytes."""
    count = LIMIT // 8 + 3
    x = torch.zeros(count, dtype=torch.float64)
    x[-1] = rank + 1
    total = sw.all_reduce(x)
    assert float(total[-1]) == 3.0 and int(total.count_nonzero()) == 1


@pytest.mark.parametrize("transport", ["shm", "c10d"])
@pytest.mark.parametrize("body", [_gather, _reduce_scatter, _exchange, _wide_elements], ids=lambda f: f.__name__[1:])
def test_more_than_two_to_the_31(body, transport, monkeypatch):
    monkeypatch.setenv("SHARDWAY_TRANSPORT", transport)
    run_ranks(2, body, timeout_s=LIMIT_S)


def test_more_than_two_to_the_31_on_the_backend():
    run_ranks(2, _all_reduce_of_the_backend, timeout_s=LIMIT_S, backend="shardway")
