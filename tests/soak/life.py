"""The life of one rank in a world: it enters, makes calls, perhaps loses a peer, leaves, and looks at what is left."""

from __future__ import annotations

import datetime
import gc
import os
import time
import traceback
import warnings

import torch.distributed as dist

import shardway as sw
from tests.faults.leftovers import Holdings
from tests.soak.death import MOST_ROUNDS, die_in_a_call, strike_after
from tests.soak.notice import Notice
from tests.soak.plants import plant
from tests.soak.script import (
    DEATH_TIMEOUT_S,
    DIES_ANYWHERE,
    DIES_IN_A_CALL,
    ENVIRONMENTS,
    ROUND_LIMIT_S,
    TIMEOUT_S,
    Script,
)
from tests.stress.crew import Outcome, Run, Status
from tests.stress.groups import enter
from tests.stress.rounds import one_round
from tests.stress.world import World

LEAVE_LIMIT_S = 2.0
KEPT_THREADS = 1  # of a process that once left messages of gloo behind


def live(script: Script, notice: Notice, planted: str, rank: int, run: Run, status: Status) -> Outcome:
    warnings.filterwarnings("ignore")  # of forks beside threads, and of names that torch is about to change
    os.environ.update(TORCHELASTIC_RUN_ID="soak", RANK=str(rank), WORLD_SIZE=str(run.ranks), SHARDWAY_QUIET="1")
    os.environ.update(ENVIRONMENTS[script.transport])
    _make_torch_open_what_it_keeps()
    before = Holdings.now()
    outcome = Outcome()
    timeout = datetime.timedelta(seconds=TIMEOUT_S)
    enter(rank, run, timeout)
    world: World | None = World(rank, run.ranks, status, timeout)
    assert world is not None
    plant(planted, rank, script)
    try:
        _rounds(world, script, notice, run, outcome)
    except Exception as error:
        _note(world, script, notice, outcome, error)
    outcome.findings = world.findings + outcome.findings
    outcome.counts, outcome.bytes = world.counts, world.bytes
    world.begin("leaving")
    world = None
    dist.destroy_process_group()
    status.begin("looking at what is left")
    if not script.has_meshes and not outcome.is_cut_short:
        outcome.findings += [f"left on rank {rank}, {script}: {line}" for line in _left_since(before, script)]
    return outcome


def _make_torch_open_what_it_keeps() -> None:
    """The first store of a process opens a pipe that stays."""
    dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def _rounds(world: World, script: Script, notice: Notice, run: Run, outcome: Outcome) -> None:
    for number in range(script.rounds):
        outcome.rounds[one_round(world, run, number)] += 1
    if script.ending == DIES_IN_A_CALL:
        times = die_in_a_call(world, script, notice)
        outcome.told_s, outcome.shrunk_s = times.told_s, times.shrunk_s
        return
    if script.ending != DIES_ANYWHERE:
        world.exchange(None)
        return
    if script.has_meshes:
        assert world.meshes  # torch waits for half an hour for a rank that dies while a mesh is made
    world.exchange(None)
    if world.rank == script.victim:
        strike_after(notice, script.delay_s)
    for number in range(script.rounds, MOST_ROUNDS):
        outcome.rounds[one_round(world, run, number)] += 1


def _note(world: World, script: Script, notice: Notice, outcome: Outcome, error: Exception) -> None:
    """A rank that dies anywhere may leave the others in any call, of torch's or of ours; all must end."""
    if script.ending == DIES_ANYWHERE and notice.struck:
        world.called("told of a death anywhere")
        notice.tell(world.rank)
        # A rank may wait for one that waits for one that died, each for its timeout: as long as a round may take.
        world.begin("waiting until every survivor is told")
        notice.await_all(set(range(world.size)) - {script.victim}, ROUND_LIMIT_S)
        return
    outcome.findings.append(f"failure on rank {world.rank}, {world.what}: {traceback.format_exc()}")
    outcome.is_cut_short = True


def _left_since(before: Holdings, script: Script) -> list[str]:
    """What does not go within the limit: after a death, that of messages which nobody takes any more."""
    deadline = time.monotonic() + (2 * DEATH_TIMEOUT_S if script.victims else LEAVE_LIMIT_S)
    while True:
        gc.collect()
        sw.empty_cache()
        found = Holdings.now().beyond(before, KEPT_THREADS)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.01)
