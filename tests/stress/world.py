"""What a round works with on one rank."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from tests.stress.crew import Status
from tests.stress.groups import Groups

MOST_FINDINGS = 20


class World:
    def __init__(self, rank: int, size: int, status: Status) -> None:
        self.rank = rank
        self.size = size
        self.groups = Groups(rank, size)
        self.meshes = [DeviceMesh("cpu", list(range(size)))]
        if size == 4:
            self.meshes.append(DeviceMesh("cpu", [[0, 1], [2, 3]]))
        self.findings: list[str] = []
        self._control = dist.new_group(backend="gloo")  # torch's own calls alone
        self._status = status
        self._round = ""

    def begin(self, what: str) -> None:
        self._round = what
        self._status.begin(what)

    def doing(self, what: object) -> None:
        self._status.say(f"{self._round}: {what}")

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
