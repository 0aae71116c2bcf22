"""Memory of this process in huge pages, before ranks are forked from it.

A fork copies an entry of the page table for every page of 4 KiB, and the end of the child frees them: with torch and
its compiler loaded, 65,000 each time. A huge page has one entry. So a rank without a group takes 5 ms of system time
where it took 15, and 162 tests of ranks 15.0 s where they took 18.7.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_HUGE = 2 << 20
_MADV_COLLAPSE = 25  # since Linux 6.1; before, nothing comes of it
_ANONYMOUS = re.compile(r"^(\w+)-(\w+) rw-p 00000000 00:00 0 +(?:\[heap\])?$", re.M)


def use_huge_pages() -> None:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for begin, end in _ANONYMOUS.findall(Path("/proc/self/maps").read_text()):
        first = -(-int(begin, 16) // _HUGE) * _HUGE
        for place in range(first, int(end, 16) - _HUGE + 1, _HUGE):
            madvise(place, _HUGE, _MADV_COLLAPSE)
