"""What a rank holds of the machine."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

MAY_GROW_BYTES = 64 << 20  # up and down by a third of it is usual; 10 KB lost in a round are more in ten minutes
MAY_GROW_MAPPINGS = 40
MAY_GROW_FDS = 0


M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # of malloc.h


def make_memory_tell() -> None:
    """Has malloc give large blocks back when they are freed, and all threads share one heap: else what the references
    of the checks took stays, some hundred MiB up and down where threads come and go, with no call made at all."""
    libc = ctypes.CDLL(None)
    libc.mallopt(M_ARENA_MAX, 1)
    libc.mallopt(M_MMAP_THRESHOLD, 1 << 17)


@dataclass(frozen=True)
class Usage:
    fds: int
    mappings: int
    private_bytes: int  # resident
    shared_bytes: int  # resident: of the own arena, and what it has seen of its peers'

    @staticmethod
    def now() -> Usage:
        words = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        private, shared = (int(words[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
        mappings = len(Path("/proc/self/maps").read_text().splitlines())
        return Usage(len(os.listdir("/proc/self/fd")), mappings, private, shared)

    def __str__(self) -> str:
        private, shared = self.private_bytes >> 20, self.shared_bytes >> 20
        return f"{private} MiB and {shared} MiB shared, {self.fds} descriptors, {self.mappings} mappings"

    def growth_since(self, before: Usage) -> list[str]:
        """What has grown by more than its tolerance."""
        rows = {
            "descriptors": (before.fds, self.fds, MAY_GROW_FDS),
            "mappings": (before.mappings, self.mappings, MAY_GROW_MAPPINGS),
            "resident bytes": (before.private_bytes, self.private_bytes, MAY_GROW_BYTES),
            "resident shared bytes": (before.shared_bytes, self.shared_bytes, MAY_GROW_BYTES),
        }
        return [
            f"{name} went from {old} to {new}, and may grow by {most}"
            for name, (old, new, most) in rows.items()
            if new > old + most
        ]
