"""How long a process waited for a core: time that a busy machine took, and not the library."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class CoreWaits:
    """Of each thread of this process, from now on."""

    def __init__(self) -> None:
        self._before = _waits_ns()

    def longest_s(self) -> float:
        """Of the thread that waited longest; threads wait side by side, so a sum would count time twice."""
        now = _waits_ns()
        return max((now[thread] - self._before.get(thread, 0) for thread in now), default=0) / 1e9


def _waits_ns() -> dict[str, int]:
    """By thread, since its beginning. Empty where the kernel does not count it."""
    found = {}
    for folder in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended since, or no such file
            found[folder.name] = int((folder / "schedstat").read_text().split()[1])
    return found
