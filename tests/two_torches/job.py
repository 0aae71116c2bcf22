"""One rank of one of two jobs: python job.py ADDRESS ROLE RANK SIZE WHAT. It needs torch and shardway alone, and prints
as JSON which ones it found and what came of it."""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

import torch
import torch.distributed as dist

import shardway as sw

DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
]
SHAPE = (7, 5)
LARGE = (1031, 257)
VERSIONS = (1, 2, 3)
CAST = "cast"


def whole(name: str, version: int) -> torch.Tensor:
    """Each element has bits of its own: bytes that count on, from another one for each name and version."""
    if name in ("large", CAST):
        return torch.arange(LARGE[0] * LARGE[1]).view(LARGE).to(torch.float32) * version
    if name == "bool":
        return (torch.arange(SHAPE[0] * SHAPE[1]) % (version + 2) == 0).view(SHAPE)
    dtype = getattr(torch, name)
    count = SHAPE[0] * SHAPE[1] * torch.empty(0, dtype=dtype).element_size()
    counted = (torch.arange(count) * 7 + 31 * version + len(name)) % 251
    return counted.to(torch.uint8).view(dtype).view(SHAPE)


def layout(name: str, size: int, dim: int, dtype: torch.dtype | None = None) -> sw.Layout:
    there = whole(name, 1)
    return sw.Layout(tuple(there.shape), dtype or there.dtype, sw.Mesh((size,)), [sw.Shard(dim)])


def part(name: str, version: int, size: int, rank: int, dim: int) -> torch.Tensor:
    """As torch.chunk splits: what shardway says of its layouts is not asked."""
    chunks = whole(name, version).chunk(size, dim)
    return chunks[rank] if rank < len(chunks) else whole(name, version).narrow(dim, 0, 0)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


NAMES = [*DTYPES, "large", CAST]


def send(link: sw.JobLink) -> list[int]:
    held = {name: part(name, 0, link.size, link.rank, 0).contiguous().clone() for name in NAMES}
    source = link.publish({name: sw.MeshTensor(t, layout(name, link.size, 0)) for name, t in held.items()})
    sent = []
    for version in VERSIONS:
        for name, tensor in held.items():
            tensor.copy_(part(name, version, link.size, link.rank, 0))
        sent.append(source.send(wait=version != 2))
    return sent


def receive(link: sw.JobLink) -> list[int]:
    kept = {}
    for name in NAMES:
        like = part(name, 1, link.size, link.rank, 1)
        kept[name] = torch.zeros(like.shape, dtype=torch.bfloat16 if name == CAST else like.dtype)
    declared = {name: sw.MeshTensor(t, layout(name, link.size, 1, t.dtype)) for name, t in kept.items()}
    target = link.subscribe(declared, cast=True)
    received = []
    for version in VERSIONS:
        received.append(target.receive())
        for name, tensor in kept.items():
            expected = part(name, version, link.size, link.rank, 1).to(tensor.dtype)
            if not same_bits(tensor, expected):
                raise AssertionError(f"version {version}: {name} is not what was sent: {tensor} instead of {expected}")
    return received


def publish_other_shape(link: sw.JobLink) -> str:
    """`publish` is refused if the other job subscribed first, else `send`. The link is usable after that."""
    try:
        link.publish({"w": torch.ones(2, 3)}).send()
    except ValueError as error:
        link.publish({"w": torch.ones(2, 3)}).send()
        return str(error)
    raise AssertionError("neither publish nor send raised")


def subscribe_other_shape(link: sw.JobLink) -> str:
    try:
        link.subscribe({"w": torch.zeros(2, 4)})
    except ValueError as error:
        here = torch.zeros(2, 3)
        link.subscribe({"w": here}).receive()
        if not torch.equal(here, torch.ones(2, 3)):
            raise AssertionError(f"{here} arrived") from error
        return str(error)
    raise AssertionError("subscribe raised nothing")


def send_in_vain(link: sw.JobLink) -> str:
    source = link.publish({"w": torch.ones(2, 3)})
    source.send()
    try:
        source.send()
    except dist.DistBackendError as error:
        return str(error)
    raise AssertionError("send raised nothing")


def die_after_one(link: sw.JobLink) -> NoReturn:
    link.subscribe({"w": torch.zeros(2, 3)}).receive()
    os._exit(0)


WHAT = {
    run.__name__: run
    for run in (send, receive, publish_other_shape, subscribe_other_shape, send_in_vain, die_after_one)
}


def main() -> None:
    address, role, rank, size, what = sys.argv[1:]
    with sw.connect(address, role, int(rank), int(size), secret="open", timeout=60) as link:
        came = WHAT[what](link)
    print(json.dumps({"torch": torch.__version__, "shardway": sw.__file__, "came": came}))


if __name__ == "__main__":
    main()
