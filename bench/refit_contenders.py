"""The ways to refit that bench/refit.py compares: their names, those over a link, and the copies that are the floor.
Those on gloo are in bench/refit_gloo.py, those through files in bench/refit_files.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import shardway as sw
from bench.refit_models import Sides
from tests.support.jobs import free_ports

FIRST = "shardway, first time"
OURS = "shardway"
SHARED = "shardway, sources in shared memory"
HOLDS = "shardway without waiting: what it holds the trainer"
GATHERED = "gather and broadcast on gloo, per tensor"
BUCKETS = "gather and broadcast on gloo, in buckets"
MESSAGES = "send and recv on gloo, per parameter"
CHECKPOINT = "distributed checkpoint in tmpfs"
SAFETENSORS = "safetensors in tmpfs"
COPY = "plain copy of the generators' parts"
TRAINER_COPY = "plain copy of the trainers' parts"
_TIMEOUT_S = 600.0

LEFT_OUT = """
Stores that are not compared: torchstore 0.1.2 pins torch 2.9 and torchmonarch; checkpoint-engine, nixl and Mooncake's
transfer engine move memory of GPUs or need RDMA; Ray's object store needs daemons of its own.
"""


@dataclass
class Way:
    """One contender on one rank. `after` runs untimed, when all ranks have ended the call."""

    name: str
    call: Callable[[], object]
    after: Callable[[], object] = lambda: None
    sent: int = 0  # bytes that all ranks together receive from others
    delivers: bool = True  # the destinations have the model afterwards


def places(count: int) -> list[str]:
    """Addresses for links; made before the ranks are forked."""
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(count)]


def _connected(sides: Sides, address: str) -> sw.JobLink:
    is_trainer = sides.trainer is not None
    role, size = ("trainer", sides.trainers) if is_trainer else ("generator", sides.generators)
    rank = sides.trainer if is_trainer else sides.generator
    return sw.connect(address, role, rank, size, secret="of this benchmark", timeout=_TIMEOUT_S)


class Linked:
    """A link on which this rank sends or receives."""

    def __init__(self, sides: Sides, address: str, sources: Mapping[str, sw.MeshTensor]) -> None:
        self.link = _connected(sides, address)
        self.source = self.link.publish(sources) if sides.trainer is not None else None
        self.target = self.link.subscribe(sides.destinations) if sides.generator is not None else None
        self._held = 0

    def move(self) -> None:
        if self.source is not None:
            self.source.send()
        if self.target is not None:
            self.target.receive()

    def send_without_waiting(self) -> None:
        if self.source is not None:
            self._held = self.source.send(wait=False)

    def receive_what_is_held(self) -> None:
        if self.target is not None:
            self.target.receive()
            return
        assert self.source is not None
        while self.source.version < self._held:
            time.sleep(1e-4)


def ours(sides: Sides, addresses: Sequence[str], first: Sequence[str]) -> list[Way]:
    """Links that stay, in lock-step and without waiting; and new ones at the addresses `first`, one a call."""
    ordinary, shared, held = (
        Linked(sides, address, sources)
        for address, sources in zip(addresses, (sides.ordinary, sides.shared, sides.ordinary), strict=True)
    )
    ordinary.move()
    sent = sum(map(sum, ordinary.link.plan.bytes))
    unused, made = iter(first), []

    def first_time() -> None:
        made.append(Linked(sides, next(unused), sides.ordinary))
        made[0].move()

    return [
        Way(FIRST, first_time, lambda: made.pop().link.close(), sent),
        Way(OURS, ordinary.move, sent=sent),
        Way(SHARED, shared.move, sent=sent),
        Way(HOLDS, held.send_without_waiting, held.receive_what_is_held, sent),
    ]


# The floors.


def copies(sides: Sides) -> list[Way]:
    """All receivers copy what they are to have at once, and all senders what they have, into warm memory."""
    kept = {name: tensor.clone() for name, tensor in sides.engine.items()} if sides.generator is not None else {}
    parts = {name: t.local.clone() for name, t in sides.ordinary.items() if t.local is not None}

    def copy_engine() -> None:
        for name, tensor in kept.items():
            sides.engine[name].copy_(tensor)

    def copy_sources() -> None:
        for name, part in parts.items():
            part.copy_(sides.ordinary[name].local)

    return [Way(COPY, copy_engine, delivers=False), Way(TRAINER_COPY, copy_sources, delivers=False)]
