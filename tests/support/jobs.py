"""Several jobs of forked ranks that know one another by an address alone: none has a process group."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

import shardway as sw

from .programs import end_with_parent
from .ranks import Enter, run_ranks


@dataclass(frozen=True)
class Place:
    """A rank of a job."""

    address: str
    role: str
    rank: int
    size: int

    def connect(self, *, secret: str = "open", timeout: float = 15.0) -> sw.JobLink:
        return sw.connect(self.address, self.role, self.rank, self.size, secret=secret, timeout=timeout)

    def await_holder(self) -> None:
        """Until another process holds the link, so that this one does not."""
        host, port = self.address.removeprefix("tcp://").split(":")
        with contextlib.suppress(OSError):
            return socket.create_connection((host, int(port))).close()
        time.sleep(0.002)
        return self.await_holder()


Body = Callable[[Place], Any]


def run_jobs(
    jobs: dict[str, tuple[int, Body]],
    *,
    address: str | None = None,
    dying: Collection[tuple[str, int]] = (),
    enter: Enter = lambda rank, size: None,
    timeout_s: float = 90.0,
) -> dict[str, list[Any]]:
    """Runs `body(place)` in every rank of every job, started in the order given; what each returned. Ranks in `dying`
    must end without an answer."""
    where = address or f"tcp://127.0.0.1:{free_ports(1)[0]}"
    places = [Place(where, role, rank, size) for role, (size, _) in jobs.items() for rank in range(size)]

    def body(index: int, count: int) -> Any:
        place = places[index]
        return jobs[place.role][1](place)

    lost = [i for i, place in enumerate(places) if (place.role, place.rank) in dying]
    found = run_ranks(len(places), body, enter=enter, dying=lost, timeout_s=timeout_s)
    answers: dict[str, list[Any]] = {role: [] for role in jobs}
    for place, answer in zip(places, found, strict=True):
        answers[place.role].append(answer)
    return answers


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A destination in which nothing has arrived."""
    return torch.full(shape, float("nan"), dtype=dtype)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        made = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(probe.getsockname()[1]) for probe in made]


def in_a_child(act: Callable[[], Any]) -> int:
    """Runs it in a child of this process, which must die by a signal, and waits for that: the signal's number."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"the child ended with status {os.WEXITSTATUS(status)} instead of being killed"
        return os.WTERMSIG(status)
    status = 1
    try:
        end_with_parent()
        act()
        status = 0
    finally:
        os._exit(status)
