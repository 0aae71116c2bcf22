"""How much more memory a process has resident at the peak of a call than before it (Linux)."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

_RESET_PEAK = "5"  # proc(5): writing 5 to clear_refs sets VmHWM, the peak, to the current VmRSS


def peak_above_start_bytes(call: Callable[[], Any]) -> int:
    """Runs `call`; what it returns counts too. The free heap is given back first, so that it hides nothing."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    before = _status_bytes("VmRSS")
    result = call()
    peak = _status_bytes("VmHWM")
    del result
    return peak - before


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def available_bytes() -> int:
    """What the machine can still give without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable")
