"""Keeps the pytest process fit to fork ranks from: torch loaded, no threads started."""

import os
import random

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def seed() -> int:
    """A new seed per test, printed when the test fails; SHARDWAY_TEST_SEED gives it."""
    value = int(os.environ.get("SHARDWAY_TEST_SEED", random.randrange(2**31)))
    print(f"SHARDWAY_TEST_SEED={value}")
    return value
