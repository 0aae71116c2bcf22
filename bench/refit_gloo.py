"""Ways to refit on gloo: gather and broadcast, per tensor and in buckets, and messages per parameter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from bench.refit_contenders import BUCKETS, GATHERED, MESSAGES, Way
from bench.refit_models import Sides

BUCKET_BYTES = 512 << 20


class Groups:
    """Of gloo: all ranks, the trainers, the generators, and each trainer with all generators."""

    def __init__(self, trainers: int, generators: int) -> None:
        everybody = range(trainers + generators)
        self.of_trainers = dist.new_group(list(everybody[:trainers]))
        self.of_generators = dist.new_group(list(everybody[trainers:]))
        self.from_trainer = [dist.new_group([trainer, *everybody[trainers:]]) for trainer in range(trainers)]


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
