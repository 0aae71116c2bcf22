"""What bench/redistribute.py claims, of the figures that it found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.redistribute_contenders import (
    COPY,
    GATHER,
    ON_GLOO,
    OURS,
    PEER,
    SCATTER_SUM,
    SHARD_TO_SHARD,
    SHARED,
    SLICE,
    SUM,
    Op,
)
from bench.report import Claim, Row, bytes_text

MIB = 2**20
RANKS = 2  # of the claims about speed
SMALL, LARGE, LARGEST = SHAPES = (64, 64), (1024, 1024), (4097, 4095)
TIMES_COPY, TIMES_SHARDS_ON_GLOO, TIMES_ON_GLOO = 1.6, 1.5, 1.1
CHUNK_BYTES = 3 * MIB // 2  # rings of chunks, and what allocators round up


@dataclass(frozen=True)
class Peak:
    """Memory of one call above the input, on the rank where it was most."""

    op: str
    contender: str
    ranks: int
    shape: tuple[int, ...]
    result_bytes: int
    peak_bytes: int

    @property
    def ratio(self) -> float:
        return self.peak_bytes / self.result_bytes


@dataclass(frozen=True)
class Ratio:
    row: Row
    times: float

    @property
    def text(self) -> str:
        rows, columns = self.row.shape
        return f"{self.times:.2f} times at {self.row.op} of {rows}x{columns}, {self.row.ranks} ranks"


def claims_of(rows: Sequence[Row], on_meshes: Sequence[Peak]) -> list[Claim]:
    """Of 2 ranks, where each has a core; of memory, on meshes of several dims."""
    at_two = [row for row in rows if row.ranks == RANKS]
    faster = _ratios(at_two, PEER, OURS)
    claims = [
        _at_least(8, faster, "1024x1024 and larger", _large, SHARD_TO_SHARD, SCATTER_SUM),
        _at_least(5, faster, "1024x1024 and larger", _large, GATHER, SUM),
        _at_least(10, faster, "64x64", _small, SHARD_TO_SHARD, SCATTER_SUM, GATHER, SUM),
        _at_least(1, faster, "every size", lambda row: True, SLICE),
        _near_copy(_ratios(at_two, SHARED, COPY)),
        *_on_gloo(_ratios(at_two, PEER, ON_GLOO)),
        *(_in_bounds(peak) for peak in on_meshes),
    ]
    return [claim for claim in claims if claim is not None]


def _ratios(rows: Sequence[Row], slower: str, faster: str) -> list[Ratio]:
    """How many times longer one contender takes than another, wherever both were measured."""
    us = {(row.ranks, row.shape, row.op): row.us for row in rows if row.contender == slower}
    return [
        Ratio(row, us[row.ranks, row.shape, row.op] / row.us)
        for row in rows
        if row.contender == faster and (row.ranks, row.shape, row.op) in us
    ]


def _large(row: Row) -> bool:
    return math.prod(row.shape) >= math.prod(LARGE)


def _small(row: Row) -> bool:
    return row.shape == SMALL


def _at_least(
    times: float, ratios: Sequence[Ratio], where: str, is_there: Callable[[Row], bool], *ops: Op
) -> Claim | None:
    names = [op.name for op in ops]
    found = [ratio for ratio in ratios if ratio.row.op in names and is_there(ratio.row)]
    if not found:
        return None
    least = min(found, key=lambda ratio: ratio.times)
    what = "no slower" if times == 1 else f"at least {times:g} times faster"
    text = f"{', '.join(names)} of {where} in shared memory, {RANKS} ranks: {what} than {PEER}"
    return Claim(text, least.text, least.times >= times)


def _near_copy(ratios: Sequence[Ratio]) -> Claim | None:
    largest = [ratio for ratio in ratios if ratio.row.shape == LARGEST]
    if not largest:
        return None
    text = f"S0→S1 with tensors in shared memory, {RANKS} ranks: at most {TIMES_COPY:g} times a plain copy of the shard"
    return Claim(text, largest[0].text, largest[0].times <= TIMES_COPY)


def _on_gloo(ratios: Sequence[Ratio]) -> list[Claim]:
    if not ratios:
        return []
    moved = [ratio for ratio in ratios if "S0→S1" in ratio.row.op or "S1→S1" in ratio.row.op]
    least, slowest = (min(found, key=lambda ratio: ratio.times) for found in (moved, ratios))
    shards = f"shard to shard on gloo itself: at least {TIMES_SHARDS_ON_GLOO:g} times faster than {PEER}"
    others = f"everything on gloo itself: at most {TIMES_ON_GLOO:g} times the time of {PEER}"
    return [
        Claim(shards, least.text, least.times >= TIMES_SHARDS_ON_GLOO),
        Claim(others, f"1/{slowest.text}", slowest.times >= 1 / TIMES_ON_GLOO),
    ]


def _in_bounds(peak: Peak) -> Claim:
    """The result and a chunk; on gloo one buffer for the messages as well."""
    buffers = 1 if peak.contender == ON_GLOO else 0
    limit = (1 + buffers) * peak.result_bytes + CHUNK_BYTES
    more = "one chunk" if buffers == 0 else "one chunk and one buffer"
    text = f"{peak.op}, {peak.ranks} ranks, {peak.contender}: peak memory at most input, output and {more}"
    figure = f"{peak.peak_bytes / MIB:.1f} MiB above the input, {bytes_text(peak.result_bytes)} of them the output"
    return Claim(text, figure, peak.peak_bytes <= limit)
