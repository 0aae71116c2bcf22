"""The files of `sw.trace`, as ranks of a test write and read them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch.distributed as dist


def shared_path(rank: int) -> Path:
    """One for all ranks, in a folder that nobody else has."""
    found: list[Any] = [f"/tmp/shardway-trace-{os.getpid()}/trace.json" if rank == 0 else None]
    dist.broadcast_object_list(found)
    Path(found[0]).parent.mkdir(exist_ok=True)
    return Path(found[0])


def whole_document(path: Path) -> dict[str, Any]:
    dist.barrier()  # every rank has stopped
    document: dict[str, Any] = json.loads(path.read_text())
    dist.barrier()
    return document


def clear(path: Path, rank: int) -> None:
    dist.barrier()
    if rank == 0:
        for file in path.parent.iterdir():
            file.unlink()
        path.parent.rmdir()


def slices(document: dict[str, Any], kind: str, rank: int | None = None) -> list[dict[str, Any]]:
    found = [event for event in document["traceEvents"] if event["ph"] == "X" and event["cat"] == kind]
    return sorted((event for event in found if rank in (None, event["pid"])), key=lambda event: event["ts"])
