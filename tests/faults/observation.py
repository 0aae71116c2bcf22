"""What one rank, and what one cell, was seen to do."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass, field

UNTOUCHED, RIGHT, OTHER = "untouched", "right", "other"


@dataclass
class Outcome:
    """Of one call."""

    how: str  # "returned", "raised", "gone" (the process ended) or "silent" (nothing within the limit)
    seconds: float = 0.0  # from the call, or the fault if that came later, to the end of the call
    error: str = ""  # the type
    text: str = ""

    def __str__(self) -> str:
        """Torch lists every dispatch key in some errors: a few hundred letters say enough."""
        what = f"{self.error}: {self.text[:400]}" if self.how == "raised" else self.how
        return f"{what} after {self.seconds:.3f} s"


@dataclass
class Seen:
    """Of one rank."""

    rank: int
    outcome: Outcome = field(default_factory=lambda: Outcome("silent"))
    is_right: bool | None = None  # what came back; None where nothing did
    are_inputs_unchanged: bool = True
    destinations: str = UNTOUCHED
    are_guards_whole: bool = True
    has_gradients: bool = False
    probe: Outcome | None = None  # the group's next call
    end: Outcome | None = None  # of the group
    again: Outcome | None = None  # a new group of those who live
    leftovers: list[str] = field(default_factory=list)
    exit_code: int | None = None
    stacks: str = ""


@dataclass
class Record:
    """Of one cell."""

    cell: str
    timeout_s: float
    ranks: list[Seen]
    files: list[str] = field(default_factory=list)  # new names in /dev/shm
    wall_s: float = 0.0
    trouble: str = ""  # of the harness itself: the cell was not tried


class Clock:
    """When the fault struck and when it was undone, in memory that the ranks and their parent share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)

    @property
    def struck(self) -> float:
        return float(struct.unpack_from("d", self._memory, 0)[0])

    @struck.setter
    def struck(self, when: float) -> None:
        struct.pack_into("d", self._memory, 0, when)

    @property
    def resumed(self) -> float:
        return float(struct.unpack_from("d", self._memory, 8)[0])

    @resumed.setter
    def resumed(self, when: float) -> None:
        struct.pack_into("d", self._memory, 8, when)
