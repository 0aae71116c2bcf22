"""Ranks that share one GPU. Without one, nothing here runs, and the reason is printed.

SHARDWAY_GPU_TESTS_ON=cpu runs the bodies on CPU tensors and gloo, where they can, to find slips in them without a GPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.gpu_cases import DEVICE
from tests.support.one_gpu import enter_group, mps, why_no_gpu
from tests.support.ranks import run_ranks

Run = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def gpu() -> Iterator[None]:
    why = why_no_gpu() if DEVICE == "cuda" else None
    if why:
        pytest.skip(f"no GPU: {why}")
    with mps() if DEVICE == "cuda" else contextlib.nullcontext():
        yield


@pytest.fixture
def run(gpu: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """run(size, body, *args, backend="nccl") calls body(rank, size, *args) in ranks on the GPU."""

    def run_on_gpu(size: int, body: Callable[..., Any], *args: Any, backend: str = "nccl") -> list[Any]:
        if DEVICE != "cuda":
            on_cpu = "shardway" if "shardway" in backend else "gloo"
            return run_ranks(size, body, *args, timeout_s=120.0, backend=on_cpu)
        store = tmp_path_factory.mktemp("group") / "store"
        enter = functools.partial(enter_group, store=store, backend=backend)
        return run_ranks(size, body, *args, timeout_s=120.0, enter=enter)

    return run_on_gpu
