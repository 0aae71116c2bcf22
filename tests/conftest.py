"""Keeps the pytest process fit to fork ranks from: torch loaded, no threads started."""

import os
import random
from pathlib import Path

import pytest
import torch

from tests.support.huge_pages import use_huge_pages

torch.set_num_threads(1)


@pytest.fixture
def seed() -> int:
    """A new seed per test, printed when the test fails; SHARDWAY_TEST_SEED gives it."""
    value = int(os.environ.get("SHARDWAY_TEST_SEED", random.randrange(2**31)))
    print(f"SHARDWAY_TEST_SEED={value}")
    return value


# The files that take longest, longest first: a worker that took one of them last would end long after the others.
LONGEST = (
    "consumer/test_consumer.py",
    "mpi/test_mpi.py",
    "python/test_examples.py",
    "python/test_compile.py",
    "python/test_scarcity.py",
    "python/test_shrink.py",
    "cli/test_stuck_job.py",
    "python/test_surface_table.py",
    "cli/test_launch.py",
    "python/test_soak.py",
    "python/test_dtensor_programs.py",
    "transport/test_contract.py",
    "python/test_gloo_lost_peer.py",
    "docs/test_types.py",
    "cli/test_calibrate.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    places = {folder / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


def pytest_runtestloop(session: pytest.Session) -> None:
    if not session.config.pluginmanager.has_plugin("dsession"):  # this process runs tests itself: with -n, a worker
        use_huge_pages()
