"""The transport contract suite over gloo groups, with a process per rank: in shared memory, and by gloo.

The checks are C++ (tests/support/contract.cpp), the same that run over threads. The module that holds them is built
with the C++ tests; SHARDWAY_CONTRACT_DIR names its folder when that is not build/release/tests.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch.distributed as dist

from tests.support.ranks import ranks

FOLDER = Path(os.environ.get("SHARDWAY_CONTRACT_DIR", Path(__file__).parents[2] / "build" / "release" / "tests"))


def load() -> ModuleType:
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module("shardway_contract")


try:
    CHECKS = load().names()
except ImportError as error:  # without the module one test says so, and fails
    CHECKS = [f"not built: {error}"]


@pytest.mark.parametrize("transport", ["shm", "c10d"])
@ranks(1, 2, 3, 4)
def test_a_gloo_group_keeps_the_transport_contract(rank: int, size: int, transport: str) -> None:
    """Every check has a group of its own and finds nothing that another has left. The ranks are forked once for all."""
    os.environ["SHARDWAY_TRANSPORT"] = transport
    for check in CHECKS:
        group = dist.new_group()
        try:
            load().run(check, group)
        except Exception as error:
            raise AssertionError(f"{check}: {error}") from error
        dist.destroy_process_group(group)


def test_the_suite_is_the_one_that_runs_over_threads() -> None:
    assert "ReduceScatterAddsInRankOrder" in CHECKS
    assert len(CHECKS) > 30


def test_a_check_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="no check is named Nothing"):
        load().run("Nothing", None)
