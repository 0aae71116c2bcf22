"""Runs a function as several ranks: joins under torchrun, forks the ranks itself otherwise."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run_ranks(body: Callable[..., None], ranks: int, *args: Any) -> int:
    """Calls `body(rank, ranks, *args)` on every rank of a gloo group; the exit code is 1 when a rank failed."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        body(dist.get_rank(), dist.get_world_size(), *args)
        dist.destroy_process_group()
        return 0
    torch.set_num_threads(1)  # the ranks share this machine's cores, and a process with threads must not fork
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        try:
            mp.start_processes(_enter, (f"file://{folder}/store", ranks, body, args), nprocs=ranks, start_method="fork")
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def _enter(rank: int, meeting_point: str, ranks: int, body: Callable[..., None], args: tuple[Any, ...]) -> None:
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=ranks)
    body(rank, ranks, *args)
    dist.destroy_process_group()
