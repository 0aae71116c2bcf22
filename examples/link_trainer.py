"""The training job of two: torchrun --standalone --nproc-per-node 2 link_trainer.py"""

import torch

import shardway as sw

address = "tcp://127.0.0.1:29700"  # a free port on the host where this job's rank 0 runs; the same in both programs

with sw.connect(address, role="trainer", secret="a secret of both") as link:  # waits for this job's ranks only
    mesh = sw.Mesh((link.size,))
    layout = sw.Layout((4, 6), torch.float32, mesh, [sw.Shard(0)])  # a 4x6 weight, of which each rank has some rows
    rows = torch.zeros(layout.box(link.rank)[1])  # box: where this rank's part begins, and its shape
    source = link.publish({"w": sw.MeshTensor(rows, layout)})
    for _ in range(3):
        rows += 1  # the training
        version = source.send()  # waits until the other job has it
        print(f"trainer rank {link.rank} sent version {version}", flush=True)
