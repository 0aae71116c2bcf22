"""Large results reuse memory that was touched before; what is kept is bounded."""

from __future__ import annotations

import os
import sys

import pytest
import torch

import shardway as sw
from tests.support.programs import run_program
from tests.support.ranks import ranks, run_ranks

ROWS = 2**18  # 1 MiB of float32


def gathered(rows: int = ROWS) -> torch.Tensor:
    result, _ = sw.all_gather_v(torch.ones(rows))
    return result


@pytest.mark.parametrize("rows", [2**14, ROWS])
@ranks(2, 3)
def test_a_freed_result_is_the_memory_of_the_next(rank, size, rows):
    sw.empty_cache()
    first = gathered(rows)
    address = first.data_ptr()
    del first
    assert sw.memory_stats()["cached_bytes"] > 0
    second = gathered(rows)
    assert second.data_ptr() == address
    assert torch.equal(second, torch.ones(size * rows))


@ranks(2)
def test_results_that_are_alive_never_share_memory(rank, size):
    results = [sw.all_gather_v(torch.full((ROWS,), float(i)))[0] for i in range(5)]
    assert len({result.data_ptr() for result in results}) == 5
    for i, result in enumerate(results):
        assert torch.equal(result, torch.full((size * ROWS,), float(i)))


@ranks(2)
def test_sizes_that_differ_a_little_share_a_block(rank, size):
    sw.empty_cache()
    gathered()
    before = sw.memory_stats()["reused"]
    gathered(ROWS - 100)
    assert sw.memory_stats()["reused"] > before


@ranks(2)
def test_empty_cache_gives_everything_back(rank, size):
    result = gathered()
    in_use = sw.memory_stats()["in_use_bytes"]
    assert in_use >= result.nbytes
    del result
    sw.empty_cache()
    stats = sw.memory_stats()
    assert stats["cached_bytes"] == 0
    assert stats["in_use_bytes"] < in_use


@ranks(2)
def test_small_results_are_plain_memory(rank, size):
    gathered(1000)  # the first call makes the group's own memory
    before = sw.memory_stats()
    gathered(1000)
    assert sw.memory_stats() == before


@ranks(2)
def test_a_result_can_be_resized(rank, size):
    result = gathered()
    result.resize_(4 * size * ROWS)
    assert result[: size * ROWS].sum().item() == size * ROWS


@ranks(2)
def test_a_numpy_view_keeps_the_memory(rank, size):
    view = gathered().numpy()
    other = gathered()
    other.zero_()
    assert view.sum() == size * ROWS


@ranks(2)
def test_memory_that_nothing_lands_on_is_zero_even_when_reused(rank, size):
    x = torch.randn(ROWS, dtype=torch.float64, requires_grad=True)
    full, _ = sw.all_gather_v(x, grad="local")
    (first,) = torch.autograd.grad((full**2).sum(), x, create_graph=True)
    del full
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, torch.full_like(second, 2.0))


def _kept_bytes(rank: int, size: int) -> int:
    for rows in (ROWS, 2 * ROWS):  # 2 and 4 MiB: together too much
        gathered(rows)
    return sw.memory_stats()["cached_bytes"]


def test_what_is_kept_stays_below_the_limit(monkeypatch):
    monkeypatch.setenv("SHARDWAY_CACHE_BYTES", str(5 * 2**20))
    assert run_ranks(2, _kept_bytes) == [4 * 2**20] * 2


def test_a_limit_that_is_no_number_is_an_error():
    environment = {**os.environ, "SHARDWAY_CACHE_BYTES": "lots"}
    code = "import shardway as sw; sw.memory_stats()"
    done = run_program([sys.executable, "-c", code], env=environment, timeout_s=60)
    assert done.returncode != 0
    assert "ValueError: SHARDWAY_CACHE_BYTES='lots' is not a number of bytes" in done.stderr
