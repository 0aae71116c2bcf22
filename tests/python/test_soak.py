"""The soak finds what is planted, and nothing where nothing is."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time

import pytest

from tests.soak import life
from tests.soak.plants import PLANTS
from tests.soak.scene import Scene
from tests.soak.script import ANY, DIES_ANYWHERE, DIES_IN_A_CALL, ENDS, Script, script_of
from tests.soak.tally import Tally
from tests.soak.waits import CoreWaits
from tests.soak.worlds import scripts_of, soak


def _soaked(seed, planted="", round_limit_s=60.0, **changes) -> Tally:
    """One world, of two ranks unless told otherwise."""
    script = _script(seed, **changes)
    return soak([script], 60.0, lambda *_: None, planted=planted, round_limit_s=round_limit_s)


def _script(seed, ranks=2, **changes) -> Script:
    return dataclasses.replace(script_of(seed), ranks=ranks, victim=1, transport=ANY, stops=0, **changes)


def _seed_of_a_shrink(seed) -> int:
    """The first from `seed` on whose world of three ranks ends so that two of them shrink a group."""

    def shrinks(candidate: int) -> bool:
        scene = Scene.of(_script(candidate, ranks=3))
        return scene.members == (0, 1, 2) and not scene.is_by_messages

    return next(filter(shrinks, itertools.count(seed)))


def test_worlds_are_drawn_from_their_seed():
    scripts = list(itertools.islice(scripts_of(5), 100))
    assert scripts == list(itertools.islice(scripts_of(5), 100))
    assert len(set(scripts)) == 100
    assert {script.ranks for script in scripts} == {2, 3, 4, 5}
    assert len({script.transport for script in scripts}) == 4
    assert len({script.ending for script in scripts}) == 3


def _waited_of(seconds: float, cores: set[int]) -> float:
    """How long each of two processes that work on these cores waits for one, as one of them sees it."""
    child = os.fork()
    os.sched_setaffinity(0, cores)
    waits, end = CoreWaits(), time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return waits.longest_s()


def test_time_without_a_core_is_told_from_time_asleep():
    waits = CoreWaits()
    time.sleep(0.3)
    asleep_s = waits.longest_s()
    cores = os.sched_getaffinity(0)
    try:
        waited_s = _waited_of(0.4, {min(cores)})
    finally:
        os.sched_setaffinity(0, cores)
    assert waited_s > 0.1 and asleep_s < 0.3


@pytest.mark.parametrize("ending", [ENDS, DIES_IN_A_CALL])
def test_a_world_in_which_all_is_well_gives_zeros(seed, ending):
    kinds = ("ops", "gradients", "lists", "backend", "disagree", "descriptors", "arena", "forks-first")
    tally = _soaked(seed, ending=ending, rounds=8, kinds=kinds)
    assert not tally.findings, "\n".join(tally.findings)
    assert not any(tally.zeros.values())
    assert tally.kills == (ending == DIES_IN_A_CALL) == tally.told
    assert tally.calls > 0


def test_survivors_shrink_the_group_of_which_one_died(seed):
    tally = _soaked(_seed_of_a_shrink(seed), ranks=3, ending=DIES_IN_A_CALL, rounds=1, kinds=("ops",))
    assert not tally.findings, "\n".join(tally.findings)
    assert tally.counts["shrink"] == len(tally.shrunk_s) == 2


class _WorldUntilTheDeath:
    """Writes down what a rank does before one may be killed."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def meshes(self) -> list[str]:
        self.done.append("meshes")
        return ["a mesh"]

    def exchange(self, mine: object) -> None:
        self.done.append("exchange")
        raise InterruptedError


def test_meshes_are_made_before_a_rank_may_die_anywhere(seed):
    """Seen as a hang of torch's: it waits for half an hour for a rank that dies while a mesh is made."""
    script, world = _script(seed, ending=DIES_ANYWHERE, rounds=0, kinds=("dtensor",)), _WorldUntilTheDeath()
    with pytest.raises(InterruptedError):
        life._rounds(world, script, None, None, None)  # type: ignore[arg-type]
    assert world.done == ["meshes", "exchange"]


FOUND = {  # what is planted: the kind of rounds, how the world ends, and what counts it
    "wrong": ("ops", ENDS, "wrong results"),
    "hang": ("ops", ENDS, "hangs"),
    "crash": ("ops", ENDS, "crashes"),
    "late": ("ops", DIES_IN_A_CALL, "survivors not told in time"),
    "memory": ("ops", ENDS, "leaks"),
    "process": ("ops", ENDS, "leaks"),
    "deaf": ("disagree", ENDS, "disagreements without one error"),
}


@pytest.mark.parametrize("planted", FOUND)
def test_what_is_planted_is_found(seed, planted):
    kind, ending, title = FOUND[planted]
    limit_s = 2.0 if planted == "hang" else 60.0
    rounds = 30 if planted == "wrong" else 3  # a rank may have nothing but empty results in a few
    tally = _soaked(seed, planted, limit_s, ending=ending, rounds=rounds, kinds=(kind,))
    assert tally.zeros[title] > 0, tally.findings


FOUND_BY_SHRINKING = {
    "shrink-slow": "shrinks that waited for the dead",
    "shrink-late": "shrunk groups of other ranks",
    "shrink-not": "shrunk groups of other ranks",
    "shrink-wrong": "wrong results",
    "shrink-leak": "leaks",
}


@pytest.mark.parametrize("planted", FOUND_BY_SHRINKING)
def test_what_is_planted_in_shrink_is_found(seed, planted):
    tally = _soaked(_seed_of_a_shrink(seed), planted, ranks=3, ending=DIES_IN_A_CALL, rounds=1, kinds=("ops",))
    assert tally.zeros[FOUND_BY_SHRINKING[planted]] > 0, tally.findings


def test_every_plant_has_a_test():
    assert set(PLANTS) == {*FOUND, *FOUND_BY_SHRINKING}
