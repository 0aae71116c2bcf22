"""Ranks that disagree, and arguments that cannot be: one error, the same on every rank, and the group goes on."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import shardway  # noqa: F401
from tests.support.ranks import ranks, run_ranks


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def backend() -> Any:
    assert dist.group.WORLD is not None
    return dist.group.WORLD._get_backend(torch.device("cpu"))


# name, what each rank calls, what all of them hear
DISAGREEMENTS: list[tuple[Callable[[int], Any], str]] = [
    (
        lambda rank: dist.all_reduce(ones(4 if rank == 2 else 6)),
        "all_reduce: ranks disagree on the number of elements: 6 on rank 0, 4 on rank 2",
    ),
    (
        lambda rank: dist.all_reduce(ones(50_000 + rank)),
        "all_reduce: ranks disagree on the number of elements: 50000 on rank 0, 50001 on rank 1",
    ),
    (
        lambda rank: dist.all_reduce(ones(2, dtype=torch.float64 if rank == 1 else torch.float32)),
        "all_reduce: ranks disagree on dtype: float32 on rank 0, float64 on rank 1",
    ),
    (
        lambda rank: dist.all_reduce(ones(2), op=ReduceOp.MAX if rank == 2 else ReduceOp.SUM),
        "all_reduce: ranks disagree on op: sum on rank 0, max on rank 2",
    ),
    (
        lambda rank: dist.all_reduce(ones(2), op=dist._make_nccl_premul_sum(1.0 + rank)),
        "all_reduce: ranks disagree on the factor: 1 on rank 0, 2 on rank 1",
    ),
    (
        lambda rank: dist.broadcast(ones(2), rank % 2),
        "broadcast: ranks disagree on the root: 0 on rank 0, 1 on rank 1",
    ),
    (
        lambda rank: dist.reduce(ones(2), 2 if rank == 2 else 0),
        "reduce: ranks disagree on the root: 0 on rank 0, 2 on rank 2",
    ),
    (
        lambda rank: dist.barrier() if rank == 1 else dist.all_reduce(ones(1)),
        "ranks called different collectives: all_reduce on rank 0, barrier on rank 1",
    ),
    (
        lambda rank: dist.all_gather([torch.empty(2) for _ in range(3)], ones(3 if rank == 1 else 2)),
        "all_gather: rank 1 sends 3 elements to rank 0, which expects 2",
    ),
    (
        lambda rank: dist.gather(ones(5 if rank == 2 else 2), [torch.empty(2)] * 3 if rank == 0 else None, dst=0),
        "gather: rank 2 sends 5 elements to rank 0, which expects 2",
    ),
    (
        lambda rank: dist.scatter(torch.empty(4 if rank == 1 else 2), [ones(2)] * 3 if rank == 0 else None, src=0),
        "scatter: rank 0 sends 2 elements to rank 1, which expects 4",
    ),
    (
        lambda rank: dist.reduce_scatter_tensor(torch.empty(1 + rank // 2), ones(3 * (1 + rank // 2))),
        "reduce_scatter: rank 0 sends 1 elements to rank 2, which expects 2",
    ),
    (
        lambda rank: dist.all_to_all_single(
            torch.empty(3 if rank else 4), ones(3), [1, 1, 1] if rank else [1, 2, 1], [1, 1, 1]
        ),
        "all_to_all: rank 1 sends 1 elements to rank 0, which expects 2",
    ),
    # one rank's arguments cannot be: the others hear of it
    (
        lambda rank: backend().broadcast([ones(2).to_sparse() if rank == 1 else ones(2)]).wait(),
        "broadcast: a tensor is Sparse, but only dense ones are moved (rank 1)",
    ),
    (
        lambda rank: dist.all_reduce(torch.eye(2 + rank // 2).to_sparse()),
        "sparse_all_reduce: ranks disagree on shape: (2, 2) on rank 0, (3, 3) on rank 2",
    ),
    (
        lambda rank: backend().allreduce([torch.ones(2, device="meta") if rank == 2 else ones(2)]).wait(),
        "all_reduce: a tensor is on meta, but the group moves CPU tensors only (rank 2)",
    ),
    (
        lambda rank: dist.all_reduce(ones(2, dtype=torch.int64), op=ReduceOp.AVG),
        "all_reduce: op avg of int64 is not defined: convert to a floating dtype (rank 0)",
    ),
    (
        lambda rank: backend().allreduce(ones(2, dtype=torch.complex64), ReduceOp.MAX).wait(),
        "all_reduce: op max of complex64 is not defined (rank 0)",
    ),
    (
        lambda rank: dist.all_reduce(torch.zeros(2, dtype=torch.float8_e5m2)),
        "all_reduce: Float8_e5m2 cannot be reduced (rank 0)",
    ),
    (
        lambda rank: dist.all_to_all_single(torch.empty(3), ones(3), None, [1, 1, 2] if rank == 1 else [1, 1, 1]),
        "all_to_all: the input has 3 rows, but its split sizes add up to 4 (rank 1)",
    ),
    (
        lambda rank: dist.all_to_all_single(torch.empty(4 if rank == 0 else 3), ones(3)),
        "all_to_all: the output has 4 rows, which 3 ranks cannot share equally (rank 0)",
    ),
    (
        lambda rank: backend().allgather([[torch.empty(2)] * (2 if rank == 0 else 3)], [ones(2)]).wait(),
        "all_gather: a list has 2 tensors for 3 ranks (rank 0)",
    ),
    (
        lambda rank: backend()._allgather_base(torch.empty(5 if rank == 1 else 6), ones(2)).wait(),
        "all_gather: the output has 5 elements, but 3 ranks with inputs of 2 give 6 (rank 1)",
    ),
    (
        lambda rank: backend().broadcast([ones(1)], dist.BroadcastOptions()).wait() if rank else bad_root(),
        "broadcast: the root 7 is not among the 3 ranks (rank 0)",
    ),
]


def bad_root() -> None:
    options = dist.BroadcastOptions()
    options.rootRank = 7
    backend().broadcast([ones(1)], options).wait()


@ranks(3, backend="shardway")
def test_every_rank_hears_the_same_and_the_group_goes_on(rank: int, size: int) -> None:
    for call, expected in DISAGREEMENTS:
        with pytest.raises(ValueError, match=re.escape(expected)):
            call(rank)
        t = ones(1)
        dist.all_reduce(t)
        assert t.item() == size


@ranks(2, backend="shardway")
def test_inputs_and_outputs_of_a_refused_call_do_not_change(rank: int, size: int) -> None:
    t = ones(2 + rank)
    work = dist.all_reduce(t, async_op=True)
    assert work is not None
    with pytest.raises(ValueError, match="2 on rank 0, 3 on rank 1"):
        work.wait()
    assert not work.is_success()
    assert torch.equal(t, ones(2 + rank))
    failed = dist.all_reduce(ones(2 + rank), async_op=True)
    assert failed is not None
    with pytest.raises(ValueError, match="2 on rank 0, 3 on rank 1"):
        failed.get_future().wait()


@ranks(2, backend="shardway")
def test_a_message_of_another_size_or_dtype_is_refused(rank: int, size: int) -> None:
    for sent, wanted, words in [
        (
            ones(4),
            torch.full((3,), 7.0),
            "rank 0 sent 4 elements of float32, but the tensor takes 3 elements of float32",
        ),
        (
            ones(2),
            torch.full((4,), 7, dtype=torch.int16),
            "rank 0 sent 2 elements of float32, but the tensor takes 4 elements of int16",
        ),
    ]:
        if rank == 0:
            dist.send(sent, 1)
        else:
            kept = wanted.clone()
            with pytest.raises(ValueError, match=re.escape(words)):
                dist.recv(wanted, 0)
            assert torch.equal(wanted, kept)
    if rank == 0:
        with pytest.raises(ValueError, match="send: rank 5 is not among the 2 ranks"):
            backend().send([ones(1)], 5, 0)
    dist.barrier()


def test_a_killed_peer_is_named_long_before_the_timeout() -> None:
    def body(rank: int, size: int) -> None:
        dist.barrier()
        if rank == 1:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        pending = torch.empty(1)
        asked = dist.irecv(pending, 1)
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="rank 1 could not be reached: its process ended"):
            dist.all_reduce(ones(100_000))
        assert time.monotonic() - start < 5.0
        assert asked is not None
        with pytest.raises(dist.DistBackendError, match="rank 1 could not be reached"):
            asked.wait()
        dist.destroy_process_group()

    run_ranks(3, body, backend="shardway", dying=[1])
