"""One rank's rounds."""

from __future__ import annotations

import ctypes
import gc
import time
import traceback
import warnings
from collections import Counter

import torch

import shardway as sw
from tests.stress.crew import Outcome, Run, Status
from tests.stress.groups import enter
from tests.stress.kinds import KINDS
from tests.stress.usage import Usage, make_memory_tell
from tests.stress.world import World
from tests.support.dense import Draw

SHARE_OF_WARM_UP = 0.1
LEAST_WARM_UP_S = 15.0
SHOW_EVERY_S = 10.0


def stress(rank: int, run: Run, status: Status) -> Outcome:
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # of forks beside threads: that is the point
    warnings.filterwarnings("ignore", category=FutureWarning)  # of names that torch is about to change
    make_memory_tell()
    enter(rank, run)
    world = World(rank, run.ranks, status)
    outcome = Outcome()
    try:
        for group in world.groups.staying:
            sw.all_gather_v(torch.ones(rank), group=group.pg)
        _rounds(world, run, outcome)
    except Exception as error:
        is_told = any(words in str(error) for words in ("closed by peer", "reset by peer", "its process ended"))
        text = f"a peer is gone: {str(error)[:300]}" if is_told else traceback.format_exc()
        outcome.findings.append(f"failure on rank {rank}, {world.what}: {text}")
        outcome.is_cut_short = True
    outcome.findings = world.findings + outcome.findings
    outcome.counts, outcome.bytes = world.counts, world.bytes
    return outcome


def _rounds(world: World, run: Run, outcome: Outcome) -> None:
    began = shown = time.monotonic()
    warm: Usage | None = None
    while True:
        number = outcome.rounds.total()
        elapsed = time.monotonic() - began
        is_warm = warm is None and elapsed >= max(LEAST_WARM_UP_S, SHARE_OF_WARM_UP * run.seconds)
        said = world.exchange((elapsed >= run.seconds or number == run.rounds, is_warm, world.is_enough))
        if said[0][0] or any(is_enough for _, _, is_enough in said):
            break
        if said[0][1]:
            warm = _usage(world, number)
        outcome.rounds[one_round(world, run, number)] += 1
        if world.rank == 0 and time.monotonic() - shown >= SHOW_EVERY_S:
            shown = time.monotonic()
            _show(outcome.rounds, run.seconds - (shown - began))
    last = _usage(world, number)
    if warm is None:
        outcome.usage = [f"{last}; too short to see whether anything grows"]
    else:
        outcome.usage = [f"at a tenth {warm}; at the end {last}"]
        outcome.findings += [f"grown on rank {world.rank}: {line}" for line in last.growth_since(warm)]
    world.exchange(None)  # a rank that ends sooner ends its groups


def one_round(world: World, run: Run, number: int) -> str:
    draw = Draw(run.seed * 1_000_003 + number)
    names = [name for name in run.kinds for _ in range(KINDS[name].weight)]
    name = names[draw.integer(0, len(names))]
    world.begin(f"round {number}: groups come and go")
    world.groups.come_and_go(draw, number)
    world.begin(f"round {number}: {name}")
    KINDS[name].run(world, draw)
    return name


def _usage(world: World, number: int) -> Usage:
    world.begin(f"round {number}: looking at memory")
    world.groups.end_all(Draw(number), number)
    for _ in range(2):  # what a rank retires goes once its peers have left
        gc.collect()
        world.exchange(None)
        sw.all_gather_v(torch.ones(world.rank + 1))
    sw.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    world.exchange(None)  # a rank maps what its peers keep
    usage = Usage.now()
    world.exchange(None)
    return usage


def _show(rounds: Counter[str], left: float) -> None:
    print(f"{sum(rounds.values()):7} rounds, {max(0, left):5.0f} s left, {Usage.now()}", flush=True)
