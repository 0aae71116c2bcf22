"""What a round works with on one rank."""

from __future__ import annotations

import datetime
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from tests.stress.crew import Status
from tests.stress.groups import TIMEOUT, Groups

MOST_FINDINGS = 20


class World:
    def __init__(self, rank: int, size: int, status: Status, timeout: datetime.timedelta = TIMEOUT) -> None:
        self.rank = rank
        self.size = size
        self.groups = Groups(rank, size, timeout)
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()  # calls by op, and what else a round did
        self.bytes = 0  # of the inputs
        self.call_began = 0.0
        self._control = dist.new_group(backend="gloo", timeout=timeout)  # torch's own calls alone
        self._status = status
        self._round = ""

    @cached_property
    def meshes(self) -> list[DeviceMesh]:
        """The first use is collective. Torch keeps a mesh's groups for the life of the process."""
        found = [DeviceMesh("cpu", list(range(self.size)))]
        return [*found, DeviceMesh("cpu", [[0, 1], [2, 3]])] if self.size == 4 else found

    def begin(self, what: str) -> None:
        self._round = what
        self._status.begin(what)

    def doing(self, what: object) -> None:
        self._status.say(f"{self._round}: {what}")

    def called(self, op: str, bytes_: int = 0) -> None:
        self.counts[op] += 1
        self.bytes += bytes_
        self.call_began = time.monotonic()

    def expect(self, check: Callable[[], None], what: object = "") -> None:
        """Runs a check of values; what is wrong is written down, and the round goes on."""
        try:
            check()
        except AssertionError as error:
            self.find("wrong value", f"{what} {error}")

    def find(self, category: str, text: str) -> None:
        self.findings.append(f"{category} on rank {self.rank}, {self.what}: {text[:4000]}")

    def stacks_of(self, pid: int) -> str:
        """Of a child of this rank."""
        before = self._status.stacks.stat().st_size
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        return self._status.stacks.read_text()[before:]

    @property
    def is_enough(self) -> bool:
        return len(self.findings) >= MOST_FINDINGS

    @property
    def what(self) -> str:
        return self._status.what

    def exchange(self, mine: Any) -> list[Any]:
        """Every rank's, by rank."""
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, mine, group=self._control)
        return everyone
