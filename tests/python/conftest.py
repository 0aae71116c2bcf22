from collections.abc import Iterator

import pytest

# autograd, DTensor and torch.compile load these at first use: once here, not in every rank
import torch._dynamo
import torch._inductor.lowering
import torch.fx.experimental.symbolic_shapes  # noqa: F401

from tests.support.hosts import Host, hosts_or_skip


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[tuple[Host, ...]]:
    with hosts_or_skip(3) as made:
        yield made


@pytest.fixture
def two_hosts() -> Iterator[tuple[Host, ...]]:
    """For one test, which may cut their cables."""
    with hosts_or_skip(2) as made:
        yield made
