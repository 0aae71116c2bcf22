"""What shardway counts in this process."""

from __future__ import annotations

import threading
from collections import Counter

_lock = threading.Lock()
_moved = 0
_left_to_torch: Counter[str] = Counter()


def stats() -> dict[str, dict[str, object]]:
    """Counts of this process since it started.

    `stats()["dtensor"]` tells what `use_for_dtensor` did: `moved` is how many of DTensor's redistributes ran on
    shardway, `left_to_torch` how many did not, by reason.
    """
    with _lock:
        return {"dtensor": {"moved": _moved, "left_to_torch": dict(_left_to_torch)}}


def count_moved() -> None:
    global _moved
    with _lock:
        _moved += 1


def count_left_to_torch(reason: str) -> None:
    with _lock:
        _left_to_torch[reason] += 1
