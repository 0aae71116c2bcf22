"""The last round of a world in which a rank is killed in the middle of calls of one group."""

from __future__ import annotations

import datetime
import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field

import torch.distributed as dist

import shardway as sw
from tests.soak.notice import Notice
from tests.soak.scene import Scene
from tests.soak.script import DEATH_TIMEOUT_S, Script
from tests.soak.waits import CoreWaits
from tests.stress.calls import any_case
from tests.stress.groups import Group, Groups, new_group
from tests.stress.kinds import KINDS
from tests.stress.world import World
from tests.support.dense import Draw

SOON_S = 1.0
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


@dataclass
class Times:
    """In seconds, of one rank. None where it is not of the group."""

    told_s: dict[str, list[float]] = field(default_factory=dict)  # from the death to the error, by transport
    shrunk_s: list[float] = field(default_factory=list)  # from the call of shrink to the smaller group


def die_in_a_call(world: World, script: Script, notice: Notice) -> Times:
    scene = Scene.of(script)
    group = new_group(scene.members, scene.backend, world.rank, datetime.timedelta(seconds=DEATH_TIMEOUT_S))
    world.begin(f"rank {script.victim} dies in {scene.calls} on {scene.backend} {scene.members}")
    place = group.place(world.rank)
    survivors = set(scene.members) - {script.victim}
    if not scene.is_first and place is not None:
        case = any_case(Draw(script.seed + 1), group.size)
        case.check(case.call(case.inputs[place], place, group=group.pg), place)
    world.exchange(None)
    if world.rank == script.victim:
        strike_after(notice, script.delay_s)
    if place is None:
        notice.await_all(survivors, 2 * DEATH_TIMEOUT_S + SOON_S)
        return Times()
    return _call_until_told(world, script, scene, notice, group)


def _call_until_told(world: World, script: Script, scene: Scene, notice: Notice, group: Group) -> Times:
    groups: Groups = world.groups
    world.groups = OneGroup(group, groups.timeout)  # type: ignore[assignment]
    error: Exception | None = None
    waits = CoreWaits()
    try:
        for number in range(MOST_ROUNDS):
            waits = CoreWaits()
            KINDS[scene.calls].run(world, Draw(script.seed + 2 + number))
            if notice.struck and time.monotonic() - notice.struck > 2 * DEATH_TIMEOUT_S + SOON_S:
                break
    except Exception as caught:
        error = caught
    told_s = time.monotonic() - max(notice.struck, world.call_began)
    waited_s = waits.longest_s()
    notice.tell(world.rank)
    world.groups = groups
    _judge(world, script, group, error, told_s if notice.struck else -1.0, waited_s, scene.is_by_messages)
    survivors = set(group.members) - {script.victim}
    notice.await_all(survivors, 2 * DEATH_TIMEOUT_S + SOON_S)
    times = Times({"messages" if scene.is_by_messages else "shared memory": [told_s]})
    if error is not None and not scene.is_by_messages:
        times.shrunk_s.append(_go_on_without(world, script, group))
    return times


def _judge(
    world: World,
    script: Script,
    group: Group,
    error: Exception | None,
    told_s: float,
    waited_s: float,
    is_by_messages: bool,
) -> None:
    what = f"{type(error).__name__}: {str(error)[:500]}" if error else "nothing"
    if told_s < 0:
        world.find("failure", f"before the death: {what}")
    elif error is None or not isinstance(error, dist.DistBackendError):
        world.find("untold", f"not told of the death by a DistBackendError: {what}")
    elif told_s - waited_s > (DEATH_TIMEOUT_S if is_by_messages else 0) + SOON_S:
        world.find("untold", f"told {told_s:.3f} s after the death, {waited_s:.3f} of them without a core: {what}")
    elif not is_by_messages and not _names(str(error), group.members.index(script.victim)):
        world.find("untold", f"the error does not name rank {group.members.index(script.victim)} of the group: {what}")


def _names(text: str, place: int) -> bool:
    found = re.search(r"rank (\d+) could not be reached", text)
    return found is not None and int(found[1]) == place


def _go_on_without(world: World, script: Script, group: Group) -> float:
    """The survivors shrink the group and go on. How long the shrinking took."""
    world.begin(f"shrinking {group.backend} {group.members}")
    members = tuple(rank for rank in group.members if rank != script.victim)
    place = members.index(world.rank)
    began, waits = time.monotonic(), CoreWaits()
    smaller = sw.shrink(group.pg, timeout=DEATH_TIMEOUT_S)
    shrunk_s = time.monotonic() - began
    world.called("shrink")
    if shrunk_s - waits.longest_s() >= DEATH_TIMEOUT_S:
        world.find("slow", f"it took {shrunk_s:.3f} s, although all who live came at once")
    if (smaller.size(), smaller.rank()) != (len(members), place):
        world.find("unshrunk", f"rank {smaller.rank()} of {smaller.size()}, and not {place} of {len(members)}")
    for number in range(CALLS_AFTER):
        case = any_case(Draw(script.seed - 1 - number), len(members))
        world.doing(f"{case.op} on what is left: {members}")
        world.called(case.op, case.inputs[place].nbytes)
        result = case.call(case.inputs[place], place, group=smaller)
        world.expect(lambda case=case, result=result: case.check(result, place), f"shrunk to {members}:")  # type: ignore[misc]
    dist.destroy_process_group(smaller)
    return shrunk_s
