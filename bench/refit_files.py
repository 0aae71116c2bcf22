"""Ways to refit through files in memory: a distributed checkpoint, and safetensors."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from bench.refit_contenders import CHECKPOINT, SAFETENSORS, Way
from bench.refit_gloo import Groups
from bench.refit_models import Sides

TMPFS = Path("/dev/shm")


@contextmanager
def folder_in_memory() -> Iterator[Path | None]:
    """None where there is no tmpfs."""
    if not TMPFS.is_dir():
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="bench-refit-", dir=TMPFS))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def through_files(sides: Sides, groups: Groups, folder: Path) -> list[Way]:
    by_slices = safetensors(sides, folder)
    return [checkpoint(sides, groups, folder / "checkpoint"), *([by_slices] if by_slices is not None else [])]


def checkpoint(sides: Sides, groups: Groups, folder: Path) -> Way:
    import torch.distributed.checkpoint as dcp

    trainers = range(sides.trainers)
    generators = range(sides.trainers, sides.trainers + sides.generators)
    meshes = _Meshes(sides)
    state: dict[str, Any] = {}
    for name, layout in sides.before.items():
        if name in sides.model.owned and name in sides.ordinary:
            state[name] = sides.ordinary[name].local
        elif name not in sides.model.owned:
            made = meshes.dtensor(layout, sides.ordinary[name].local if name in sides.ordinary else None, trainers)
            state |= {name: made} if made is not None else {}
    wanted = {}
    for name, layout in sides.after.items():
        local = sides.destinations[name].local if sides.generator is not None else None
        wanted[name] = meshes.dtensor(layout, local, generators)

    def call() -> None:
        if sides.trainer is not None:
            writer = dcp.FileSystemWriter(folder, sync_files=False)
            dcp.save(state, storage_writer=writer, process_group=groups.of_trainers)
        dist.barrier()
        if sides.generator is not None:
            dcp.load(wanted, storage_reader=dcp.FileSystemReader(folder), process_group=groups.of_generators)

    def remove() -> None:
        dist.barrier()
        if sides.trainer == 0:
            shutil.rmtree(folder)
        dist.barrier()

    return Way(CHECKPOINT, call, remove, sides.model.bytes + sides.received_bytes)


class _Meshes:
    """torch's meshes for our layouts, in ranks of the default group. All ranks make each of them."""

    def __init__(self, sides: Sides) -> None:
        self._rank = dist.get_rank()
        self._made: dict[tuple[tuple[int, ...], tuple[int, ...]], Any] = {}

    def dtensor(self, layout: sw.Layout, local: Tensor | None, ranks: range) -> Any:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor, Replicate, Shard

        key = (layout.mesh.shape, tuple(ranks[rank] for rank in layout.mesh.ranks))
        if key not in self._made:
            self._made[key] = DeviceMesh("cpu", torch.tensor(key[1]).view(key[0]))
        if local is None:
            return None
        placements = [Shard(p.dim) if isinstance(p, sw.Shard) else Replicate() for p in layout.placements]
        shape = torch.Size(layout.shape)
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(local, self._made[key], placements, run_check=False, shape=shape, stride=stride)


def safetensors(sides: Sides, folder: Path) -> Way | None:
    """None where it is not installed."""
    if importlib.util.find_spec("safetensors") is None:
        return None
    from safetensors import safe_open
    from safetensors.torch import save_file

    def call() -> None:
        if sides.trainer is not None:
            parts = {name: t.local for name, t in sides.ordinary.items() if t.local is not None}
            save_file(parts, folder / f"{sides.trainer}.safetensors")
        dist.barrier()
        if sides.generator is not None:
            for trainer in range(sides.trainers):
                with safe_open(folder / f"{trainer}.safetensors", framework="pt") as file:
                    read(trainer, file)

    def read(trainer: int, file: Any) -> None:
        for name, boxes in sides.boxes.items():
            for box in boxes:
                if box.generator == sides.generator and box.trainer == trainer:
                    destination = sides.destinations[name].local
                    assert destination is not None
                    destination[box.ours].copy_(file.get_slice(name)[box.theirs])

    return Way(SAFETENSORS, call, sent=sides.model.bytes + sides.received_bytes)
