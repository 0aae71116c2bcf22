"""In which calls of which group a rank is killed, drawn from the seed of its world."""

from __future__ import annotations

from dataclasses import dataclass

from tests.soak.script import Script
from tests.stress.calls import one_of
from tests.support.dense import Draw

CALLS = ("ops", "ops", "gradients", "lists", "async")
CALLS_OF_BACKEND = (*CALLS, "backend", "backend", "messages")


@dataclass(frozen=True)
class Scene:
    members: tuple[int, ...]
    backend: str
    calls: str  # a kind of rounds
    is_first: bool  # the group has made no call before
    is_by_messages: bool  # and not in shared memory

    @staticmethod
    def of(script: Script) -> Scene:
        draw = Draw(script.seed + 1)
        members = sorted({script.victim, *(r for r in range(script.ranks) if draw.integer(0, 3))})
        if len(members) == 1:
            members = list(range(script.ranks))
        backend = one_of(draw, ("gloo", "shardway"))
        calls = one_of(draw, CALLS_OF_BACKEND if backend == "shardway" else CALLS)
        is_first = draw.integer(0, 4) == 0
        is_by_messages = script.is_by_messages and calls not in ("backend", "messages")
        if backend == "gloo":  # ranks that share memory join by messages of gloo in a group's first call
            is_by_messages = script.is_by_messages or is_first
        return Scene(tuple(members), backend, calls, is_first, is_by_messages)
