"""Groups of some of the ranks that come and go in any order; all ranks draw the same."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch.distributed as dist

from tests.stress.crew import Run
from tests.support.dense import Draw

TIMEOUT = datetime.timedelta(seconds=60)
MOST = 5
DELAYS = (0, 0, 1, 2, 5, 12)  # rounds


def enter(rank: int, run: Run, timeout: datetime.timedelta = TIMEOUT) -> None:
    """Makes the default group. A store in a file would open it for every word, which takes a descriptor."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    address = f"tcp://127.0.0.1:{run.port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=run.ranks, timeout=timeout)


@dataclass
class Group:
    """A group as one rank sees it. A member destroys it in one round and drops its last reference in the same or a
    later one: `leaves` and `drops` are by place among the members, empty while it is in use."""

    members: tuple[int, ...]
    backend: str
    pg: dist.ProcessGroup | None  # None: the default group, or no member, or dropped
    leaves: list[int] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.members)

    def place(self, rank: int) -> int | None:
        return self.members.index(rank) if rank in self.members else None


def new_group(members: Sequence[int], backend: str, rank: int, timeout: datetime.timedelta) -> Group:
    """Collective over all ranks."""
    pg = dist.new_group(list(members), backend=backend, timeout=timeout)
    return Group(tuple(members), backend, pg if rank in members else None)


class Groups:
    """Some that stay and some that do not."""

    def __init__(self, rank: int, size: int, timeout: datetime.timedelta = TIMEOUT) -> None:
        self._rank = rank
        self._size = size
        self.timeout = timeout
        everybody = tuple(range(size))
        self.default = Group(everybody, "gloo", None)
        names = ("gloo", "shardway", "shardway")
        self.staying = [self.default, *(new_group(everybody, name, rank, timeout) for name in names)]
        self._passing: list[Group] = []

    def any_of(self, draw: Draw, backend: str | None = None) -> Group:
        found = [g for g in (*self.staying, *self._passing) if not g.leaves and backend in (None, g.backend)]
        return found[draw.integer(0, len(found))]

    def come_and_go(self, draw: Draw, now: int) -> None:
        in_use = [group for group in self._passing if not group.leaves]  # before this round: all have connected
        if len(self._passing) < MOST and draw.integer(0, 5) == 0:
            members = [r for r in range(self._size) if draw.integer(0, 3)]
            if len(members) > 1:
                backend = ("gloo", "shardway")[draw.integer(0, 2)]
                self._passing.append(new_group(members, backend, self._rank, self.timeout))
        for group in in_use:
            if draw.integer(0, 8) == 0:
                self._end(group, draw, now)
        self._part(now)

    def end_all(self, draw: Draw, now: int) -> None:
        """As if the rounds in which they go had come."""
        for group in self._passing:
            if not group.leaves:
                self._end(group, draw, now)
        for round_ in range(now, now + 2 * max(DELAYS) + 1):
            self._part(round_)

    @staticmethod
    def _end(group: Group, draw: Draw, now: int) -> None:
        for _ in group.members:
            group.leaves.append(now + DELAYS[draw.integer(0, len(DELAYS))])
            group.drops.append(group.leaves[-1] + DELAYS[draw.integer(0, len(DELAYS))])

    def _part(self, now: int) -> None:
        for group in self._passing:
            place = group.place(self._rank)
            if place is None or not group.leaves or group.pg is None:
                continue
            if group.leaves[place] == now:
                dist.destroy_process_group(group.pg)
            if group.drops[place] == now:
                group.pg = None
        self._passing = [g for g in self._passing if not g.drops or max(g.drops) > now]
