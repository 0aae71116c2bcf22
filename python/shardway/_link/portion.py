"""Loads that come together: one prepared call, into the buffer that all portions use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.distributed import ProcessGroup

from .load import Loader, Pieces, bytes_of
from .prepared_moves import Move, PreparedMoves


class Portion:
    def __init__(self, moves: Sequence[Move], group: ProcessGroup, rank: int, role: str) -> None:
        self.moving = PreparedMoves(moves, group, rank, role)
        self.pieces: Pieces = {  # of this rank, in the order declared
            move.name: (move.after.box(rank)[1], move.after.dtype)
            for move, is_here in zip(moves, self.moving.is_here, strict=True)
            if is_here
        }
        self._places: dict[str, Tensor] = {}

    @property
    def bytes_here(self) -> int:
        """Of the buffer, on this rank."""
        return bytes_of(self.pieces)

    def bring(self, parts: Mapping[str, Tensor | None], loader: Loader, sets: int) -> None:
        """Every rank of the joint group calls it."""
        if self.moving.call is None:
            self._prepare(parts, loader)
        else:
            self.moving.run(parts, sets)
        loader.take(self._places)

    def _prepare(self, parts: Mapping[str, Tensor | None], loader: Loader) -> None:
        places = loader.places(self.pieces)
        self._places = {name: places[name] for name in self.pieces}
        outs = [
            self._places[move.name] if is_here else None
            for move, is_here in zip(self.moving.moves, self.moving.is_here, strict=True)
        ]
        self.moving.prepare(parts, outs)
