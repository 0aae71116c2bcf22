"""A rank of the trainer: python trainer.py ADDRESS RANK SIZE. It holds rows of each weight, and sends each version."""

from __future__ import annotations

import sys

import torch

import shardway as sw

from .small_model import VERSIONS, shapes, weights


def main() -> None:
    address, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    mesh = sw.Mesh((size,))
    layouts = {name: sw.Layout(shape, torch.float32, mesh, [sw.Shard(0)]) for name, shape in shapes().items()}
    parts = {name: torch.zeros(layout.box(rank)[1]) for name, layout in layouts.items()}
    with sw.connect(address, "trainer", rank, size, timeout=200) as link:
        source = link.publish({name: sw.MeshTensor(part, layouts[name]) for name, part in parts.items()})
        for version in VERSIONS:
            for name, whole in weights(version).items():
                offset, extent = layouts[name].box(rank)
                parts[name].copy_(whole[offset[0] : offset[0] + extent[0]])
            source.send()


if __name__ == "__main__":
    main()
