"""Weights that move from the mesh they were trained on to an inference mesh of another shape and other ranks.

Training: all ranks, as data parallel times tensor parallel, every weight sharded along both. Inference: the second half
of the ranks alone, tensor parallel. All weights are on their way at once. The logits are those of one process that has
the whole weights.
"""

from __future__ import annotations

import argparse
import sys

import torch
from launch import run_ranks
from torch import Tensor

import shardway as sw

TOLERANCE = 1e-10
PLACEMENTS = {"up": [sw.Shard(1)], "down": [sw.Shard(0)]}  # at inference: columns, then rows


def training_mesh(ranks: int) -> sw.Mesh:
    return sw.Mesh((2, ranks // 2) if ranks % 2 == 0 else (1, ranks), names=("dp", "tp"))


def inference_mesh(ranks: int) -> sw.Mesh:
    serving = range(ranks // 2, ranks)
    return sw.Mesh((len(serving),), ranks=serving, names=("tp",))


def move(trained: dict[str, sw.MeshTensor], mesh: sw.Mesh) -> dict[str, sw.MeshTensor]:
    handles = {
        name: sw.redistribute(weight, PLACEMENTS[name], mesh=mesh, async_op=True) for name, weight in trained.items()
    }
    return {name: handle.wait() for name, handle in handles.items()}


def logits_of(x: Tensor, weights: dict[str, sw.MeshTensor], mesh: sw.Mesh) -> Tensor | None:
    """On every rank of the inference mesh; None on the others, which take part all the same."""
    up, down = weights["up"].local, weights["down"].local
    addend = None if up is None or down is None else torch.relu(x @ up) @ down
    layout = sw.Layout((len(x), weights["down"].shape[1]), x.dtype, mesh, [sw.Partial()])
    return sw.MeshTensor(addend, layout).full()


def serve(rank: int, ranks: int, width: int) -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)  # the same weights and prompts on every rank
    whole = {"up": torch.randn(width, 2 * width + 1), "down": torch.randn(2 * width + 1, width)}
    prompts = torch.randn(3, width)
    expected = torch.relu(prompts @ whole["up"]) @ whole["down"]

    training, inference = training_mesh(ranks), inference_mesh(ranks)
    trained = {name: sw.distribute(w, training, [sw.Shard(0), sw.Shard(1)]) for name, w in whole.items()}
    weights = move(trained, inference)
    found = logits_of(prompts, weights, inference)

    if (found is None) != (rank not in inference.ranks):
        raise SystemExit(f"rank {rank}: logits are on the ranks of the inference mesh alone")
    difference = 0.0 if found is None else float((found - expected).abs().max())
    worst, _ = sw.all_gather_v(torch.tensor([difference]))
    if rank == 0:  # says all of it, so that nothing comes between its lines
        print(f"{ranks} ranks, {training!r} to {inference!r}")
        for name, weight in trained.items():
            print(sw.plan(weight.layout, weights[name].layout).explain().splitlines()[0])
        print(f"largest difference of a logit {float(worst.max()):.1e}", flush=True)
    if not difference < TOLERANCE:
        raise SystemExit(f"rank {rank}: the logits differ from those of one process by {difference:.1e}")
    if rank == 0 and bool((worst < TOLERANCE).all()):
        print(f"ok: the logits on ranks {list(inference.ranks)} are those of one process")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Under torchrun it joins the ranks that torchrun started; otherwise it forks its own.",
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, help="ranks to fork (default: 4)")
    parser.add_argument("--width", type=int, default=7, help="features (default: 7)")
    options = parser.parse_args()
    return run_ranks(serve, options.ranks, options.width)


if __name__ == "__main__":
    sys.exit(main())
