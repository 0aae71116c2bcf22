"""The last round of a world in which a rank is killed in the middle of calls of one group."""

from __future__ import annotations

import datetime
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

import shardway as sw
from tests.soak.notice import Notice
from tests.soak.script import DEATH_TIMEOUT_S, Script
from tests.stress.calls import any_case, one_of
from tests.stress.groups import Group, Groups, new_group
from tests.stress.kinds import KINDS
from tests.stress.world import World
from tests.support.dense import Draw

SOON_S = 1.0
CALLS = ("ops", "ops", "gradients", "lists", "async")
CALLS_OF_BACKEND = (*CALLS, "backend", "backend", "messages")
CALLS_AFTER = 3  # of a group that was shrunk
MOST_ROUNDS = 100_000


def strike_after(notice: Notice, delay_s: float) -> None:
    """Kills this process, whatever it does then."""

    def strike() -> None:
        time.sleep(delay_s)
        notice.strike()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=strike, daemon=True).start()


@dataclass
class OneGroup:
    """For rounds that would take any."""

    group: Group
    timeout: datetime.timedelta

    def any_of(self, draw: Draw, backend: str | None = None) -> Group:
        return self.group


def die_in_a_call(world: World, script: Script, notice: Notice) -> dict[str, list[float]]:
    """How long it took until this rank was told, if it is of the group."""
    draw = Draw(script.seed + 1)
    members = sorted({script.victim, *(r for r in range(world.size) if draw.integer(0, 3))})
    if len(members) == 1:
        members = list(range(world.size))
    backend = one_of(draw, ("gloo", "shardway"))
    timeout = datetime.timedelta(seconds=DEATH_TIMEOUT_S)
    group = new_group(members, backend, world.rank, timeout)
    name = one_of(draw, CALLS_OF_BACKEND if backend == "shardway" else CALLS)
    is_first = draw.integer(0, 4) == 0
    world.begin(f"rank {script.victim} dies in {name} on {backend} {members}")
    place = group.place(world.rank)
    survivors = set(members) - {script.victim}
    if not is_first and place is not None:
        case = any_case(draw, group.size)
        case.check(case.call(case.inputs[place], place, group=group.pg), place)
    world.exchange(None)
    if world.rank == script.victim:
        strike_after(notice, script.delay_s)
    if place is None:
        notice.await_all(survivors, 2 * DEATH_TIMEOUT_S + SOON_S)
        return {}
    return _call_until_told(world, script, notice, group, name, is_first)


def _call_until_told(
    world: World, script: Script, notice: Notice, group: Group, name: str, is_first: bool
) -> dict[str, list[float]]:
    groups: Groups = world.groups
    world.groups = OneGroup(group, groups.timeout)  # type: ignore[assignment]
    error: Exception | None = None
    try:
        for number in range(MOST_ROUNDS):
            KINDS[name].run(world, Draw(script.seed + 2 + number))
            if notice.struck and time.monotonic() - notice.struck > 2 * DEATH_TIMEOUT_S + SOON_S:
                break
    except Exception as caught:
        error = caught
    told_s = time.monotonic() - max(notice.struck, world.call_began)
    notice.tell(world.rank)
    world.groups = groups
    is_by_messages = _is_by_messages(script, group, name, is_first)
    _judge(world, script, group, error, told_s if notice.struck else -1.0, is_by_messages)
    survivors = set(group.members) - {script.victim}
    notice.await_all(survivors, 2 * DEATH_TIMEOUT_S + SOON_S)
    if hasattr(sw, "shrink") and not is_by_messages and error is not None:
        _go_on_without(world, script, group)
    return {"messages" if is_by_messages else "shared memory": [told_s]}


def _is_by_messages(script: Script, group: Group, name: str, is_first: bool) -> bool:
    """Ranks that share memory join by messages of gloo in a group's first call."""
    if group.backend == "gloo":
        return script.is_by_messages or is_first
    return script.is_by_messages and name not in ("backend", "messages")


def _judge(
    world: World, script: Script, group: Group, error: Exception | None, told_s: float, is_by_messages: bool
) -> None:
    what = f"{type(error).__name__}: {str(error)[:500]}" if error else "nothing"
    if told_s < 0:
        world.find("failure", f"before the death: {what}")
    elif error is None or not isinstance(error, dist.DistBackendError):
        world.find("untold", f"not told of the death by a DistBackendError: {what}")
    elif told_s > (DEATH_TIMEOUT_S if is_by_messages else 0) + SOON_S:
        world.find("untold", f"told {told_s:.3f} s after the death: {what}")
    elif not is_by_messages and not _names(str(error), group.members.index(script.victim)):
        world.find("untold", f"the error does not name rank {group.members.index(script.victim)} of the group: {what}")


def _names(text: str, place: int) -> bool:
    found = re.search(r"rank (\d+) could not be reached", text)
    return found is not None and int(found[1]) == place


def _go_on_without(world: World, script: Script, group: Group) -> None:
    """The survivors shrink the group and go on."""
    world.begin(f"shrinking {group.backend} {group.members}")
    shrink: Any = sw.shrink  # type: ignore[attr-defined]
    members = tuple(rank for rank in group.members if rank != script.victim)
    smaller = Group(members, group.backend, shrink(group.pg, timeout=datetime.timedelta(seconds=DEATH_TIMEOUT_S)))
    place = smaller.place(world.rank)
    assert place is not None and smaller.pg is not None
    world.called("shrink")
    for number in range(CALLS_AFTER):
        case = any_case(Draw(script.seed - 1 - number), smaller.size)
        world.doing(f"{case.op} on what is left: {members}")
        world.called(case.op, case.inputs[place].nbytes)
        result = case.call(case.inputs[place], place, group=smaller.pg)
        world.expect(lambda case=case, result=result: case.check(result, place), f"shrunk to {members}:")  # type: ignore[misc]
    dist.destroy_process_group(smaller.pg)
