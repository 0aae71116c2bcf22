"""A model in shards, trained with an optimiser that needs whole matrices, as Muon does.

Every rank holds some rows of every weight and of its momentum, and sees a part of the batch. In each step every
momentum goes whole to the rank that owns it, is made orthogonal there, and goes back in rows. The weights are those of
one process that has everything.
"""

from __future__ import annotations

import argparse
import sys

import torch
from launch import run_ranks
from torch import Tensor

import shardway as sw

TOLERANCE = 1e-10
RATE, DECAY = 0.05, 0.9


def orthogonal(matrix: Tensor) -> Tensor:
    """About the nearest matrix with orthogonal rows or columns, by the iteration of Newton and Schulz."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-12)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if tall else x


def loss_of(weights: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    for weight in weights[:-1]:
        x = torch.tanh(x @ weight.T)
    return (x @ weights[-1].T - y).square().sum()


def gradients(weights: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    leaves = [weight.detach().clone().requires_grad_() for weight in weights]
    return list(torch.autograd.grad(loss_of(leaves, x, y), leaves))


def one_process(weights: list[Tensor], x: Tensor, y: Tensor, steps: int) -> list[Tensor]:
    momenta = [torch.zeros_like(weight) for weight in weights]
    for _ in range(steps):
        for weight, momentum, gradient in zip(weights, momenta, gradients(weights, x, y), strict=True):
            momentum.mul_(DECAY).add_(gradient)
            weight.sub_(orthogonal(momentum), alpha=RATE)
    return weights


def in_shards(weights: list[Tensor], x: Tensor, y: Tensor, steps: int, ranks: int) -> tuple[list[Tensor], sw.Owners]:
    mesh = sw.Mesh((ranks,))
    shards = [sw.distribute(weight, mesh, [sw.Shard(0)]) for weight in weights]
    shards = [sw.MeshTensor(shard.local.clone(), shard.layout) for shard in shards]
    momenta = [sw.MeshTensor(torch.zeros_like(shard.local), shard.layout) for shard in shards]
    addends = [torch.empty_like(weight) for weight in weights]  # this rank's part of the sum that a gradient is
    sums = [sw.MeshTensor(a, s.layout.with_([sw.Partial()])) for a, s in zip(addends, shards, strict=True)]

    # Each is planned and agreed on once, and run in every step.
    gather = sw.prepare(sw.redistribute, shards, [sw.Replicate()])
    reduce = sw.prepare(sw.redistribute, sums, [sw.Shard(0)])
    owners = sw.to_owners(momenta)
    for _ in range(steps):
        whole = [weight.local for weight in gather.run()]
        for addend, gradient in zip(addends, gradients(whole, x, y), strict=True):
            addend.copy_(gradient)
        for momentum, gradient in zip(momenta, reduce.run(), strict=True):
            momentum.local.mul_(DECAY).add_(gradient.local)
        updates = owners.back({i: orthogonal(matrix) for i, matrix in owners.run().items()})
        for shard, update in zip(shards, updates, strict=True):
            shard.local.sub_(update.local, alpha=RATE)
    return [weight.local for weight in gather.run()], owners


def train(rank: int, ranks: int, width: int, steps: int) -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)  # the same weights and batch on every rank
    shapes = [(2 * width, width), (width, 2 * width), (width + 1, width), (2, width + 1)]
    weights = [torch.randn(shape) for shape in shapes]
    x, y = torch.randn(4 * ranks, width), torch.randn(4 * ranks, 2)
    wanted = one_process([weight.clone() for weight in weights], x, y, steps)

    mine = slice(rank, None, ranks)  # of the batch
    found, owners = in_shards(weights, x[mine], y[mine], steps, ranks)

    difference = max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True))
    worst, _ = sw.all_gather_v(torch.tensor([difference]))
    if rank == 0:
        print(f"{ranks} ranks, {len(shapes)} matrices, owned by ranks {list(owners.owner)}, {steps} steps")
        print(f"largest difference of a weight {float(worst.max()):.1e}", flush=True)
    if not difference < TOLERANCE:
        raise SystemExit(f"rank {rank}: the weights differ from those of one process by {difference:.1e}")
    if rank == 0 and bool((worst < TOLERANCE).all()):
        print("ok: the weights are those of one process")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Under torchrun it joins the ranks that torchrun started; otherwise it forks its own.",
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, help="ranks to fork (default: 4)")
    parser.add_argument("--width", type=int, default=7, help="features (default: 7)")
    parser.add_argument("--steps", type=int, default=5, help="steps of training (default: 5)")
    options = parser.parse_args()
    return run_ranks(train, options.ranks, options.width, options.steps)


if __name__ == "__main__":
    sys.exit(main())
