"""gather_all_tensors gives what torchmetrics' own function of that name gives, whatever the shapes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from shardway.compat.torchmetrics import gather_all_tensors
from tests.support.dense import Draw, assert_same_bits
from tests.support.ranks import ranks

SHAPES = (
    lambda rank: (),
    lambda rank: (3,),
    lambda rank: (rank,),
    lambda rank: (rank + 1, 4),
    lambda rank: (2, rank + 1),
    lambda rank: (rank + 1, 3 - rank, 2),
    lambda rank: (2,) * (rank + 1),
)
DTYPES = (torch.float32, torch.float16, torch.int64, torch.bool, torch.complex64)


def check(group, members, me, draw):
    for shape_of in SHAPES:
        for dtype in DTYPES:
            parts = [draw.tensor(shape_of(rank), dtype) for rank in range(len(members))]
            gathered = gather_all_tensors(parts[me], group)
            assert isinstance(gathered, list)
            for got, want in zip(gathered, parts, strict=True):
                assert_same_bits(got, want, f"{shape_of(me)} {dtype}")


@ranks(1, 3)
def test_tensors_of_any_shapes_come_as_a_list_by_rank(rank, size, seed):
    check(None, range(size), rank, Draw(seed))
    if size == 1:
        return
    pair = dist.new_group([0, 2])
    if rank != 1:
        check(pair, (0, 2), rank // 2, Draw(seed))


@ranks(3)
def test_the_gradient_is_that_of_the_ranks_own_tensor(rank, size):
    x = torch.ones(2, rank + 1, requires_grad=True)
    gathered = gather_all_tensors(x.t())
    assert [t.requires_grad for t in gathered] == [r == rank for r in range(size)]
    torch.cat([t.flatten() for t in gathered]).mul(rank + 2.0).sum().backward()
    assert torch.equal(x.grad, torch.full((2, rank + 1), rank + 2.0))


@ranks(2)
def test_ranks_of_other_dtypes_get_the_same_error(rank, size):
    with pytest.raises(ValueError, match=r"all_gather_v.*dtype"):
        gather_all_tensors(torch.ones(2, dtype=torch.float32 if rank else torch.float64))


def test_without_a_group_the_list_has_the_tensor_itself():
    x = torch.ones(2)
    (only,) = gather_all_tensors(x)
    assert only is x
