"""Messages on a socket: a length of four bytes, then JSON. The first message of each side has the version: of the
messages, and of the moves that every rank makes of a roster."""

from __future__ import annotations

import json
import struct
from typing import Any, TypeAlias

VERSION = 2
MOST_FROM_STRANGERS = 1 << 12  # bytes
MOST = 1 << 28

Message: TypeAlias = dict[str, Any]

# What a member asks, or reports.
PUBLISH, SUBSCRIBE, SEND, RECEIVE, JOIN = "publish", "subscribe", "send", "receive", "join"
DONE, FAILED = "done", "failed"

_LENGTH = struct.Struct("!I")


class NotOurs(Exception):
    """What came is not a message of a link."""


def packed(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MOST:
        raise ValueError(f"link: a message of {len(body)} bytes is longer than {MOST}")
    return _LENGTH.pack(len(body)) + body


class Inbox:
    """Bytes as they come in, messages as they are complete."""

    def __init__(self) -> None:
        self.most = MOST_FROM_STRANGERS
        self._bytes = bytearray()

    def add(self, some: bytes) -> None:
        self._bytes += some

    def is_empty(self) -> bool:
        return not self._bytes

    def next(self) -> Message | None:
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if length > self.most:
            raise NotOurs(f"a message of {length} bytes where at most {self.most} are allowed")
        end = _LENGTH.size + length
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[_LENGTH.size : end])
        del self._bytes[:end]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise NotOurs(f"a message is not JSON: {error}") from error
        if not isinstance(message, dict):
            raise NotOurs("a message is not a JSON object")
        return message
