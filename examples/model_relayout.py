"""A transformer whose parameters move from FSDP-like shards to tensor parallelism and back, all of them at once.

In training every parameter is cut by rows over all ranks. For tensor parallelism the ranks form two rows of a mesh, and
attention and MLP are cut by columns, then by rows, within each. One call moves the whole model there, another one back,
and the bits are the same as before. DTensor has no move between two meshes: beside ours stands the time in which it
gathers each parameter and cuts it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from launch import run_ranks
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import shardway as sw

REPEATS = 5
COLUMNS = ("in_proj_weight", "in_proj_bias", "linear1.weight", "linear1.bias")  # of the layer's matrix: torch's dim 0
ROWS = ("out_proj.weight", "linear2.weight")


def parameters_of(width: int, layers: int) -> dict[str, Tensor]:
    layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, batch_first=True)
    return {name: p.detach() for name, p in nn.TransformerEncoder(layer, layers).named_parameters()}


def cut_dim(name: str) -> int | None:
    """The dim that tensor parallelism cuts; None where every rank has all of it."""
    return 0 if name.endswith(COLUMNS) else 1 if name.endswith(ROWS) else None


def milliseconds(move: Callable[[], Any]) -> float:
    """The fastest of a few, after one that warms up."""
    times = []
    for _ in range(REPEATS + 1):
        dist.barrier()
        began = time.perf_counter()
        move()
        times.append(time.perf_counter() - began)
    return min(times[1:]) * 1e3


def theirs(whole: dict[str, Tensor], mesh: DeviceMesh, ranks: int) -> Callable[[], Any]:
    sharded = {n: distribute_tensor(p, init_device_mesh("cpu", (ranks,)), [Shard(0)]) for n, p in whole.items()}

    placements = {n: [Replicate(), Replicate() if (d := cut_dim(n)) is None else Shard(d)] for n in whole}
    return lambda: [
        distribute_tensor(p.full_tensor(), mesh, placements[n], src_data_rank=None) for n, p in sharded.items()
    ]


def relayout(rank: int, ranks: int, width: int, layers: int) -> None:
    torch.manual_seed(0)  # the same parameters on every rank
    whole = parameters_of(width, layers)
    flat = sw.Mesh((ranks,), names=("fsdp",))
    grid = sw.Mesh((2, ranks // 2) if ranks % 2 == 0 else (1, ranks), names=("dp", "tp"))
    sharded = [sw.distribute(p, flat, [sw.Shard(0)]) for p in whole.values()]
    cuts = [cut_dim(name) for name in whole]
    parallel_placements = [[sw.Replicate(), sw.Replicate() if d is None else sw.Shard(d)] for d in cuts]

    parallel = sw.redistribute(sharded, parallel_placements, mesh=grid)
    back = sw.redistribute(parallel, [sw.Shard(0)], mesh=flat)
    for name, before, after in zip(whole, sharded, back, strict=True):
        if not torch.equal(before.local, after.local):
            raise SystemExit(f"rank {rank}: {name} came back with other bits")

    ours = milliseconds(lambda: sw.redistribute(sharded, parallel_placements, mesh=grid))
    dtensors = milliseconds(theirs(whole, init_device_mesh("cpu", tuple(grid.shape)), ranks))
    if rank == 0:
        largest = max(range(len(cuts)), key=lambda i: sharded[i].shape.numel() * (cuts[i] is not None))
        print(f"{ranks} ranks, {len(whole)} parameters, {flat!r} to {grid!r}; the largest that is cut:")
        print(sw.plan(sharded[largest].layout, parallel[largest].layout).explain())
        print(f"{ours:.2f} ms for all at once; DTensor gathers and cuts them one by one in {dtensors:.2f} ms")
        print("ok: every parameter came back bit by bit", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Under torchrun it joins the ranks that torchrun started; otherwise it forks its own.",
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, help="ranks to fork (default: 4)")
    parser.add_argument("--width", type=int, default=64, help="features (default: 64)")
    parser.add_argument("--layers", type=int, default=4, help="layers of the transformer (default: 4)")
    options = parser.parse_args()
    return run_ranks(relayout, options.ranks, options.width, options.layers)


if __name__ == "__main__":
    sys.exit(main())
