import os
import random

import pytest

# autograd, DTensor and torch.compile load these at first use: once here, not in every rank
import torch._dynamo
import torch._inductor.lowering
import torch.fx.experimental.symbolic_shapes  # noqa: F401


@pytest.fixture
def seed() -> int:
    """A new seed per test, printed when the test fails; SHARDWAY_TEST_SEED gives it."""
    value = int(os.environ.get("SHARDWAY_TEST_SEED", random.randrange(2**31)))
    print(f"SHARDWAY_TEST_SEED={value}")
    return value
