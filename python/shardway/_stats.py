"""What shardway counts in this process."""

from __future__ import annotations

import threading
from collections import Counter

from shardway import _C

_lock = threading.Lock()
_moved = 0
_left_to_torch: Counter[str] = Counter()


def stats() -> dict[str, dict[str, object]]:
    """Counts of this process since it started.

    `stats()["dtensor"]` tells what `use_for_dtensor` did: `moved` is how many of DTensor's redistributes ran on
    shardway, `left_to_torch` how many did not, by reason.

    `stats()["tuning"]` tells how groups in shared memory move what lies in ordinary memory: `processor`, and under
    `groups` a dict for those that were tuned alike, with `ranks`, how many `groups` there were, `shares_cache` (whether
    all cores that the ranks may run on share their last cache), and the choices `swap` and `hand_back`, each with
    where it comes from: a default, or SHARDWAY_TUNING (`swap_from`, `hand_back_from`).
    """
    with _lock:
        dtensor: dict[str, object] = {"moved": _moved, "left_to_torch": dict(_left_to_torch)}
    return {"dtensor": dtensor, "tuning": _C.tuning_stats()}


def last_calls() -> list[dict[str, object]]:
    """The last 64 calls of this process on groups that share memory, the newest last.

    Each has `op`, `number` (of the group's calls), `group` (a number that is the same on all of its ranks), `rank` and
    `size` in that group, `bytes`, `state` ("running", "done" or "failed"), `begun_s_ago`, and `seconds`, which it took
    or has taken so far. `shardway status` shows the same of all processes of a job, from outside.
    """
    return _C.last_calls()


def count_moved() -> None:
    global _moved
    with _lock:
        _moved += 1


def count_left_to_torch(reason: str) -> None:
    with _lock:
        _left_to_torch[reason] += 1
