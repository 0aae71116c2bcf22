"""The recipe of docs/ragged_training.md gives, under DDP, the gradient of one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.pages import blocks_of
from tests.support.ranks import ranks

PAGE = Path(__file__).resolve().parents[2] / "docs/ragged_training.md"
Scale = Callable[[Tensor], Tensor]


def recipe() -> Scale:
    names: dict[str, object] = {}
    exec(blocks_of(PAGE)[0].text, names)
    return names["mean_over_all_rows"]  # type: ignore[return-value]


def gradients(rank: int, size: int, scale: Scale) -> tuple[list[Tensor], list[Tensor]]:
    """Of one process that has all rows, and under DDP with 0 to 5 rows a rank."""
    rows = [(3 * r) % 6 + (r % 2) * 2 for r in range(size)]  # 0, 5, 0, 5 and so on
    rows[-1] += 1
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    x, y = torch.randn(sum(rows), 4).double(), torch.randn(sum(rows), 2).double()

    def losses(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(net(x), y, reduction="none").sum(1)

    expected = torch.autograd.grad(losses(model, x, y).mean(), list(model.parameters()))
    wrapped = DistributedDataParallel(model)
    scale(losses(wrapped, x.split(rows)[rank], y.split(rows)[rank])).backward()
    return list(expected), [p.grad for p in model.parameters() if p.grad is not None]


def distance(expected: list[Tensor], found: list[Tensor]) -> float:
    return max(float((e - f).abs().max()) for e, f in zip(expected, found, strict=True))


@ranks(1, 2, 3, 4)
def test_the_recipe_gives_the_gradient_of_one_process(rank: int, size: int) -> None:
    assert distance(*gradients(rank, size, recipe())) < 1e-14


@ranks(3)
def test_the_mean_of_each_rank_does_not(rank: int, size: int) -> None:
    def mean_of_rank(losses: Tensor) -> Tensor:
        return losses.sum() / max(1, len(losses))

    assert distance(*gradients(rank, size, mean_of_rank)) > 1e-2
    assert dist.get_world_size() == size
