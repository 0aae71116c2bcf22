"""The inference job of two: torchrun --standalone --nproc-per-node 2 link_generator.py"""

import torch

import shardway as sw

address = "tcp://127.0.0.1:29700"  # that of link_trainer.py

with sw.connect(address, role="generator", secret="a secret of both") as link:
    mesh = sw.Mesh((link.size,))
    layout = sw.Layout((4, 6), torch.float32, mesh, [sw.Shard(1)])  # the same weight, but columns on each rank
    columns = torch.empty(layout.box(link.rank)[1])
    target = link.subscribe({"w": sw.MeshTensor(columns, layout)})
    for step in range(3):
        version = target.receive()  # waits for the next version, and writes it into columns
        assert version == step + 1 and bool((columns == version).all())
        print(f"generator rank {link.rank} has version {version}: {tuple(columns.shape)}", flush=True)
