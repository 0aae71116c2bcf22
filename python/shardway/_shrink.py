"""The group of those who are left, after a death."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed import ProcessGroup

from shardway._backend import meant_for
from shardway._C import Survivors, survivors_of
from shardway._groups import GroupLike, resolve_group
from shardway._shrink_by_store import shrink_by_store
from shardway._torch_groups import new_group_on, timeout_of

LONGEST_DEFAULT = timedelta(seconds=10)
MOST_TOLD = 1000  # bytes
ATTEMPT = timedelta(seconds=1)


def shrink(group: GroupLike = None, *, timeout: timedelta | float | None = None) -> ProcessGroup:
    """The group of the ranks that call this, in their order; the old group is over on every rank.

    For ranks of which some have died, or do not come. Ranks may die meanwhile. Ranks that share memory need nothing
    else: the store may have died with its rank, and the new group brings its own. Others agree through the group's
    store, which must live.

    Args:
        group: The old group; None is the default group.
        timeout: How long a rank that lives is waited for, as a timedelta or in seconds; None is the group's own, at
            most 10 s. A rank that has died is left out at once.

    Returns:
        The new group, with the same backends. Global ranks stay as they are.

    Raises:
        ValueError: There is no group, or the timeout is negative.
        DistBackendError: This rank came too late; the error names those who went on.

    Example:
        >>> living = sw.shrink()  # doctest: +SKIP
    """
    old = resolve_group(group, "shrink")
    if old is None:
        raise ValueError("shrink: torch.distributed is not initialised: there is no group to shrink")
    limit = _limit(timeout, old)
    survivors = survivors_of(old, limit)
    return shrink_by_store(old, limit) if survivors is None else _go_on(survivors, old, limit)


def _go_on(survivors: Survivors, old: ProcessGroup, limit: timedelta) -> ProcessGroup:
    try:
        return _group_of(survivors, old, limit)
    except dist.DistBackendError:  # one more is lost; a rank that has the group learns it in its next call
        fewer = survivors.shrunk(limit)
    return _go_on(fewer, old, limit)


def _limit(timeout: timedelta | float | None, group: ProcessGroup) -> timedelta:
    if timeout is None:
        return min(timeout_of(group), LONGEST_DEFAULT)
    limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if limit < timedelta(0):
        raise ValueError(f"shrink: timeout={timeout} is negative (rank {group.rank()})")
    return limit


def _group_of(survivors: Survivors, old: ProcessGroup, limit: timedelta) -> ProcessGroup:
    """A DistBackendError means that a survivor is lost."""
    # For the store, then for the others. gloo may wait for a lost rank five times as long (seen with torch 2.11), and a
    # rank that comes back later than `limit` is left out.
    patience = limit / 6
    made: list[ProcessGroup] = []
    served: list[TCPStore] = []

    def serve() -> str:
        if survivors.rank > 0:
            return ""
        served.append(_new_store(patience))
        return str(served[0].port)

    def join() -> str:
        store = served[0] if served else _connected(port, time.monotonic() + patience.total_seconds())
        name = f"shrunk_{survivors.id:016x}"
        with meant_for(survivors):
            made.append(new_group_on(store, old, survivors.members, name, patience))
        store.set_timeout(timeout_of(old))
        survivors.serve(made[0])
        return ""

    try:
        port = int(_told(survivors, serve)[0])
        _told(survivors, join)
    except BaseException:
        for group in made:
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group(group)
        raise
    return made[0]


def _told(survivors: Survivors, act: Callable[[], str]) -> list[str]:
    """What `act` returned on every rank. If it raised on one, all raise."""
    try:
        mine = "+" + act()
    except Exception as error:  # the others are to hear of it
        mine = "-" + f"{type(error).__name__}: {error}".encode()[:MOST_TOLD].decode(errors="ignore")
    said = survivors.told(mine)
    for rank, text in zip(survivors.members, said, strict=True):
        if not text.startswith("+"):
            survivors.told("")  # raises if a rank that had told has died since: that is the cause, then
            raise RuntimeError(f"shrink: the ranks that are left could not make a group: {text[1:]} (rank {rank})")
    return [text[1:] for text in said]


def _connected(port: int, end_s: float) -> TCPStore:
    """The store of another process, which may have died. torch's own attempt can take twice its timeout."""
    try:
        return TCPStore("127.0.0.1", port, is_master=False, timeout=ATTEMPT)
    except RuntimeError:
        if time.monotonic() > end_s:
            raise
    return _connected(port, end_s)


def _new_store(timeout: timedelta) -> TCPStore:
    """A store that this process serves, for this host alone."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    return TCPStore(
        "127.0.0.1", port, is_master=True, timeout=timeout, wait_for_workers=False, master_listen_fd=listener.detach()
    )
