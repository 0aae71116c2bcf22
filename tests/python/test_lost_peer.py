"""A peer that goes away is an error that names it, not a hang."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks

LARGE = 2**20  # elements: more than fits into a socket's buffer


@ranks(3)
@pytest.mark.parametrize("given", [False, True], ids=["sizes found", "sizes given"])
def test_the_error_names_the_peer_that_left(rank, size, given):
    x = torch.ones(LARGE)
    sizes = [LARGE] * size if given else None
    sw.all_gather_v(x, sizes=sizes)
    if rank == 2:
        dist.destroy_process_group()
        return
    with pytest.raises(dist.DistBackendError, match=r"^all_gather_v: rank [012] could not be reached: .*\(rank \d\)$"):
        for _ in range(3):
            sw.all_gather_v(x, sizes=sizes)


@ranks(2)
def test_of_two_ranks_it_is_the_other(rank, size):
    if rank == 1:
        dist.destroy_process_group()
        return
    with pytest.raises(dist.DistBackendError, match=r"^reduce_scatter_v: rank 1 could not be reached"):
        sw.reduce_scatter_v(torch.ones(2 * LARGE), [LARGE, LARGE])
