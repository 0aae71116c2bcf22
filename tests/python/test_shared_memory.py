"""Tensors in shared memory: ordinary tensors in every other respect."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import shardway as sw
from tests.support.ranks import ranks, run_ranks

LARGE = 2**16  # elements of 4 bytes: 256 KiB


def shared_bytes() -> int:
    return sw.memory_stats()["shared_in_use_bytes"]


@ranks(1)
def test_empty_takes_shapes_and_dtypes_as_torch_does(rank, size):
    before = shared_bytes()
    assert sw.empty(2, 3).shape == (2, 3)
    assert sw.empty((2, 3)).shape == (2, 3)
    assert sw.empty(torch.Size([4])).shape == (4,)
    assert sw.empty().shape == ()
    assert sw.empty(2, 0).numel() == 0
    assert sw.empty(2).dtype == torch.get_default_dtype()
    assert sw.empty(2, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert sw.empty(3, 4).is_contiguous()
    assert shared_bytes() == before


@ranks(1)
def test_a_negative_size_is_refused(rank, size):
    with pytest.raises(ValueError, match=r"empty: .*-1"):
        sw.empty(2, -1)


@ranks(1)
def test_more_than_there_is_is_refused_with_both_numbers(rank, size):
    with pytest.raises(torch.OutOfMemoryError, match=r"empty: .*\d+ bytes are needed, \d+ are available"):
        sw.empty(2**40)
    sw.empty(8).fill_(1)


@ranks(2, 3)
def test_shared_and_ordinary_inputs_give_the_same(rank, size):
    torch.manual_seed(rank)
    for rows in (3, LARGE):
        plain = torch.randn(rows * (rank + 1), 2)
        shared = sw.empty(*plain.shape)
        shared.copy_(plain)
        mixed = shared if rank % 2 else plain
        wanted, sizes = sw.all_gather_v(plain)
        for x in (shared, mixed):
            result, found = sw.all_gather_v(x)
            assert found == sizes
            assert torch.equal(result, wanted)
            assert torch.equal(sw.reduce_scatter_v(result, sizes), sw.reduce_scatter_v(wanted, sizes))
        columns = shared.t()
        assert torch.equal(sw.all_gather_v(columns, 1)[0], wanted.t())
        shared.zero_()


@ranks(1)
def test_views_copies_pickles_and_resizes_are_those_of_any_tensor(rank, size):
    x = sw.empty(100, 1000)
    x.copy_(torch.arange(100_000.0).view(100, 1000))
    array = x.numpy()
    array[3, 5] = -1
    assert x[3, 5] == -1
    assert np.shares_memory(array, x.t().numpy())
    assert torch.equal(pickle.loads(pickle.dumps(x)), x)
    assert torch.equal(copy.deepcopy(x), x)
    stream = io.BytesIO()
    torch.save(x, stream)
    stream.seek(0)
    assert torch.equal(torch.load(stream), x)
    y = sw.empty(10)
    y.copy_(torch.arange(10.0))
    y.resize_(200_000)
    assert torch.equal(y[:10], torch.arange(10.0))
    y.set_()
    z = x.clone().share_memory_()
    assert torch.equal(z, x)


@ranks(1)
def test_tens_of_thousands_of_tensors_leave_nothing_behind(rank, size):
    before = shared_bytes()
    taken = sw.memory_stats()["shared_bytes"]
    alive = []
    for i in range(30_000):
        alive.append(sw.empty(1 + (i * 7919) % 4000))
        if len(alive) > 50:
            alive.pop((i * 31) % 50)
    del alive
    assert shared_bytes() == before
    assert sw.memory_stats()["shared_bytes"] < taken + 2**26


def _in_child(body):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            body()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@ranks(1)
def test_a_child_of_fork_sees_what_it_inherits_and_frees_nothing(rank, size):
    x = sw.empty(LARGE)
    x.fill_(1)
    before = shared_bytes()

    def body():
        nonlocal x
        assert x.sum() == LARGE
        x[0] = 5
        own = sw.empty(LARGE).fill_(2)
        assert own.sum() == 2 * LARGE
        del x, own

    assert _in_child(body) == 0
    assert x[0] == 5, "what a child inherits is shared"
    assert shared_bytes() == before
    y = sw.empty(LARGE)
    assert y.data_ptr() != x.data_ptr()


class _WrittenInPlace(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return 64

    def __getitem__(self, i):
        self.data[i] += 1
        return torch.full((LARGE // 4,), float(self.data[i, 0]))


def _with_shared_allocator(rank, size):
    sw.use_shared_allocator()
    sw.use_shared_allocator()  # once is enough
    small, before = torch.ones(100), shared_bytes()
    x = torch.full((LARGE,), float(rank))
    assert shared_bytes() >= before + 4 * LARGE
    assert shared_bytes() < before + 8 * LARGE
    result, _ = sw.all_gather_v(x)
    assert torch.equal(result, torch.arange(float(size)).repeat_interleave(LARGE))
    x.resize_(3 * LARGE)
    x.numpy()[0] = 1
    assert torch.equal(pickle.loads(pickle.dumps(x)), x)

    with torch.profiler.profile(profile_memory=True) as profile:
        y = torch.empty(LARGE)
        del y
    assert any(abs(event.self_cpu_memory_usage) >= 4 * LARGE for event in profile.key_averages())

    data = torch.zeros(64, LARGE // 64)
    total = 0.0
    for batch in DataLoader(_WrittenInPlace(data), batch_size=8, num_workers=2):
        total += float(batch.sum())
    assert total == 64 * (LARGE // 4)
    assert data.sum() == data.numel(), "workers wrote into what they inherited"
    del data, x, result, small
    sw.all_gather_v(torch.ones(LARGE))
    for _ in range(2000):
        torch.ones(LARGE // 2)
    assert sw.memory_stats()["shared_bytes"] < 2**28


def test_with_the_shared_allocator_large_cpu_tensors_are_shared():
    run_ranks(2, _with_shared_allocator, timeout_s=100)


@ranks(2)
def test_what_is_freed_can_be_given_back_to_the_system(rank, size):
    x = sw.empty(2**22).fill_(1)
    del x
    sw.empty_cache()
    assert sw.empty(2**22)[2**21] == 0


@ranks(2)
def test_what_groups_leave_can_be_given_back_too(rank, size):
    group = dist.new_group([0, 1])
    sw.all_gather_v(sw.empty(2**20).fill_(1), group=group)
    assert sw.memory_stats()["shared_bytes"] > 0
    dist.barrier()
    dist.destroy_process_group(group)
    del group
    gc.collect()
    deadline = time.monotonic() + 5
    while sw.memory_stats()["shared_bytes"] > 0 and time.monotonic() < deadline:  # the peer may still be in the group
        sw.empty_cache()
        time.sleep(0.01)
    assert sw.memory_stats()["shared_bytes"] == 0
