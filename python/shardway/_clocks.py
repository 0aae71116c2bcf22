"""How far apart the clocks of hosts are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

_QUESTIONS = 20


class ClockOffset(NamedTuple):
    """By how much a clock is ahead of another. The truth is at most `within_ns` away."""

    ahead_ns: int
    within_ns: int


class Question(NamedTuple):
    """When the one clock asked and had its answer, and what the other one said in between."""

    asked_ns: int
    answer_ns: int
    heard_ns: int


def now_ns() -> int:
    """The clock of calls and steps in a trace: one for all processes of a host, another on every host."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def offset_from(questions: Sequence[Question]) -> ClockOffset:
    """The quickest answer tells most: it was given somewhere between question and answer."""
    best = min(questions, key=lambda each: each.heard_ns - each.asked_ns)
    return ClockOffset(best.answer_ns - (best.asked_ns + best.heard_ns) // 2, (best.heard_ns - best.asked_ns + 1) // 2)


def offsets_of_hosts(members: ProcessGroup, firsts: Sequence[int]) -> list[ClockOffset]:
    """Collective: the clocks of these ranks, one of each host, against that of the first; on every rank."""
    found = [ClockOffset(0, 0)]
    asker, rank = firsts[0], members.rank()
    for other in firsts[1:]:
        if rank == asker:
            found.append(offset_from([_ask(members, other) for _ in range(_QUESTIONS)]))
        elif rank == other:
            for _ in range(_QUESTIONS):
                _answer(members, asker)
    told = [found]
    dist.broadcast_object_list(told, dist.get_global_rank(members, asker), group=members)
    return [ClockOffset(*each) for each in told[0]]


def _ask(members: ProcessGroup, other: int) -> Question:
    peer, message = dist.get_global_rank(members, other), _message(members)
    asked_ns = now_ns()
    dist.send(message, peer, group=members)
    dist.recv(message, peer, group=members)
    answer_ns = int(message)  # waits for a GPU too
    return Question(asked_ns, answer_ns, now_ns())


def _answer(members: ProcessGroup, asker: int) -> None:
    peer, message = dist.get_global_rank(members, asker), _message(members)
    dist.recv(message, peer, group=members)
    int(message)  # it is here
    message.fill_(now_ns())
    dist.send(message, peer, group=members)


def _message(members: ProcessGroup) -> torch.Tensor:
    has_cpu = "cpu" in {device.type for device in members._device_types}
    return torch.zeros((), dtype=torch.int64, device="cpu" if has_cpu else torch.cuda.current_device())
