"""What a rank holds of the machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MAY_GROW_BYTES = 64 << 20  # up and down by a third of it is usual; 10 KB lost in a round are more in ten minutes
MAY_GROW_MAPPINGS = 40
MAY_GROW_FDS = 0


@dataclass(frozen=True)
class Usage:
    fds: int
    mappings: int
    resident_bytes: int

    @staticmethod
    def now() -> Usage:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        mappings = len(Path("/proc/self/maps").read_text().splitlines())
        return Usage(len(os.listdir("/proc/self/fd")), mappings, pages * os.sysconf("SC_PAGE_SIZE"))

    def __str__(self) -> str:
        return f"{self.resident_bytes / 2**20:.0f} MiB resident, {self.fds} descriptors, {self.mappings} mappings"

    def growth_since(self, before: Usage) -> list[str]:
        """What has grown by more than its tolerance."""
        rows = {
            "descriptors": (before.fds, self.fds, MAY_GROW_FDS),
            "mappings": (before.mappings, self.mappings, MAY_GROW_MAPPINGS),
            "resident bytes": (before.resident_bytes, self.resident_bytes, MAY_GROW_BYTES),
        }
        return [
            f"{name} went from {old} to {new}, and may grow by {most}"
            for name, (old, new, most) in rows.items()
            if new > old + most
        ]
