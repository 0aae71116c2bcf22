"""The ways to gather a ragged batch that bench/ragged.py compares, on one batch of embeddings.

Rank r of n holds (2r + 1) / n times the mean number of rows (1:3:5:...). A row has 512 floats, fewer where a
mean batch would be under 4 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from bench.timing import Contender
from tests.support.pad_gather_mask import AllReduceGather, LocalSliceGather, pad_gather_mask

OURS = "shardway"
PEER = "pad-gather-mask"
POINT_TO_POINT = "isend/irecv"
COPY = "plain copy"

FLOAT_BYTES = 4
ROW_FLOATS = 512
MIN_MEAN_ROWS = 4


@dataclass(frozen=True)
class Op:
    """What is timed: the gather alone (grad None), or with the backward of that gradient mode."""

    grad: str | None
    sizes_given: bool

    @property
    def name(self) -> str:
        return "forward" if self.grad is None else f"forward+backward grad={self.grad}"

    def label(self, contender: str) -> str:
        return f"{contender}, sizes given" if self.sizes_given and contender != COPY else contender

    @property
    def text(self) -> str:
        return f"{self.name}, sizes {'given' if self.sizes_given else 'not given'}"


OPS = [Op(grad, given) for grad in (None, "local", "sum") for given in (False, True)]


class Batch:
    """One rank's input, the gradient of the gathered tensor, and what a single process would compute from them."""

    def __init__(self, rank: int, ranks: int, mean_bytes: int) -> None:
        self.rank = rank
        self.width = min(ROW_FLOATS, mean_bytes // FLOAT_BYTES // MIN_MEAN_ROWS)
        mean_rows = mean_bytes // FLOAT_BYTES // self.width
        self.sizes = tuple((2 * r + 1) * mean_rows // ranks for r in range(ranks))
        self.sizes_tensor = torch.tensor(self.sizes)
        self.starts = [sum(self.sizes[:r]) for r in range(ranks)]
        self.total_shape = (sum(self.sizes), self.width)
        self.x = self.part(rank)

    @property
    def total_bytes(self) -> int:
        return self.total_shape[0] * self.width * FLOAT_BYTES

    def part(self, rank: int) -> Tensor:
        """What rank `rank` holds: small integers, so that sums in f32 are exact."""
        return self._pattern((torch.arange(self.sizes[rank]) + 7 * rank) % 251)

    def upstream(self, factor: int) -> Tensor:
        """The gradient of the gathered tensor that a rank's loss gives."""
        return self._pattern(torch.arange(self.total_shape[0]) % 127) * factor

    def _pattern(self, row_values: Tensor) -> Tensor:
        return row_values.float().unsqueeze(1) + (torch.arange(self.width) % 31).float()

    def own_slice(self, gathered: Tensor) -> Tensor:
        return gathered[self.starts[self.rank] :][: self.sizes[self.rank]]

    def check_gathered(self, who: str, gathered: Tensor) -> None:
        for rank, (start, size) in enumerate(zip(self.starts, self.sizes, strict=True)):
            if not torch.equal(gathered[start : start + size], self.part(rank)):
                raise AssertionError(f"{who} gathered rank {rank}'s part wrongly, sizes {self.sizes}")

    def check_gradient(self, who: str, grad: str) -> None:
        ranks = len(self.sizes)
        factor = self.rank + 1 if grad == "local" else ranks * (ranks + 1) // 2
        if self.x.grad is None or not torch.equal(self.x.grad, self.own_slice(self.upstream(factor))):
            raise AssertionError(f"{who} gives a wrong gradient with grad={grad}, sizes {self.sizes}")


def contenders(batch: Batch, op: Op) -> list[Contender]:
    """Those of `op`, each checked once against the dense reference (which also warms it up)."""
    batch.x.requires_grad_(False)
    batch.x.grad = None
    return _forward(batch, op) if op.grad is None else _forward_backward(batch, op, op.grad)


def _forward(batch: Batch, op: Op) -> list[Contender]:
    x = batch.x
    sizes, sizes_tensor = (batch.sizes, batch.sizes_tensor) if op.sizes_given else (None, None)
    gathers: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: sw.all_gather_v(x, sizes=sizes)[0],
        PEER: lambda: pad_gather_mask(x, 0, sizes_tensor)[0],
    }
    if op.sizes_given:
        gathers[POINT_TO_POINT] = lambda: point_to_point(x, batch.sizes)
    x.copy_(batch.part(batch.rank))
    for name, gather in gathers.items():
        batch.check_gathered(name, gather())
    found = [Contender(name, lambda: rewrite(x), gather) for name, gather in gathers.items()]
    if op.sizes_given:
        source, target = torch.zeros(batch.total_shape), torch.zeros(batch.total_shape)
        found.append(Contender(COPY, lambda: rewrite(source), lambda: target.copy_(source)))
    return found


def _forward_backward(batch: Batch, op: Op, grad: str) -> list[Contender]:
    x = batch.x
    upstream = batch.upstream(batch.rank + 1)
    sizes, sizes_tensor = (batch.sizes, batch.sizes_tensor) if op.sizes_given else (None, None)
    function = {"local": LocalSliceGather, "sum": AllReduceGather}[grad]
    gathers: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: sw.all_gather_v(x, sizes=sizes, grad=grad)[0],
        PEER: lambda: function.apply(x, 0, sizes_tensor)[0],
    }

    def call(gather: Callable[[], Tensor]) -> Tensor:
        gathered = gather()
        gathered.backward(upstream)
        return gathered

    def rewrite_both() -> None:
        x.grad = None
        rewrite(x)
        rewrite(upstream)

    x.copy_(batch.part(batch.rank)).requires_grad_()
    for name, gather in gathers.items():
        x.grad = None
        upstream.copy_(batch.upstream(batch.rank + 1))  # the summing peer changes it in place
        batch.check_gathered(name, call(gather))
        batch.check_gradient(name, grad)
    return [Contender(name, rewrite_both, lambda gather=gather: call(gather)) for name, gather in gathers.items()]


@torch.no_grad()
def rewrite(t: Tensor) -> None:
    t.fill_(1.0)


def point_to_point(x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Plain torch: every rank's part sent and received straight into its place."""
    rank = dist.get_rank()
    gathered = x.new_empty((sum(sizes), *x.shape[1:]))
    parts = gathered.split(sizes)
    others = [r for r in range(len(sizes)) if r != rank]
    works = [dist.irecv(parts[r], r) for r in others] + [dist.isend(x, r) for r in others]
    parts[rank].copy_(x)
    for work in works:
        work.wait()
    return gathered
