"""What one version of a whole model moves, between which ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelPlan:
    """Of the last joint group: ranks are numbered role by role, the publisher first.

    Attributes:
        roles: Name and number of ranks of each role.
        tensors: How many tensors move, counted once for each role that gets them.
        bytes: What each rank sends to each in one version: `bytes[a][b]` from rank a to rank b.
        least_bytes: What each rank has to receive, whatever the plan: what it does not hold of its part.
        staging_bytes: Memory of this rank for values that arrive in another dtype than their destination's.
        held_bytes: Memory of this rank for versions that were sent without waiting.
    """

    roles: tuple[tuple[str, int], ...]
    tensors: int
    bytes: tuple[tuple[int, ...], ...]
    least_bytes: tuple[int, ...]
    staging_bytes: int
    held_bytes: int
    text: str

    @property
    def busiest_rank(self) -> int:
        """The rank that sends or receives most."""
        return max(range(len(self.bytes)), key=lambda rank: max(self._sent_by(rank), self._received_by(rank)))

    def _sent_by(self, rank: int) -> int:
        return sum(self.bytes[rank])

    def _received_by(self, rank: int) -> int:
        return sum(row[rank] for row in self.bytes)

    def explain(self) -> str:
        """Who is which rank, who sends how many bytes to whom, the busiest rank, the least that has to move, and the
        memory that this rank needs for it."""
        return self.text
