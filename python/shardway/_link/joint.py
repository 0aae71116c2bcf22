"""The group of all ranks of all jobs that take part in a transfer, and what moves in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend, PrefixStore, Store
from torch.distributed import ProcessGroup

from shardway._C import BackendOptions, LinkLoader, LinkMoves, LinkRoster, LinkTensors, LinkVote, make_backend

from .claim import Claim
from .devices import share_one_gpu
from .hub_store import HubStore
from .model_plan import ModelPlan
from .wire import Message


class JointGroup:
    """Ranks are numbered by the roster: role by role, the publisher first."""

    def __init__(self, generation: str, roster: Message, claim: Claim, store: HubStore, timeout: timedelta) -> None:
        self.generation = generation
        self._roles = tuple((str(name), int(size)) for name, size in roster["roles"])
        self.is_quick = False  # all ranks share memory and have had a version: they need no hub for the next
        read = LinkRoster(json.dumps(roster))
        rank = read.rank_of(claim.role, claim.rank, claim.size)
        self._store = store  # the backend in C++ does not keep the Python object
        self._backend, self._shares_memory = _made_backend(
            store, rank, sum(size for _, size in self._roles), f"link_{generation}", timeout
        )
        self._group = _made_group(store, self._backend, f"link_{generation}")
        if self._shares_memory:
            store.close()
        self._moves = LinkMoves(read, self._group, rank, claim.role)
        self._vote: LinkVote | None = None  # made with the first version

    # By the hub's word.

    def move(self, parts: LinkTensors, destinations: LinkTensors, loader: LinkLoader, sets: int) -> None:
        """Moves what the publisher's ranks give into the destinations of the others. Every rank calls it: it is one
        redistribution of all tensors for all roles. A prepared one: the same destinations each time. What goes to Loads
        follows, portion by portion."""
        if self._vote is None:
            self._prepare(parts, destinations)
            self._vote = LinkVote(self._group)
            self._moves.round()
        else:
            self._run_moves(parts, sets)
        self._moves.bring_portions(parts, loader, sets)

    def settle(self) -> None:
        """After a version that all ranks have, the next ones may go without the hub. Not where there are Loads: the hub
        tells the others if one fails."""
        self.is_quick = self._shares_memory and not self._moves.has_portions

    def plan(self, held_bytes: int) -> ModelPlan:
        """After the first version."""
        return ModelPlan(
            roles=self._roles,
            tensors=self._moves.tensors,
            bytes=self._moves.sent,
            least_bytes=self._moves.least,
            staging_bytes=self._moves.staging_bytes,
            held_bytes=held_bytes,
            text=self._moves.explain(held_bytes),
        )

    # Without the hub.

    def try_version(
        self,
        version: int,
        parts: LinkTensors,
        sets: int,
        is_willing: bool,
        on_begin: Callable[[int], None],
    ) -> bool:
        """Moves this version if all ranks are willing and mean the same one; otherwise nothing is moved, on any rank.

        Three meetings: the ranks vote, move, and say that they have moved. In a vote each rank shows a word and reads
        those of all others, so if one rank has passed it, every rank that lives passes it too: either all begin, and
        either all have the version, or nobody.
        """
        if not self._all_say(version if is_willing else 0):
            self.is_quick = False
            return False
        on_begin(version)
        self._run_moves(parts, sets)
        self._all_say(version)
        return True

    def _all_say(self, word: int) -> bool:
        """Whether all ranks say the same, and not 0."""
        assert self._vote is not None
        return self._vote.all_say(word)

    # The prepared calls.

    def _prepare(self, parts: LinkTensors, destinations: LinkTensors) -> None:
        shares_gpu = self._moves.any_on_gpus and self._shares_memory
        gpus = {*parts.gpus, *destinations.gpus}
        self._moves.prepare(parts, destinations, shares_gpu and share_one_gpu(gpus, self._group))

    def _run_moves(self, parts: LinkTensors, sets: int) -> None:
        self._moves.run(parts, sets)

    def leave(self) -> None:
        """Whoever waits for this rank here is told."""
        if self._shares_memory:
            self._backend.abort()


def _made_backend(store: Store, rank: int, size: int, name: Any, timeout: timedelta) -> tuple[Backend, bool]:
    """And whether all ranks share memory: then nobody needs gloo."""
    shares_memory = True

    def gloo_between_hosts(prefix: str) -> Backend:
        nonlocal shares_memory
        shares_memory = False
        return dist.ProcessGroupGloo(PrefixStore(prefix, store), rank, size, timeout)

    options = BackendOptions(timeout=timeout)
    options.group_name = name  # torch's GroupName is a str
    options.global_ranks_in_group = list(range(size))
    backend = make_backend(store, rank, size, options, gloo_between_hosts)
    return backend, shares_memory


def _made_group(store: Store, backend: Backend, name: Any) -> ProcessGroup:
    """Known to shardway alone: torch.distributed, and whether the process has a default group, do not matter."""
    group = ProcessGroup(store, backend.rank(), backend.size())
    group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
    group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, backend)
    group._set_group_name(name)
    group._set_group_desc("link")
    return group
