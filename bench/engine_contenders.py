"""The ways to make one all-reduce or gather from Python that bench/engines.py compares, each on tensors of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from bench.engine_modules import Engine
from bench.timing import Contender

OURS, PREPARED, BACKEND, GLOO = "shardway", "shardway, prepared", "shardway, torch.distributed", "gloo"
ALL_REDUCE, ALL_GATHER = OPS = ("all_reduce", "all_gather")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Groups:
    ours: dist.ProcessGroup
    gloo: dist.ProcessGroup
    engines: Sequence[Engine]

    @staticmethod
    def make(engines: Sequence[Engine]) -> Groups:
        gloo = dist.group.WORLD
        assert gloo is not None
        return Groups(dist.new_group(backend="shardway"), gloo, engines)


@dataclass(frozen=True)
class Case:
    op: str
    dtype: str
    ranks: int
    bytes: int  # of a rank's input

    @property
    def count(self) -> int:
        return self.bytes // DTYPES[self.dtype].itemsize

    def input_of(self, rank: int) -> Tensor:
        """Integers whose sums bf16 has."""
        return (torch.arange(self.count) % 61 + rank).to(DTYPES[self.dtype])

    def expected(self) -> Tensor:
        inputs = [self.input_of(rank) for rank in range(self.ranks)]
        return torch.stack(inputs).sum(0) if self.op == ALL_REDUCE else torch.cat(inputs)


class Race:
    """One case on one rank: its contenders, and what each has written."""

    def __init__(self, case: Case, rank: int, groups: Groups) -> None:
        self.contenders: list[Contender] = []
        self._case = case
        self._source, self._expected = case.input_of(rank), case.expected()
        self._results: dict[str, Tensor] = {}
        self._prepared: sw.PreparedCall[Any] | None = None
        (self._add_reduces if case.op == ALL_REDUCE else self._add_gathers)(groups)
        for contender in self.contenders:
            contender.rewrite()
            contender.call()
        self.check()

    def check(self) -> None:
        """Whether the last call of each contender has given what one process computes."""
        for name, result in self._results.items():
            if not torch.equal(result, self._expected):
                case = self._case
                raise AssertionError(f"{name}: {case.op} of {case.bytes} bytes, {case.dtype}, gives something else")

    def close(self) -> None:
        if self._prepared is not None:
            self._prepared.close()

    def _add(self, name: str, x: Tensor, result: Tensor, call: Callable[[], object]) -> None:
        self._results[name] = result
        self.contenders.append(Contender(name, lambda: x.copy_(self._source), call))

    def _add_reduces(self, groups: Groups) -> None:
        x, y, z, out = (self._source.clone() for _ in range(4))
        self._add(OURS, x, out, lambda: sw.all_reduce(x, out=out))
        kept = torch.empty_like(y)
        self._prepared = sw.prepare(sw.all_reduce, y, out=kept)
        self._add(PREPARED, y, kept, self._prepared.run)
        self._add(BACKEND, z, z, lambda: dist.all_reduce(z, group=groups.ours))
        for engine in groups.engines:
            self._add_reduce_of(engine)
        w = self._source.clone()
        self._add(GLOO, w, w, lambda: dist.all_reduce(w, group=groups.gloo))

    def _add_reduce_of(self, engine: Engine) -> None:
        x = self._source.clone()
        self._add(engine.name, x, x, lambda: engine.all_reduce(x))

    def _add_gathers(self, groups: Groups) -> None:
        sizes = (self._case.count,) * self._case.ranks
        x, out = self._tensors()
        self._add(OURS, x, out, lambda: sw.all_gather_v(x, sizes=sizes, out=out))
        y, kept = self._tensors()
        self._prepared = sw.prepare(sw.all_gather_v, y, sizes=sizes, out=kept)
        self._add(PREPARED, y, kept, self._prepared.run)
        into = dist.all_gather_single
        self._add_gather(BACKEND, lambda out, x: into(out, x, group=groups.ours))
        for engine in groups.engines:
            if engine.all_gather is not None:
                self._add_gather(engine.name, engine.all_gather)
        self._add_gather(GLOO, lambda out, x: into(out, x, group=groups.gloo))

    def _tensors(self) -> tuple[Tensor, Tensor]:
        return self._source.clone(), torch.empty_like(self._expected)

    def _add_gather(self, name: str, call: Callable[[Tensor, Tensor], object]) -> None:
        x, out = self._tensors()
        self._add(name, x, out, lambda: call(out, x))
