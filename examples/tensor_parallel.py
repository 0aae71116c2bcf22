"""A tensor-parallel MLP: the first weight in columns, the second in rows; ranks need not divide the hidden size.

Every rank holds some columns of the first weight and the rows of the second that belong to them, so that the hidden
activations never leave it. Its product is an addend of the output: one redistribute from Partial to Replicate adds them
up. What the ranks say about the input's gradient are addends too, as grad_placements says. The loss and all gradients
are those of one process that has the whole weights.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.nn.functional as F
from launch import run_ranks
from torch import Tensor

import shardway as sw

FEATURES, OUTPUTS, BATCH = 6, 5, 7
TOLERANCE = 1e-10


def make_model(hidden: int) -> dict[str, Tensor]:
    shapes = {"first": (FEATURES, hidden), "bias": (hidden,), "second": (hidden, OUTPUTS)}
    return {name: torch.randn(shape).requires_grad_() for name, shape in shapes.items()}


def one_process(x: Tensor, targets: Tensor, model: dict[str, Tensor]) -> Tensor:
    hidden = F.gelu(x @ model["first"] + model["bias"])
    return F.mse_loss(hidden @ model["second"], targets)


def parallel(x: Tensor, targets: Tensor, parts: dict[str, Tensor], mesh: sw.Mesh) -> Tensor:
    """The same loss, on every rank, from this rank's part of each weight."""
    whole = sw.MeshTensor(x, sw.Layout(x.shape, x.dtype, mesh, [sw.Replicate()]))
    used = sw.redistribute(whole, [sw.Replicate()], grad_placements=[sw.Partial()]).local
    hidden = F.gelu(used @ parts["first"] + parts["bias"])
    addend = hidden @ parts["second"]
    output = sw.MeshTensor(addend, sw.Layout(addend.shape, addend.dtype, mesh, [sw.Partial()]))
    return F.mse_loss(sw.redistribute(output, [sw.Replicate()]).local, targets)


def step(rank: int, ranks: int, hidden: int) -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)  # the same model and the same batch on every rank
    model = make_model(hidden)
    x, targets = torch.randn(BATCH, FEATURES, requires_grad=True), torch.randn(BATCH, OUTPUTS)
    expected = one_process(x, targets, model)
    expected_grads = dict(zip(["x", *model], torch.autograd.grad(expected, [x, *model.values()]), strict=True))

    mesh = sw.Mesh((ranks,), names=("tp",))
    placements = {"first": [sw.Shard(1)], "bias": [sw.Shard(0)], "second": [sw.Shard(0)]}
    sharded = {name: sw.distribute(model[name].detach(), mesh, placements[name]) for name in model}
    parts = {name: t.local.clone().requires_grad_() for name, t in sharded.items()}
    own = x.detach().requires_grad_()
    loss = parallel(own, targets, parts, mesh)
    grads = dict(zip(["x", *parts], torch.autograd.grad(loss, [own, *parts.values()]), strict=True))
    for name, t in sharded.items():  # each rank has the gradient of its part: compare the whole
        grads[name] = sw.MeshTensor(grads[name], t.layout).full()

    differences = {name: distance(grads[name], expected_grads[name]) for name in grads}
    differences["loss"] = distance(loss, expected)
    if rank == 0:
        columns = [sharded["first"].layout.box(r)[1][1] for r in range(ranks)]
        print(f"{ranks} ranks, hidden columns per rank {columns}")
        print(f"loss: one process {expected:.12f}, tensor parallel {loss:.12f}")
        print(f"largest difference of a gradient {max(differences.values()):.1e}", flush=True)
    if not max(differences.values()) < TOLERANCE:
        raise SystemExit(f"rank {rank}: not the loss and gradients of one process: {differences}")
    if rank == 0:
        print("ok: loss and gradients are those of one process")


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().abs().max())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Under torchrun it joins the ranks that torchrun started; otherwise it forks its own.",
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, help="ranks to fork (default: 4)")
    parser.add_argument("--hidden", type=int, default=10, help="hidden size (default: 10)")
    options = parser.parse_args()
    return run_ranks(step, options.ranks, options.hidden)


if __name__ == "__main__":
    sys.exit(main())
