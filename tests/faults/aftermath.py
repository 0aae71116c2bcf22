"""What a rank does when the fault is over: it makes a new group, and looks at what the old one has left."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

import shardway as sw
from tests.faults.axes import GROUPS, RANKS, Cell
from tests.faults.catalogue import TRAITS
from tests.faults.leftovers import Holdings
from tests.faults.observation import Outcome

AGAIN_TIMEOUT_S = 5.0


def enter(cell: Cell, rank: int, size: int, store: Path, timeout_s: float) -> None:
    """Makes the default group of the cell's kind."""
    backend, environment, _ = GROUPS[cell.group]
    for name in ("SHARDWAY_TRANSPORT", "SHARDWAY_CHECK"):
        os.environ.pop(name, None)
    os.environ.update(environment, GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=timeout_s),
    )


def set_timeout(timeout_s: float) -> None:
    """Of the default group, from its next call on."""
    group = dist.group.WORLD
    assert group is not None
    group._get_backend(torch.device("cpu")).set_timeout(datetime.timedelta(seconds=timeout_s))


def begin_again(cell: Cell, rank: int, size: int, store: Path) -> Outcome:
    """A new group of those who live."""
    start = time.monotonic()
    try:
        enter(cell, rank, size, store, AGAIN_TIMEOUT_S)
        total = sw.all_reduce(torch.ones(2))
        dist.destroy_process_group()
    except Exception as error:
        return Outcome("raised", time.monotonic() - start, type(error).__name__, str(error))
    is_right = torch.equal(total, torch.full((2,), float(size)))
    return Outcome("returned" if is_right else "wrong", time.monotonic() - start)


def leftovers_since(before: Holdings, cell: Cell, timeout_s: float) -> list[str]:
    """What does not go within the limit. A group's memory goes when the last rank has dropped the group. On gloo one
    thread stays with a process that once left messages behind (Janitor, transport/c10d/mail_transfer.cpp)."""
    is_gloo = GROUPS[cell.group][0] == "gloo"
    kept_threads = 1 if is_gloo else 0
    turns = RANKS if is_gloo else 1  # that thread waits for one message after the other, each for the timeout
    deadline = time.monotonic() + turns * timeout_s + 1.0
    while True:
        sw.empty_cache()
        now = Holdings.now()
        found = now.children_beyond(before) if TRAITS[cell.call].keeps_group else now.beyond(before, kept_threads)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.01)
