"""A torch Store whose keys are kept by the process that holds the link, reached by a connection of its own."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from .member import Connection, HubGone
from .wire import Message

_ANSWER_S = 30.0  # of a hub that is there; a wait has a time of its own


class HubStore(Store):
    """Any thread may use it, one at a time. A DistStoreError: the meeting is over, or a key was not set in time."""

    def __init__(self, connection: Connection, timeout: timedelta) -> None:
        super().__init__()
        self._connection = connection
        self._limit = timeout
        self._turn = threading.Lock()

    def set(self, key: str, value: str | bytes) -> None:
        self._ask({"do": "set", "key": key, "value": _said(_bytes_of(value))})

    def get(self, key: str) -> bytes:
        """Waits for the key."""
        self.wait([key])
        answer = self._ask({"do": "get", "key": key})
        if "value" not in answer:
            raise dist.DistStoreError(f"link: the key {key} was deleted")
        return _heard(answer["value"])

    def add(self, key: str, value: int) -> int:
        return int(self._ask({"do": "add", "key": key, "count": value})["count"])

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._ask({"do": "check", "keys": list(keys)})["are_there"])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        limit = self._limit if timeout is None else timeout
        answer = self._ask({"do": "wait", "keys": list(keys)}, limit.total_seconds())
        if answer["is"] == "late":
            raise dist.DistStoreError(f"link: {', '.join(keys)} was not set within {limit.total_seconds():g} s")

    def delete_key(self, key: str) -> bool:
        return bool(self._ask({"do": "delete", "key": key})["was_there"])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        question = {"do": "swap", "key": key, "expected": _said(_bytes_of(expected_value))}
        return _heard(self._ask({**question, "value": _said(_bytes_of(desired_value))})["value"])

    def num_keys(self) -> int:
        return int(self._ask({"do": "count"})["count"])

    # What torch's C++ calls them.

    def deleteKey(self, key: str) -> bool:
        return self.delete_key(key)

    def getNumKeys(self) -> int:
        return self.num_keys()

    def set_timeout(self, timeout: timedelta) -> None:
        self._limit = timeout

    @property
    def timeout(self) -> timedelta:
        return self._limit

    def close(self) -> None:
        self._connection.close()

    def _ask(self, question: Message, limit_s: float = _ANSWER_S) -> Message:
        with self._turn:
            try:
                return self._connection.ask(question, time.monotonic() + limit_s)
            except HubGone as gone:
                raise dist.DistStoreError(f"link: the meeting is over ({gone})") from gone


def _said(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _heard(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _bytes_of(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
