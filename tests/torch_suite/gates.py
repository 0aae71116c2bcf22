"""PyTorch's own suite for backends, as the wheel has it.

Its decorators ask at import for which backend they are: imported as gloo's it lets some tests through, as mpi's others.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

WORLD = 3
GATES = ("gloo", "mpi")
_FILE = "torch.testing._internal.distributed.distributed_test"


def load(gate: str) -> ModuleType:
    """The module with this gate's tests, which then run on shardway."""
    os.environ.update(BACKEND=gate, WORLD_SIZE=str(WORLD), GLOO_SOCKET_IFNAME="lo")
    spec = importlib.util.find_spec(_FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"{_FILE}_{gate}"] = module
    spec.loader.exec_module(module)
    module.BACKEND = "shardway"  # type: ignore[attr-defined]
    return module


def suite_of(module: Any) -> Any:
    class Suite(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc,name-defined]
        """The tests of one gate."""

    return Suite


def names_of(suite: Any) -> list[str]:
    return sorted(name for name in dir(suite) if name.startswith("test_"))


def is_shut(suite: Any, name: str) -> bool:
    return bool(getattr(getattr(suite, name), "__unittest_skip__", False))
