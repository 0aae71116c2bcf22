"""The ways to refit that bench/refit.py compares. Each leaves the model in the destinations of the generators."""

from __future__ import annotations

import importlib.util
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from bench.refit_models import Sides
from tests.support.jobs import free_ports

FIRST = "shardway, first time"
OURS = "shardway"
SHARED = "shardway, sources in shared memory"
HOLDS = "shardway without waiting: what it holds the trainer"
GATHERED = "gather and broadcast on gloo, per tensor"
BUCKETS = "gather and broadcast on gloo, in buckets"
MESSAGES = "send and recv on gloo, per parameter"
CHECKPOINT = "distributed checkpoint in tmpfs"
SAFETENSORS = "safetensors in tmpfs"
COPY = "plain copy of the generators' parts"
TRAINER_COPY = "plain copy of the trainers' parts"
BUCKET_BYTES = 512 << 20
TMPFS = Path("/dev/shm")
_TIMEOUT_S = 600.0

LEFT_OUT = """
Stores that are not compared: torchstore 0.1.2 pins torch 2.9 and torchmonarch; checkpoint-engine, nixl and Mooncake's
transfer engine move memory of GPUs or need RDMA; Ray's object store needs daemons of its own.
"""


@dataclass
class Way:
    """One contender on one rank. `after` runs untimed, when all ranks have ended the call."""

    name: str
    call: Callable[[], object]
    after: Callable[[], object] = lambda: None
    sent: int = 0  # bytes that all ranks together receive from others
    delivers: bool = True  # the destinations have the model afterwards


class Groups:
    """Of gloo: all ranks, the trainers, the generators, and each trainer with all generators."""

    def __init__(self, trainers: int, generators: int) -> None:
        everybody = range(trainers + generators)
        self.of_trainers = dist.new_group(list(everybody[:trainers]))
        self.of_generators = dist.new_group(list(everybody[trainers:]))
        self.from_trainer = [dist.new_group([trainer, *everybody[trainers:]]) for trainer in range(trainers)]


def places(count: int) -> list[str]:
    """Addresses for links; made before the ranks are forked."""
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(count)]


# Ours.


def _connected(sides: Sides, address: str) -> sw.JobLink:
    is_trainer = sides.trainer is not None
    role, size = ("trainer", sides.trainers) if is_trainer else ("generator", sides.generators)
    rank = sides.trainer if is_trainer else sides.generator
    return sw.connect(address, role, rank, size, secret="of this benchmark", timeout=_TIMEOUT_S)


class Linked:
    """A link on which this rank sends or receives."""

    def __init__(self, sides: Sides, address: str, sources: Mapping[str, sw.MeshTensor]) -> None:
        self.link = _connected(sides, address)
        self.source = self.link.publish(sources) if sides.trainer is not None else None
        self.target = self.link.subscribe(sides.destinations) if sides.generator is not None else None
        self._held = 0

    def move(self) -> None:
        if self.source is not None:
            self.source.send()
        if self.target is not None:
            self.target.receive()

    def send_without_waiting(self) -> None:
        if self.source is not None:
            self._held = self.source.send(wait=False)

    def receive_what_is_held(self) -> None:
        if self.target is not None:
            self.target.receive()
            return
        assert self.source is not None
        while self.source.version < self._held:
            time.sleep(1e-4)


def ours(sides: Sides, addresses: Sequence[str], first: Sequence[str]) -> list[Way]:
    """Links that stay, in lock-step and without waiting; and new ones at the addresses `first`, one a call."""
    ordinary, shared, held = (
        Linked(sides, address, sources)
        for address, sources in zip(addresses, (sides.ordinary, sides.shared, sides.ordinary), strict=True)
    )
    ordinary.move()
    sent = sum(map(sum, ordinary.link.plan.bytes))
    unused, made = iter(first), []

    def first_time() -> None:
        made.append(Linked(sides, next(unused), sides.ordinary))
        made[0].move()

    return [
        Way(FIRST, first_time, lambda: made.pop().link.close(), sent),
        Way(OURS, ordinary.move, sent=sent),
        Way(SHARED, shared.move, sent=sent),
        Way(HOLDS, held.send_without_waiting, held.receive_what_is_held, sent),
    ]


# On gloo.


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)


def gathered(sides: Sides, groups: Groups) -> Way:
    """A tensor after the other: whole on the first trainer, then to all generators, who cut their parts out. What lies
    whole on one trainer goes from there."""
    model, item = sides.model, sides.model.dtype.itemsize
    rows = {name: -(-shape[0] // sides.trainers) for name, shape in model.shapes.items()}  # of a chunk
    most = max(sides.trainers * rows[name] * math.prod(shape[1:]) for name, shape in model.shapes.items())
    wholes = torch.zeros(most, dtype=model.dtype)
    chunk = torch.zeros(-(-most // sides.trainers), dtype=model.dtype)
    sent = sum(
        math.prod(shape) * item * sides.generators
        + (0 if name in model.owned else (sides.trainers - 1) * rows[name] * math.prod(shape[1:]) * item)
        for name, shape in model.shapes.items()
    )

    def whole_on_first(name: str, shape: tuple[int, ...]) -> Tensor:
        """Chunks are padded to one length, as FSDP does."""
        count = rows[name] * math.prod(shape[1:])
        local = sides.ordinary[name].local
        assert local is not None
        mine = local.reshape(-1)
        if mine.numel() < count:
            chunk[: mine.numel()].copy_(mine)
            mine = chunk[:count]
        into = wholes[: sides.trainers * count]
        parts = [_bytes_of(part) for part in into.chunk(sides.trainers)] if sides.trainer == 0 else None
        dist.gather(_bytes_of(mine), parts, dst=0, group=groups.of_trainers)
        return into[: math.prod(shape)].view(shape)

    def call() -> None:
        for name, shape in model.shapes.items():
            root = model.owned.get(name, 0)
            whole = wholes[: math.prod(shape)].view(shape)
            if name in model.owned:
                local = sides.ordinary[name].local if sides.trainer == root else None
                whole = whole if local is None else local
            elif sides.trainer is not None:
                whole = whole_on_first(name, shape)
            if sides.trainer in (root, None):
                dist.broadcast(_bytes_of(whole), root, group=groups.from_trainer[root])
            if sides.generator is not None:
                _land(sides, name, whole)

    return Way(GATHERED, call, sent=sent)


def _land(sides: Sides, name: str, whole: Tensor) -> None:
    destination = sides.destinations[name].local
    assert destination is not None
    offset, extent = sides.after[name].box(sides.generator)
    for dim, (begin, length) in enumerate(zip(offset, extent, strict=True)):
        whole = whole.narrow(dim, begin, length)
    destination.copy_(whole)


def in_buckets(sides: Sides, groups: Groups) -> Way:
    """Each trainer packs its parts of a bucket into one buffer. The buffers are gathered, then broadcast as one."""
    buckets = list(_buckets(sides))
    most = max(bucket.bytes for bucket in buckets)
    mine = torch.zeros(most, dtype=torch.uint8)
    everybodys = torch.zeros(sides.trainers * most, dtype=torch.uint8)
    sent = sum((sides.trainers - 1 + sides.generators * sides.trainers) * bucket.bytes for bucket in buckets)

    def pack(bucket: Bucket) -> Tensor:
        for name in bucket.names:
            begin = bucket.begins[sides.trainer or 0].get(name)
            if begin is not None:
                local = sides.ordinary[name].local
                assert local is not None
                mine[begin : begin + local.nbytes].copy_(_bytes_of(local))
        return mine[: bucket.bytes]

    def unpack(bucket: Bucket, flats: Sequence[Tensor]) -> None:
        for name in bucket.names:
            destination = sides.destinations[name].local
            assert destination is not None
            for box in sides.boxes[name]:
                if box.generator == sides.generator:
                    begin = bucket.begins[box.trainer][name]
                    shape = sides.before[name].box(box.trainer)[1]
                    count = math.prod(shape) * destination.element_size()
                    part = flats[box.trainer][begin : begin + count].view(destination.dtype).view(shape)
                    destination[box.ours].copy_(part[box.theirs])

    def call() -> None:
        for bucket in buckets:
            all_flats = everybodys[: sides.trainers * bucket.bytes]
            flats = list(all_flats.chunk(sides.trainers))
            if sides.trainer is not None:
                into = flats if sides.trainer == 0 else None
                dist.gather(pack(bucket), into, dst=0, group=groups.of_trainers)
            if sides.trainer in (0, None):
                dist.broadcast(all_flats, 0, group=groups.from_trainer[0])
            if sides.generator is not None:
                unpack(bucket, flats)

    return Way(BUCKETS, call, sent=sent)


@dataclass
class Bucket:
    names: list[str]
    begins: list[dict[str, int]]  # by trainer, where in its buffer a part begins
    bytes: int  # of the largest buffer


def _buckets(sides: Sides) -> Iterator[Bucket]:
    item = sides.model.dtype.itemsize
    names, size = [], 0
    for name, shape in sides.model.shapes.items():
        if names and size + math.prod(shape) * item > BUCKET_BYTES:
            yield _bucket(sides, names)
            names, size = [], 0
        names.append(name)
        size += math.prod(shape) * item
    yield _bucket(sides, names)


def _bucket(sides: Sides, names: list[str]) -> Bucket:
    begins: list[dict[str, int]] = [{} for _ in range(sides.trainers)]
    ends = [0] * sides.trainers
    for name in names:
        for trainer in sides.before[name].mesh.ranks:
            begins[trainer][name] = ends[trainer]
            ends[trainer] += math.prod(sides.before[name].box(trainer)[1]) * sides.model.dtype.itemsize
    return Bucket(names, begins, max(ends))


def messages(sides: Sides) -> Way:
    """Each box in a message of its own; all messages of a tensor are under way together."""
    kept = {
        (name, box.trainer): torch.empty(box.shape, dtype=sides.model.dtype)
        for name, boxes in sides.boxes.items()
        for box in boxes
        if box.generator == sides.generator
    }

    def call() -> None:
        for name, boxes in sides.boxes.items():
            under_way = []
            if sides.trainer is not None and name in sides.ordinary:
                local = sides.ordinary[name].local
                assert local is not None
                for box in boxes:
                    if box.trainer == sides.trainer:
                        part = local[box.theirs].contiguous()
                        under_way.append(dist.isend(_bytes_of(part), sides.trainers + box.generator))
            mine = [box for box in boxes if box.generator == sides.generator]
            under_way += [dist.irecv(_bytes_of(kept[name, box.trainer]), box.trainer) for box in mine]
            for work in under_way:
                assert work is not None
                work.wait()
            for box in mine:
                destination = sides.destinations[name].local
                assert destination is not None
                destination[box.ours].copy_(kept[name, box.trainer])

    return Way(MESSAGES, call, sent=sides.received_bytes)


# Through files in memory.


@contextmanager
def folder_in_memory() -> Iterator[Path | None]:
    """None where there is no tmpfs."""
    if not TMPFS.is_dir():
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="shardway-bench-", dir=TMPFS))
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


# The floors.


def copies(sides: Sides) -> list[Way]:
    """All receivers copy what they are to have at once, and all senders what they have, into warm memory."""
    kept = {name: tensor.clone() for name, tensor in sides.engine.items()} if sides.generator is not None else {}
    parts = {name: t.local.clone() for name, t in sides.ordinary.items() if t.local is not None}

    def copy_engine() -> None:
        for name, tensor in kept.items():
            sides.engine[name].copy_(tensor)

    def copy_sources() -> None:
        for name, part in parts.items():
            part.copy_(sides.ordinary[name].local)

    return [Way(COPY, copy_engine, delivers=False), Way(TRAINER_COPY, copy_sources, delivers=False)]
