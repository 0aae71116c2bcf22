"""The kinds of rounds, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.stress import calls, disagreements, disturbances, scarcity
from tests.stress.world import World
from tests.support.dense import Draw


@dataclass(frozen=True)
class Kind:
    run: Callable[[World, Draw], None]
    weight: int
    summary: str


KINDS = {
    "ops": Kind(calls.ops, 8, "ragged collectives on any group, from memory of any form, waited for or not"),
    "gradients": Kind(calls.gradients, 3, "forward and backward of a collective"),
    "lists": Kind(calls.lists, 3, "all_gather_v and reduce_scatter_v of lists"),
    "mesh": Kind(calls.mesh, 4, "MeshTensors from any layout to any other, alone and in lists"),
    "dtensor": Kind(calls.dtensor, 4, "DTensor redistributes within use_for_dtensor"),
    "backend": Kind(calls.backend, 4, "torch.distributed's collectives on the backend shardway"),
    "messages": Kind(calls.messages, 2, "send and recv, plain and not, on the backend shardway"),
    "async": Kind(disturbances.late_and_dropped, 3, "handles that are waited for late, in any order, or dropped"),
    "threads": Kind(disturbances.threads, 3, "threads that use different groups at once"),
    "forks": Kind(disturbances.forks, 2, "children of fork beside a thread that runs collectives"),
    "forks-first": Kind(disturbances.forks_before_first, 1, "a child of fork makes the first call of a group"),
    "forks-pending": Kind(disturbances.forks_while_pending, 1, "children of fork while an async call is pending"),
    "disagree": Kind(disagreements.forward, 3, "one rank makes another call: a ValueError on all, and on they go"),
    "disagree-backend": Kind(disagreements.on_backend, 2, "the same in torch.distributed's calls on shardway"),
    "disagree-backward": Kind(disagreements.backward, 2, "a backward against a forward, or another backward"),
    "descriptors": Kind(scarcity.few_descriptors, 1, "one rank has few descriptors left when a group begins"),
    "arena": Kind(scarcity.full_arena, 1, "one rank gets no more shared memory when a group begins"),
}
