"""What the ranks of a world and their parent know of a death, in memory that they share."""

from __future__ import annotations

import mmap
import struct
import time


class Notice:
    """When the rank was killed, and which survivors have been told."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._memory = mmap.mmap(-1, 8 * (1 + ranks))

    @property
    def struck(self) -> float:
        """Zero: not yet."""
        return self._at(0)

    def strike(self) -> None:
        self._set(0, time.monotonic())

    def is_told(self, rank: int) -> bool:
        return self._at(1 + rank) > 0

    def tell(self, rank: int) -> None:
        self._set(1 + rank, time.monotonic())

    def await_all(self, ranks: set[int], limit_s: float) -> None:
        """A survivor that ended sooner would be one more loss to the others."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not all(map(self.is_told, ranks)):
            time.sleep(0.002)

    def _at(self, index: int) -> float:
        return float(struct.unpack_from("d", self._memory, 8 * index)[0])

    def _set(self, index: int, value: float) -> None:
        struct.pack_into("d", self._memory, 8 * index, value)
