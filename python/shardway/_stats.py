"""What shardway counts in this process."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Any

from shardway import _C

_lock = threading.Lock()
_moved = 0
_left_to_torch: Counter[str] = Counter()


def stats() -> dict[str, Any]:
    """Counts of this process since it started.

    Returns:
        A dict of dicts. `"calls"` has one for each op of each group, those of torch.distributed on the backend
        "shardway" included: `op`, `group` (a number that is the same on all of its ranks), `rank` and `size` in that
        group, `calls`, `failed` (of these), `bytes` (that this rank gave, or took if it gave nothing), `seconds` in
        all, and `waiting_s`, the part of them that it waited for other ranks. Waits of a few microseconds, in which a
        rank only looks again, do not count as waiting. `waiting_s` is None for groups that are not in shared memory:
        their engines do not tell. After some 700 ops and groups, further groups are counted together, as group 0.

        `"dtensor"` tells what `use_for_dtensor` did: `moved` is how many of DTensor's redistributes ran on shardway,
        `left_to_torch` how many did not, by reason. `"tuning"` tells how groups in shared memory move what lies in
        ordinary memory: `processor`, and under `groups` a dict for those that were tuned alike, with `ranks`, how many
        `groups` there were, `shares_cache` (whether all cores that the ranks may run on share their last cache), and
        the choices `swap` and `hand_back`, each with where it comes from: SHARDWAY_TUNING, the topology file, or a
        default (`swap_from`, `hand_back_from`).

    Example:
        >>> sorted(sw.stats())
        ['calls', 'dtensor', 'tuning']
    """
    with _lock:
        dtensor: dict[str, object] = {"moved": _moved, "left_to_torch": dict(_left_to_torch)}
    return {"calls": _C.call_totals(), "dtensor": dtensor, "tuning": _C.tuning_stats()}


def last_calls() -> list[dict[str, object]]:
    """The last 64 calls of this process: those in shared memory, and shardway's own on other engines.

    `shardway status` shows the same of all processes of a job, from outside.

    Returns:
        A dict per call, the newest last, with `op`, `number` (of the group's calls), `group` (a number that is the same
        on all of its ranks), `rank` and `size` in that group, `bytes`, `state` ("running", "done" or "failed"),
        `begun_s_ago`, and `seconds`, which it took or has taken so far.

    Example:
        >>> for call in sw.last_calls():
        ...     print(call["op"], call["state"])
    """
    return _C.last_calls()


def dump_last_calls(prefix: str | os.PathLike[str]) -> str:
    """Writes the last calls of this process in the format of torch's flight recorder.

    Local: every rank that calls it leaves a file, and `torchfrtrace FOLDER` compares them. `shardway status --dump
    PREFIX` writes the files of all ranks of a job from outside, even when they hang.

    Args:
        prefix: How the file's name begins; the rank follows.

    Returns:
        The file's name.

    Raises:
        RuntimeError: The file cannot be written.

    Example:
        >>> sw.dump_last_calls("calls/rank_")  # doctest: +SKIP
        'calls/rank_0'
    """
    return _C.dump_last_calls(os.fspath(prefix))


def count_moved() -> None:
    global _moved
    with _lock:
        _moved += 1


def count_left_to_torch(reason: str) -> None:
    with _lock:
        _left_to_torch[reason] += 1
