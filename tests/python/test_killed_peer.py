"""A peer that is killed, in shared memory: every survivor is told within a second, and at once from then on."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.faults.leftovers import names_in_shared_memory
from tests.support.ranks import run_ranks

LARGE = 2**20  # elements
DEAD = r"rank 1 could not be reached: its process ended \(rank \d\)$"


def _calls(large: bool) -> dict[str, object]:
    rows = LARGE if large else 3
    return {
        "all_gather_v": lambda: sw.all_gather_v(torch.ones(rows)),
        "all_gather_v, sizes given": lambda: sw.all_gather_v(torch.ones(rows), sizes=[rows] * 3),
        "reduce_scatter_v": lambda: sw.reduce_scatter_v(torch.ones(3 * rows)),
        "all_to_all_v": lambda: sw.all_to_all_v(torch.ones(3 * rows), [rows] * 3),
        "all_gather_v, shared": lambda: sw.all_gather_v(sw.empty(rows).fill_(1)),
        "all_gather_v, async": lambda: sw.all_gather_v(torch.ones(rows), sizes=[rows] * 3, async_op=True).wait(),
    }


def _run_until_told(rank, size, name, large, in_flight):
    call = _calls(large)[name]
    for _ in range(3):
        call()
    if rank == 1:
        if not in_flight:
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    with pytest.raises(dist.DistBackendError, match=f"^{name.split(',')[0]}: {DEAD}"):
        while True:
            start = time.monotonic()
            call()
    assert time.monotonic() - start < 5.0, "told too late"
    start = time.monotonic()
    for _ in range(3):
        with pytest.raises(dist.DistBackendError, match=DEAD):
            call()
    assert time.monotonic() - start < 1.0, "a later call took its time"
    os._exit(7)  # without the harness's last barrier, which the dead rank will not join


@pytest.mark.parametrize("in_flight", [False, True], ids=["between calls", "in a call"])
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", list(_calls(large=False)))
def test_every_survivor_names_the_dead_rank(name, large, in_flight):
    before = names_in_shared_memory()
    run_ranks(3, _run_until_told, name, large, in_flight, dying=range(3))
    assert names_in_shared_memory() <= before
