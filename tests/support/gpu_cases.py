"""Where the tests' tensors are, and results that are compared with one process on the CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support import dense
from tests.support.cases import Case

DEVICE = os.environ.get("SHARDWAY_GPU_TESTS_ON", "cuda")

TOLERANCES = {torch.float16: 0.02, torch.bfloat16: 0.1, torch.float32: 1e-5, torch.complex64: 1e-5}

sizes_of_groups = pytest.mark.parametrize("size", [1, 2, 4], ids=lambda n: f"{n}ranks")
cuda_alone = pytest.mark.skipif(DEVICE != "cuda", reason="of streams, which the CPU has none of")


def on_device(x: Tensor) -> Tensor:
    return x.detach().to(DEVICE)


def on_cpu(result: Any) -> Any:
    """A result with its tensors on the CPU; each must have been on the device."""
    if isinstance(result, Tensor):
        assert result.device.type == DEVICE
        return result.detach().cpu()
    if isinstance(result, tuple) and isinstance(result[0], Tensor):
        return (on_cpu(result[0]), *result[1:])
    return result


def check(case: Case, result: Any, rank: int, what: object = "") -> None:
    case.check(on_cpu(result), rank, what)


def check_close(case: Case, result: Any, rank: int, what: object = "") -> None:
    got, want = on_cpu(case.tensor_of(result)), case.outputs[rank]
    assert (got.dtype, got.shape) == (want.dtype, want.shape), what
    tolerance = TOLERANCES.get(got.dtype, 1e-12)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, msg=lambda text: f"{what}: {text}")


def forms(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The values of x on the device, in memory in several ways."""
    yield "contiguous", on_device(x)
    yield "transposed", on_device(x).transpose(0, -1).contiguous().transpose(0, -1)
    room = torch.zeros([2 * n + 1 for n in x.shape], dtype=x.dtype, device=DEVICE)
    yield "every second element", room[tuple(slice(1, None, 2) for _ in x.shape)].copy_(x)
    if x.ndim == 4:
        yield "channels last", on_device(x).contiguous(memory_format=torch.channels_last)


def one_process_gradient(case: Case, upstream: list[Tensor], rank: int) -> Tensor:
    """Of the loss of all ranks, with respect to this rank's input."""
    leaves = [x.clone().requires_grad_() for x in case.inputs]
    return torch.autograd.grad(case.dense(leaves), leaves, upstream)[rank]


def assert_close(got: Tensor, want: Tensor, what: object = "") -> None:
    dense.assert_close(on_cpu(got), want, what)
