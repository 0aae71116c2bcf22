"""The store where the ranks of a joint group meet: a TCPStore that the process that holds the link serves."""

from __future__ import annotations

from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from .address import Address, listening
from .wire import Message

# The store is there, or its process has died. Longer than 5 s: TCPStore asks for the name of the other side, and that
# takes so long where the answer of a name server got lost.
_ATTEMPT = timedelta(seconds=7)


class StoreMeeting:
    """One store per group. A rank that waits in a store that is closed gets an error at once, not at its timeout."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._store: TCPStore | None = None

    def open(self) -> Message:
        listener = listening(self._host, 0)
        port = listener.getsockname()[1]
        self._store = TCPStore(
            self._host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        return {"host": self._host, "port": port}

    def close(self) -> None:
        self._store = None


def met_at(place: Message, timeout: timedelta) -> TCPStore:
    """As one of the ranks, in the serving process too: there the store would outlive its closing otherwise."""
    Address(place["host"], place["port"]).dial(timeout.total_seconds()).close()  # refused if its process has died
    store = TCPStore(place["host"], place["port"], is_master=False, timeout=min(timeout, _ATTEMPT))
    store.set_timeout(timeout)
    return store
