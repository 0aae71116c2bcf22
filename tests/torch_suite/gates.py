"""PyTorch's own suite for backends, as the wheel has it.

Its decorators ask at import for which backend they are: each name lets other tests through.
"""

from __future__ import annotations

import importlib.util
import sys
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch.distributed as dist

from tests.torch_suite.cpu_for_gpu import open_decorators
from tests.torch_suite.names import OURS, announce

CPU_GATES = ("gloo", "mpi")
GATES = (*CPU_GATES, "nccl")
FILE = "torch.testing._internal.distributed.distributed_test"


def load(gate: str) -> ModuleType:
    """The module with this gate's tests, which then run on shardway."""
    announce(gate)
    open_decorators()
    spec = importlib.util.find_spec(FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[FILE] = module
    spec.loader.exec_module(module)
    module.BACKEND = OURS  # type: ignore[attr-defined]
    module.wants_gpus = gate == "nccl"  # type: ignore[attr-defined]
    return module


def suite_of(module: Any) -> Any:
    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc,name-defined]
        """The tests of one gate."""

    return Suite


def names_of(suite: Any) -> list[str]:
    return sorted(name for name in dir(suite) if name.startswith("test_"))


def is_shut(suite: Any, name: str) -> bool:
    return bool(getattr(getattr(suite, name), "__unittest_skip__", False))


def wants_gpus(module: Any, suite: Any, name: str) -> bool:
    return bool(getattr(getattr(suite, name), "wants_gpus", module.wants_gpus))


def open_monitored_barrier() -> None:
    """torch's function refuses every backend but gloo by its name; the group's own does not."""

    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        if dist.distributed_c10d._rank_not_in_group(group):
            return
        seconds = timeout if isinstance(timeout, timedelta | None) else timedelta(seconds=timeout)
        (group or dist.group.WORLD).monitored_barrier(seconds or timedelta(minutes=30), wait_all_ranks=wait_all_ranks)

    dist.monitored_barrier = monitored_barrier
