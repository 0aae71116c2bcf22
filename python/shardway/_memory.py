"""The memory of results: CPU results of 1 MiB and more reuse memory that was touched before, which is far faster.

What is freed is kept for the next result, up to 1/32 of the machine's memory, or SHARDWAY_CACHE_BYTES.
"""

from __future__ import annotations

from shardway import _C


def memory_stats() -> dict[str, int]:
    """Bytes in use, bytes kept, the limit on what is kept, and how often kept memory was enough (`reused`) or not
    (`fresh`), in this process."""
    return _C.memory_stats()


def empty_cache() -> None:
    """Gives the memory that is kept back to the system."""
    _C.empty_cache()
