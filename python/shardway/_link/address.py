"""Where a link meets: tcp://host:port."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @staticmethod
    def read(text: str) -> Address:
        try:
            parts = urlsplit(text if "://" in text else f"tcp://{text}")
            host, port = parts.hostname, parts.port
        except (TypeError, ValueError):
            host, port = None, None
        if not host or not port or parts.scheme != "tcp" or parts.path not in ("", "/"):
            raise ValueError(f"connect: address={text!r} is not like tcp://127.0.0.1:29700")
        return Address(host, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    def listen(self) -> socket.socket:
        """An OSError means that another process listens there, or that this host does not have the address."""
        return listening(self.host, self.port)

    def dial(self, timeout_s: float) -> socket.socket:
        """An OSError means that nobody answers."""
        made = socket.create_connection((self.host, self.port), timeout_s)
        if made.getsockname() == made.getpeername():  # the kernel can connect a free port to itself
            made.close()
            raise ConnectionRefusedError("nobody listens")
        return tuned(made)


def listening(host: str, port: int) -> socket.socket:
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(where[:2], family=family, backlog=512)


def tuned(connection: socket.socket) -> socket.socket:
    """Messages leave at once, and a host that vanished without a word is noticed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection
