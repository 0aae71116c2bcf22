"""The calls of torch.distributed that bench/backend.py compares on a group of ours and on one of gloo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import shardway  # noqa: F401  (registers the backend)
from bench.timing import Contender

OURS, PEER = "shardway", "gloo"
FLOAT_BYTES = 4
BARRIER, STEP = "barrier", "DDP step"
OPS = ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast"]
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST = OPS


@dataclass(frozen=True)
class Groups:
    ours: dist.ProcessGroup
    gloo: dist.ProcessGroup

    @staticmethod
    def make() -> Groups:
        gloo = dist.group.WORLD
        assert gloo is not None
        return Groups(dist.new_group(backend="shardway"), gloo)

    def by_name(self) -> dict[str, dist.ProcessGroup]:
        return {OURS: self.ours, PEER: self.gloo}


@dataclass
class Case:
    """One op on one size: what a call reads and writes, and what must have come of it."""

    op: str
    rank: int
    ranks: int
    bytes: int  # of the larger of input and output

    @property
    def count(self) -> int:
        """Elements of the larger of input and output: whole parts for the ranks, where they share it."""
        shares = self.op not in (ALL_REDUCE, BROADCAST)
        parts = self.ranks if shares else 1
        return max(1, self.bytes // FLOAT_BYTES // parts) * parts

    def contenders(self, groups: Groups) -> list[Contender]:
        return [self._contender(name, group) for name, group in groups.by_name().items()]

    def _contender(self, name: str, group: dist.ProcessGroup) -> Contender:
        if self.op == BARRIER:
            return Contender(name, lambda: None, lambda: dist.barrier(group=group))
        source = self._input_of(self.rank)
        x = torch.empty_like(source)
        out = x if self.op in (ALL_REDUCE, BROADCAST) else torch.empty_like(self._expected())
        calls: dict[str, Callable[[], object]] = {
            ALL_REDUCE: lambda: dist.all_reduce(x, group=group),
            BROADCAST: lambda: dist.broadcast(x, 0, group=group),
            ALL_GATHER: lambda: dist.all_gather_into_tensor(out, x, group=group),
            REDUCE_SCATTER: lambda: dist.reduce_scatter_tensor(out, x, group=group),
            ALL_TO_ALL: lambda: dist.all_to_all_single(out, x, group=group),
        }

        def rewrite() -> None:
            x.copy_(source)

        rewrite()
        calls[self.op]()
        assert torch.equal(out, self._expected()), f"{name}: {self.op} of {self.bytes} bytes gives something else"
        return Contender(name, rewrite, calls[self.op])

    def _input_of(self, rank: int) -> Tensor:
        count = self.count // self.ranks if self.op == ALL_GATHER else self.count
        return torch.arange(count, dtype=torch.float32) % 1000 + rank

    def _expected(self) -> Tensor:
        inputs = [self._input_of(rank) for rank in range(self.ranks)]
        part = slice(self.rank * (self.count // self.ranks), (self.rank + 1) * (self.count // self.ranks))
        if self.op == BROADCAST:
            return inputs[0]
        if self.op == ALL_GATHER:
            return torch.cat(inputs)
        if self.op == ALL_TO_ALL:
            return torch.cat([x[part] for x in inputs])
        total = sum(inputs[1:], inputs[0])
        return total if self.op == ALL_REDUCE else total[part]


class Transformer(nn.Module):
    """Two layers of width 256: 1.6 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 512, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(256, 256)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x))  # type: ignore[no-any-return]


def steps(groups: Groups) -> list[Contender]:
    """A training step of the same model on each group."""
    return [_step(name, group) for name, group in groups.by_name().items()]


def _step(name: str, group: dist.ProcessGroup) -> Contender:
    torch.manual_seed(0)
    model = DistributedDataParallel(Transformer(), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(2, 16, 256)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return Contender(name, lambda: None, step)
