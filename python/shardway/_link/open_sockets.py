"""The sockets of links. A child of fork closes them: held open there, they would hide its parent's death."""

from __future__ import annotations

import os
import socket
import weakref

_open: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def remember(one: socket.socket) -> socket.socket:
    _open.add(one)
    return one


def _close_all() -> None:
    for one in list(_open):
        one.close()


os.register_at_fork(after_in_child=_close_all)
