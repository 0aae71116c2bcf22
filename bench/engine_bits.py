"""What comes out of the all-reduces that bench/engines.py compares: of which dtypes, and whether with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from bench.engine_contenders import BACKEND, DTYPES, GLOO, OURS, Groups
from bench.engine_modules import Module, join_engines
from bench.forked_ranks import run_ranks

ALL_DTYPES = {**DTYPES, "f16": torch.float16, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64}
SAME_ON_RANKS, SAME_AT_SIZES = "the same on every rank", "the same at every size"
LONGEST = 3 * 2**19 + 5  # elements
PREFIXES = [15, 1007, 4111, 70_015, 2**19 + 15]  # none of whole vectors; the last is a MiB of bf16
LIMIT_S = 120.0

Reduce = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Bits:
    """Of one contender's sums."""

    contender: str
    ranks: int
    dtypes: list[str]  # that are summed as one process sums them
    same_on_ranks: list[str]  # the dtypes of which this holds, of `floats_of`
    same_at_sizes: list[str]


def bits_of(ranks: int, modules: Sequence[Module], session: str) -> list[Bits]:
    answers = run_ranks(ranks, _sums, modules, session, timeout_s=LIMIT_S)
    first: dict[str, tuple[list[str], dict[str, list[bytes]]]] = answers[0]
    found = []
    for name in first:
        dtypes = [dtype for dtype in first[name][0] if all(dtype in answer[name][0] for answer in answers)]
        of_ranks = [answer[name][1] for answer in answers]
        on_ranks = [dtype for dtype in DTYPES if all(sums[dtype] == of_ranks[0][dtype] for sums in of_ranks)]
        at_sizes = [dtype for dtype in DTYPES if all(sums[dtype][0::2] == sums[dtype][1::2] for sums in of_ranks)]
        found.append(Bits(name, ranks, dtypes, on_ranks, at_sizes))
    return found


def _sums(rank: int, ranks: int, modules: Sequence[Module], session: str) -> dict[str, tuple[list[str], object]]:
    """By contender the dtypes that it adds rightly, and by dtype its sums of floats: of each prefix alone, and of that
    prefix in the whole."""
    groups = Groups.make(join_engines(modules, rank, ranks, session))
    reduces: dict[str, Reduce] = {
        OURS: lambda x: sw.all_reduce(x),
        BACKEND: _in_place(lambda x: dist.all_reduce(x, group=groups.ours)),
        **{engine.name: _in_place(engine.all_reduce) for engine in groups.engines},
        GLOO: _in_place(lambda x: dist.all_reduce(x, group=groups.gloo)),
    }
    floats = floats_of(rank, ranks)
    return {
        name: (
            [dtype for dtype in ALL_DTYPES if _adds(reduce, rank, ranks, ALL_DTYPES[dtype])],
            {dtype: _sums_of_prefixes(reduce, floats.to(DTYPES[dtype])) for dtype in DTYPES},
        )
        for name, reduce in reduces.items()
    }


def _in_place(reduce: Callable[[Tensor], object]) -> Reduce:
    def call(x: Tensor) -> Tensor:
        y = x.clone()
        reduce(y)
        return y

    return call


def _adds(reduce: Reduce, rank: int, ranks: int, dtype: torch.dtype) -> bool:
    inputs = [(torch.arange(1000) % 61 + r).to(dtype) for r in range(ranks)]
    try:
        return torch.equal(reduce(inputs[rank]), torch.stack(inputs).sum(0).to(dtype))
    except RuntimeError:  # on every rank, before it waits for another
        return False


def _sums_of_prefixes(reduce: Reduce, x: Tensor) -> list[bytes]:
    whole = reduce(x)
    return [_bytes(part) for count in PREFIXES for part in (reduce(x[:count]), whole[:count])]


def floats_of(rank: int, ranks: int) -> Tensor:
    """Two of the addends of an element, of any two ranks, are large and cancel out: so a sum shows its order, in bf16
    too."""
    numbers = torch.Generator().manual_seed(0)
    large = torch.randn(LONGEST, generator=numbers) * 2**16
    small = torch.randn(ranks, LONGEST, generator=numbers)[rank]
    role = torch.rand(ranks, LONGEST, generator=numbers).argsort(0)[rank]
    return small.where(role > 1, large.where(role == 0, -large))


def _bytes(x: Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()
