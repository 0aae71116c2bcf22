"""The group of all ranks of all jobs that take part in a transfer, and what moves in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend, PrefixStore, Store
from torch.distributed import ProcessGroup

from shardway._C import BackendOptions, Layout, MeshTensor, make_backend
from shardway._redistribute import redistribute

from .claim import Claim
from .layouts import layout_of
from .store_meeting import met_at
from .wire import Message


@dataclass
class Move:
    """One tensor on its way to one role."""

    name: str
    role: str
    before: Layout  # in ranks of the joint group, and in the source's dtype
    after: Layout


class JointGroup:
    """Ranks are numbered by the roster: role by role, the publisher first."""

    def __init__(self, generation: str, roster: Message, claim: Claim, timeout: timedelta) -> None:
        self.generation = generation
        self.source = roster["source"]
        first = _first_ranks(roster)
        self.rank = first[claim.role] + claim.rank
        self.moves = _moves(roster, first)
        size = sum(size for _, size in roster["roles"])
        self._group = _made_group(met_at(roster["store"], timeout), self.rank, size, f"link_{generation}", timeout)

    def move(self, parts: Mapping[str, Tensor | None], role: str) -> dict[str, Tensor]:
        """What has come for this rank, by name. `parts` are what the publisher's ranks give. Every rank calls it: it
        is one redistribution of all tensors for all roles."""
        given = [MeshTensor(self._part(parts, move.name, move.before), move.before, self._group) for move in self.moves]
        came = redistribute(given, [move.after for move in self.moves])
        return {
            move.name: tensor.local
            for move, tensor in zip(self.moves, came, strict=True)
            if move.role == role and tensor.local is not None
        }

    def _part(self, parts: Mapping[str, Tensor | None], name: str, layout: Layout) -> Tensor | None:
        return parts[name] if self.rank in layout.mesh.ranks else None


def _first_ranks(roster: Message) -> dict[str, int]:
    first, next_rank = {}, 0
    for name, size in roster["roles"]:
        first[name] = next_rank
        next_rank += size
    return first


def _moves(roster: Message, first: Mapping[str, int]) -> list[Move]:
    source = roster["source"]
    published = roster["models"][source]
    targets = [name for name, _ in roster["roles"] if name != source]
    moves = []
    for name, entry in published.items():
        before = layout_of(entry, first[source], entry["dtype"])
        for role in targets:
            after = layout_of(roster["models"][role][name], first[role], entry["dtype"])
            moves.append(Move(name, role, before, after))
    return moves


def _made_group(store: Store, rank: int, size: int, name: Any, timeout: timedelta) -> ProcessGroup:
    """Known to shardway alone: torch.distributed, and whether the process has a default group, do not matter."""

    def gloo_between_hosts(prefix: str) -> Backend:
        return dist.ProcessGroupGloo(PrefixStore(prefix, store), rank, size, timeout)

    options = BackendOptions(timeout=timeout)
    options.group_name = name  # torch's GroupName is a str
    options.global_ranks_in_group = list(range(size))
    backend = make_backend(store, rank, size, options, gloo_between_hosts)
    group = ProcessGroup(store, rank, size)
    group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
    group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, backend)
    group._set_group_name(name)
    group._set_group_desc("link")
    return group
