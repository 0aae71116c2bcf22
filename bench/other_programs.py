"""How much of the machine other programs use while a benchmark runs (Linux)."""

from __future__ import annotations

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


def _used_by_all_s() -> float:
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")
