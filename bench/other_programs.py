"""How much of the machine other programs use while a benchmark runs (Linux)."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path


class OtherPrograms:
    """The cores that programs other than this benchmark keep busy, from when it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._used_s = _used_by_all_s()

    def busy_cores(self, own_s: float) -> float:
        """`own_s`: processor time that the benchmark itself has used meanwhile, in all its processes."""
        used_s = _used_by_all_s() - self._used_s - own_s
        return round(max(0.0, used_s / (time.monotonic() - self._began)), 2)


def used_by_family_s() -> float:
    """Processor time of this process and of all that descend from it and are still there."""
    parents: dict[int, int] = {}
    used_s: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(fields[1])
            used_s[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(used for pid, used in used_s.items() if _descends(pid, os.getpid(), parents))


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def _used_by_all_s() -> float:
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")
