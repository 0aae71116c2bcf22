"""Versions that were copied and are sent by a thread, in order. The caller goes on after the copy."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from shardway._C import copy_parts
from shardway._memory import empty

from .devices import gpus_of, wait_for

MOST_HELD = 2
_GRACE_S = 60.0

Parts: TypeAlias = dict[str, Tensor | None]


def _room_for(part: Tensor) -> Tensor:
    return torch.empty_like(part) if part.is_cuda else empty(*part.shape, dtype=part.dtype)


class HeldVersions:
    """At most two. One thread adds, another sends; `send` raises what the next call of the adding thread raises."""

    def __init__(self, send: Callable[[Parts], int]) -> None:
        self._send = send
        self._changed = threading.Condition()
        self._free: list[Parts] = []
        self._made = 0
        self._version_bytes = 0
        self._queue: deque[Parts] = deque()
        self._is_sending = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def add(self, parts: Mapping[str, Tensor | None], timeout_s: float) -> None:
        """Waits for the slowest reader of the version before the last one, if two are held."""
        self.raise_failure()
        buffers = self._buffers(parts, timeout_s)
        pairs = [(to, part) for name, part in parts.items() if part is not None and (to := buffers[name]) is not None]
        copy_parts([to for to, _ in pairs], [part for _, part in pairs])
        wait_for(gpus_of(parts.values()))  # the thread has a stream of its own
        with self._changed:
            self._queue.append(buffers)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="shardway-link-send", daemon=True)
                self._thread.start()

    def bytes(self) -> int:
        """The memory of all versions that can be held now."""
        return self._made * self._version_bytes

    def drain(self, timeout_s: float) -> None:
        """Returns when all have been sent; raises what went wrong with one of them."""
        self._wait(lambda: not self._queue and not self._is_sending, timeout_s)
        self.raise_failure()

    def raise_failure(self) -> None:
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _buffers(self, parts: Mapping[str, Tensor | None], timeout_s: float) -> Parts:
        if self._made < MOST_HELD and not self._free:
            self._made += 1
            made = {name: None if part is None else _room_for(part) for name, part in parts.items()}
            self._version_bytes = sum(buffer.nbytes for buffer in made.values() if buffer is not None)
            return made
        self._wait(lambda: bool(self._free), timeout_s)
        self.raise_failure()
        with self._changed:
            return self._free.pop()

    def _wait(self, is_over: Callable[[], bool], timeout_s: float) -> None:
        """The sending thread gives each version up at the timeout, so that this wait ends before its own."""
        end_s = time.monotonic() + (MOST_HELD + 1) * timeout_s + _GRACE_S
        with self._changed:
            while not is_over():
                if time.monotonic() > end_s:
                    raise dist.DistBackendError("send: the thread that sends the versions held does not come to an end")
                self._changed.wait(0.1)  # short, for Ctrl-C

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_sending = False
                self._changed.notify_all()
                while not self._queue:
                    self._changed.wait()
                buffers = self._queue.popleft()
                self._is_sending = True
            failure = self._failure_of(buffers)
            with self._changed:
                self._failure = self._failure or failure
                self._free.append(buffers)
                self._changed.notify_all()

    def _failure_of(self, buffers: Parts) -> Exception | None:
        try:
            self._send(buffers)
        except Exception as error:
            return error
        return None
