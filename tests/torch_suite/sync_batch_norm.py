"""SyncBatchNorm on the CPU: torch's own module and its collectives, over kernels that torch has for GPUs alone.

The formulas are those of torch's documentation of batch_norm; the figures of a rank are a mean and 1 / sqrt(var + eps).
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

_kernels = torch.library.Library("aten", "IMPL", "CPU")


def stand_in() -> None:
    """In a rank, for the rest of its life."""
    for kernel in (
        batch_norm_stats,
        batch_norm_gather_stats_with_counts,
        batch_norm_elemt,
        batch_norm_backward_reduce,
        batch_norm_backward_elemt,
    ):
        _kernels.impl(kernel.__name__, kernel)
    plain_forward = torch.nn.SyncBatchNorm.forward

    def forward(self: Any, x: Tensor) -> Tensor:
        with mock.patch.object(torch._C, "_get_privateuse1_backend_name", lambda: "cpu"):  # a device that it takes
            return plain_forward(self, x)

    torch.nn.SyncBatchNorm.forward = forward  # type: ignore[method-assign]
    DistributedDataParallel._passing_sync_batchnorm_handle = lambda self, module: None  # type: ignore[method-assign,assignment]


def batch_norm_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    var, mean = torch.var_mean(x.float(), _all_but_channels(x), correction=0)
    return mean, (var + eps).rsqrt()


def batch_norm_gather_stats_with_counts(
    x: Tensor,
    means: Tensor,
    inverse_deviations: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Of all ranks, from theirs: a rank's part of the variance is its own and the square of how far its mean is off."""
    total = counts.sum().double()
    weights = (counts / total).unsqueeze(1)
    mean = (weights * means).sum(0)
    var = (weights * (inverse_deviations.double() ** -2 - eps + (means - mean) ** 2)).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((var * total / (total - 1)).to(running_var.dtype), momentum)
    return mean.to(means.dtype), (var + eps).rsqrt().to(means.dtype)


def batch_norm_elemt(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse_deviation: Tensor, eps: float
) -> Tensor:
    scale = inverse_deviation if weight is None else inverse_deviation * weight
    y = (x - _along_channels(mean, x)) * _along_channels(scale, x)
    return (y if bias is None else y + _along_channels(bias, x)).to(x.dtype)


def batch_norm_backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse_deviation: Tensor,
    weight: Tensor | None,
    for_input: bool,
    for_weight: bool,
    for_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dims = _all_but_channels(x)
    sums = grad.float().sum(dims)
    products = (grad.float() * (x - _along_channels(mean, x))).sum(dims)
    dtype = mean.dtype if weight is None else weight.dtype
    return sums, products, (products * inverse_deviation).to(dtype), sums.to(dtype)


def batch_norm_backward_elemt(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse_deviation: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    products: Tensor,
    counts: Tensor,
) -> Tensor:
    total = counts.sum()
    scale = inverse_deviation if weight is None else inverse_deviation * weight
    centred = (x - _along_channels(mean, x)) * _along_channels(inverse_deviation**2 * products / total, x)
    return ((grad - _along_channels(sums / total, x) - centred) * _along_channels(scale, x)).to(x.dtype)


def _all_but_channels(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _along_channels(values: Tensor, x: Tensor) -> Tensor:
    return values.view([1, -1] + [1] * (x.dim() - 2))
