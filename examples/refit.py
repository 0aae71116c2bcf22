"""Two jobs, one link: after every step a trainer hands its weights to a generator that holds them in another way.

The trainer has q, k and v in float32, each with its rows over all ranks. A rank of the generator has its heads of all
three in one bfloat16 matrix. Neither knows the other's layout, and either may be started first:

    torchrun --nproc-per-node=2 --master-port=29601 examples/refit.py trainer &
    torchrun --nproc-per-node=2 --master-port=29602 examples/refit.py generator

Without a role it starts both, which know each other by the address alone.
"""

import os
import subprocess
import sys

import torch

import shardway as sw

ADDRESS = os.environ.get("REFIT_ADDRESS", "tcp://127.0.0.1:29700")
SECRET = os.environ.get("REFIT_SECRET", "of this example")
WIDTH, STEPS, RANK, SIZE = 12, 3, int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
ROWS = sw.Layout((WIDTH, WIDTH), torch.float32, sw.Mesh((SIZE,)), [sw.Shard(0)])


def weight(name: str, step: int) -> torch.Tensor:  # what one process would have: training adds 1
    return torch.arange(WIDTH * WIDTH).view(WIDTH, WIDTH) + 1000.0 * "qkv".index(name) + step


def mine(whole: torch.Tensor) -> torch.Tensor:
    return whole.chunk(SIZE)[RANK].clone()


def train(link: sw.JobLink) -> None:
    weights = {name: mine(weight(name, 0)) for name in "qkv"}
    source = link.publish({name: sw.MeshTensor(rows, ROWS) for name, rows in weights.items()})
    for _ in range(STEPS):
        for rows in weights.values():
            rows += 1
        source.send()


def generate(link: sw.JobLink) -> None:
    heads = sw.Layout(ROWS.shape, torch.bfloat16, ROWS.mesh, ROWS.placements)
    fused = torch.empty(3 * WIDTH // SIZE, WIDTH, dtype=torch.bfloat16)
    target = link.subscribe({n: sw.MeshTensor(v, heads) for n, v in zip("qkv", fused.chunk(3), strict=True)}, cast=True)
    for step in range(1, STEPS + 1):
        version = target.receive()  # between two batches: nobody reads the weights meanwhile
        expected = torch.cat([mine(weight(name, step)).bfloat16() for name in "qkv"])
        sys.stdout.write(f"{'ok' if torch.equal(fused, expected) else 'WRONG'}: version {version} on rank {RANK}\n")


if len(sys.argv) > 1:
    with sw.connect(ADDRESS, sys.argv[1], secret=SECRET, timeout=60) as link:
        {"trainer": train, "generator": generate}[sys.argv[1]](link)
else:
    jobs = [(role, size, rank) for role, size in (("generator", 2), ("trainer", 2)) for rank in range(size)]
    env = [os.environ | {"RANK": str(rank), "WORLD_SIZE": str(size)} for _, size, rank in jobs]
    ranks = [subprocess.Popen([sys.executable, __file__, job[0]], env=e) for job, e in zip(jobs, env, strict=True)]
    sys.exit(max(rank.wait() for rank in ranks))
