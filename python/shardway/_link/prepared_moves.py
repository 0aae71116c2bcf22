"""Tensors on their way to roles, and the one prepared call that moves some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup

from shardway._C import Layout, MeshTensor
from shardway._memory import empty
from shardway._prepare import PreparedCall, prepare
from shardway._redistribute import redistribute


@dataclass
class Move:
    """One tensor on its way to one role."""

    name: str
    role: str
    before: Layout  # in ranks of the joint group, and in the source's dtype
    after: Layout
    portion: int  # 0, or the number of the exchange that brings it to a Load
    is_on_gpus: bool = False  # on all ranks that have a part before or after


class PreparedMoves:
    """All ranks of the joint group have the same moves, and prepare and run them together. Unless the moves are on
    GPUs, parts that are there are copied to the CPU first."""

    def __init__(
        self, moves: Sequence[Move], group: ProcessGroup, rank: int, role: str, *, is_on_gpus: bool = False
    ) -> None:
        self.moves = moves
        self.is_on_gpus = is_on_gpus
        self.call: PreparedCall[Any] | None = None
        self.is_here = [move.role == role and rank in move.after.mesh.ranks for move in moves]
        self._group = group
        self._given_names = [move.name if rank in move.before.mesh.ranks else None for move in moves]
        self._last_parts: Mapping[str, Tensor | None] = {}
        self._copies: dict[str, Tensor] = {}

    def prepare(self, parts: Mapping[str, Tensor | None], outs: Sequence[Tensor | None]) -> Any:
        """Moves `parts` for the first time, into `outs` where they are given. Returns what redistribute does."""
        tensors = [
            MeshTensor(part, move.before, self._group)
            for part, move in zip(self._given(parts), self.moves, strict=True)
        ]
        self.call = prepare(redistribute, tensors, [move.after for move in self.moves], out=outs)
        self._last_parts = parts
        return self.call.result

    def run(self, parts: Mapping[str, Tensor | None], sets: int) -> None:
        """Again, from `parts`, of which so many sets alternate."""
        assert self.call is not None
        self.call.keep_ready(sets)
        is_new = parts is not self._last_parts or bool(self._copies)
        self.call.run_parts(self._given(parts) if is_new else None)
        self._last_parts = parts

    def _given(self, parts: Mapping[str, Tensor | None]) -> list[Tensor | None]:
        """This rank's part for each move."""
        return [None if name is None else self._placed(name, parts[name]) for name in self._given_names]

    def _placed(self, name: str, part: Tensor | None) -> Tensor | None:
        if part is None or self.is_on_gpus or not part.is_cuda:
            return part
        if name not in self._copies:
            self._copies[name] = empty(*part.shape, dtype=part.dtype)
        return self._copies[name].copy_(part)
