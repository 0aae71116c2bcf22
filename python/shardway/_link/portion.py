"""Loads that come together: one prepared call, into the buffer that all portions use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.distributed import ProcessGroup

from shardway._C import MeshTensor
from shardway._prepare import PreparedCall, prepare
from shardway._redistribute import redistribute

from .load import Loader, Pieces, bytes_of

if TYPE_CHECKING:
    from .joint import Move


class Portion:
    def __init__(self, moves: Sequence[Move], group: ProcessGroup, rank: int, role: str) -> None:
        self.moves = moves
        self.call: PreparedCall[Any] | None = None
        self._group, self._rank = group, rank
        self._is_here = [move.role == role and rank in move.after.mesh.ranks for move in moves]
        self.pieces: Pieces = {  # of this rank, in the order declared
            move.name: (move.after.box(rank)[1], move.after.dtype)
            for move, is_here in zip(moves, self._is_here, strict=True)
            if is_here
        }
        self._places: dict[str, Tensor] = {}

    @property
    def bytes_here(self) -> int:
        """Of the buffer, on this rank."""
        return bytes_of(self.pieces)

    def bring(self, parts: Mapping[str, Tensor | None], loader: Loader, sets: int) -> None:
        """Every rank of the joint group calls it."""
        given = [parts[move.name] if self._rank in move.before.mesh.ranks else None for move in self.moves]
        if self.call is None:
            self.call = self._prepared(given, loader)
        else:
            self.call.keep_ready(sets)
            self.call.run_parts(given)
        loader.take(self._places)

    def _prepared(self, given: Sequence[Tensor | None], loader: Loader) -> PreparedCall[Any]:
        places = loader.places(self.pieces)
        self._places = {name: places[name] for name in self.pieces}
        outs = [
            self._places[move.name] if is_here else None
            for move, is_here in zip(self.moves, self._is_here, strict=True)
        ]
        tensors = [MeshTensor(part, move.before, self._group) for part, move in zip(given, self.moves, strict=True)]
        call: PreparedCall[Any] = prepare(redistribute, tensors, [move.after for move in self.moves], out=outs)
        return call
