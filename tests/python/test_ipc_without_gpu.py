"""SHARDWAY_TRANSPORT=ipc is about CUDA tensors; where there is no GPU, CPU tensors move as ever."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks


@ranks(2)
def test_cpu_tensors_move_through_shared_memory(rank: int, size: int) -> None:
    os.environ["SHARDWAY_TRANSPORT"] = "ipc"
    gathered, sizes = sw.all_gather_v(torch.full((rank + 1, 2), float(rank)))
    assert sizes == (1, 2)
    assert gathered.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]


@ranks(2)
def test_an_unknown_word_is_refused_with_those_there_are(rank: int, size: int) -> None:
    os.environ["SHARDWAY_TRANSPORT"] = "icp"
    with pytest.raises(ValueError, match="SHARDWAY_TRANSPORT=icp is not one of shm, ipc and c10d"):
        sw.all_gather_v(torch.ones(rank + 1))
    dist.barrier()
