"""Random collectives in shared memory for minutes, every result checked, and nothing may grow.

    make soak                                  ten minutes, 3 ranks
    python -m tests.soak --minutes 1 --ranks 4 --seed 7

Each round draws an op, a group (all ranks, or a new one of some of them), a dtype, a dim, sizes from none to some
hundred thousand elements per rank, where and how each rank's input lies, and whether the call waits. What it gives is
compared, bit for bit, with what one process computes from the inputs of all ranks. File descriptors, mappings and
resident memory are looked at every few seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from tests.support.dense import (
    FLOATS,
    INTEGERS,
    MOVABLE,
    Draw,
    assert_same_bits,
    block,
    exchanged,
    gathered,
    memory_forms,
    reduced,
    resized,
)
from tests.support.ranks import run_ranks

OPS = ("all_gather_v", "reduce_scatter_v", "all_to_all_v")
LOOK_EVERY_S = 5.0
WARM_UP_SHARE = 0.25  # of the time: caches and rings fill until then
MAY_GROW_BYTES = 64 << 20  # up and down by a third of it is usual; 10 KB lost in a round are more in ten minutes
MAY_GROW_MAPPINGS = 40


def main() -> int:
    options = _parser().parse_args()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}, {options.ranks} ranks, {options.minutes:g} minutes", flush=True)
    seconds = 60 * options.minutes
    rounds = run_ranks(options.ranks, _soak, seed, seconds, timeout_s=seconds + 120)
    print(f"{rounds[0]} rounds, every result right, nothing grew")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, help="of a run to repeat (default: a new one, which is printed)")
    return parser


@dataclass(frozen=True)
class Usage:
    fds: int
    mappings: int
    resident_bytes: int

    @staticmethod
    def now() -> Usage:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        mappings = len(Path("/proc/self/maps").read_text().splitlines())
        return Usage(len(os.listdir("/proc/self/fd")), mappings, pages * os.sysconf("SC_PAGE_SIZE"))

    def check(self, before: Usage) -> None:
        assert self.fds <= before.fds, f"{before} became {self}"
        assert self.mappings <= before.mappings + MAY_GROW_MAPPINGS, f"{before} became {self}"
        assert self.resident_bytes <= before.resident_bytes + MAY_GROW_BYTES, f"{before} became {self}"


def _soak(rank: int, size: int, seed: int, seconds: float) -> int:
    began = last_look = time.monotonic()
    warm: Usage | None = None
    rounds = 0
    while _rank_0_says((now := time.monotonic()) - began < seconds):
        _round(rank, size, Draw(seed + rounds), f"seed {seed}, round {rounds}")
        rounds += 1
        if not _rank_0_says(now - last_look >= LOOK_EVERY_S and now - began >= WARM_UP_SHARE * seconds):
            continue
        last_look = now
        usage = _usage_without_caches()
        warm = warm or usage
        usage.check(warm)
        if rank == 0:
            print(f"{now - began:6.0f} s  {rounds} rounds  {usage}", flush=True)
    assert warm is not None, "too short to see whether anything grows"
    return rounds


def _rank_0_says(yes: bool) -> bool:
    """The clocks of the ranks do not agree."""
    word = torch.tensor([yes])
    dist.broadcast(word, src=0)
    return bool(word)


def _usage_without_caches() -> Usage:
    sw.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    dist.barrier()  # a rank maps what its peers keep
    usage = Usage.now()
    dist.barrier()
    return usage


def _round(rank: int, size: int, draw: Draw, what: str) -> None:
    members = [r for r in range(size) if draw.integer(0, 4) > 0]
    is_whole = draw.integer(0, 8) > 0 or len(members) < 2
    group = None if is_whole else dist.new_group(members, backend="gloo")
    if is_whole:
        members = list(range(size))
    if rank in members:
        _collective(members.index(rank), len(members), draw, group, what)
    if group is not None:
        dist.barrier()
        if rank in members:
            dist.destroy_process_group(group)


def _collective(rank: int, size: int, draw: Draw, group: dist.ProcessGroup | None, what: str) -> None:
    op = OPS[draw.integer(0, len(OPS))]
    shape = [draw.integer(1, 6) for _ in range(draw.integer(1, 4))]
    dim = draw.integer(0, len(shape))
    most = (3, 40, 2_000, 60_000)[draw.integer(0, 4)]
    sizes = draw.sizes(size, most)
    what = f"{what}: {op} of {shape} along {dim}, sizes {sizes}, {size} ranks"
    if op == "all_gather_v":
        parts = draw.parts(shape, dim, sizes, _one_of(draw, MOVABLE))
        want = gathered(parts, dim)
        got = _call(draw, sw.all_gather_v, _lay(draw, parts, rank), dim, sizes=sizes, group=group)[0]
    elif op == "reduce_scatter_v":
        reduction = ("sum", "avg", "min", "max", "product")[draw.integer(0, 5)]
        dtype = _one_of(draw, FLOATS if reduction == "avg" else (*FLOATS, *INTEGERS))
        inputs = [draw.tensor(resized(shape, dim, sum(sizes)), dtype) for _ in range(size)]
        want = block(reduced(inputs, reduction), sizes, rank, dim)
        mine = _lay(draw, inputs, rank)
        got = _call(draw, sw.reduce_scatter_v, mine, sizes, dim, op=reduction, group=group)
    else:
        send = [draw.sizes(size, max(1, most // size)) for _ in range(size)]
        dtype = _one_of(draw, MOVABLE)
        inputs = [draw.tensor(resized(shape, dim, sum(row)), dtype) for row in send]
        want = exchanged(inputs, send, rank, dim)
        got = _call(draw, sw.all_to_all_v, _lay(draw, inputs, rank), send[rank], dim, group=group)[0]
    assert_same_bits(got, want, what)


def _one_of(draw: Draw, choices: tuple[torch.dtype, ...]) -> torch.dtype:
    return choices[draw.integer(0, len(choices))]


def _lay(draw: Draw, inputs: list[Tensor], rank: int) -> Tensor:
    """This rank's input, in shared memory or in one of the forms that a tensor has."""
    choices = [draw.integer(0, 1000) for _ in inputs]
    x = inputs[rank]
    if choices[rank] % 2:
        return sw.empty(*x.shape, dtype=x.dtype).copy_(x)
    forms = [form for _, form in memory_forms(x)]
    return forms[choices[rank] % len(forms)]


def _call(draw: Draw, op, /, *args, **kwargs):  # type: ignore[no-untyped-def]
    if draw.integer(0, 3):
        return op(*args, **kwargs)
    return op(*args, **kwargs, async_op=True).wait()


if __name__ == "__main__":
    sys.exit(main())
