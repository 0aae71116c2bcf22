"""The group of all ranks of all jobs that take part in a transfer, and what moves in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend, PrefixStore, Store
from torch.distributed import ProcessGroup

from shardway._C import BackendOptions, LinkVote, make_backend

from .claim import Claim
from .devices import gpus_of, share_one_gpu, wait_for
from .hub_store import HubStore
from .layouts import layout_of
from .load import Loader
from .model_plan import ModelPlan
from .portion import Portion
from .portions import portions
from .prepared_moves import Move, PreparedMoves
from .wire import Message

Parts: TypeAlias = Mapping[str, Tensor | None]


@dataclass
class Rounding:
    """A destination of another dtype or device, and where its values arrive first."""

    destination: Tensor
    arrived: Tensor


class JointGroup:
    """Ranks are numbered by the roster: role by role, the publisher first. Versions move by one prepared call,
    and by one more for each portion of Loads."""

    def __init__(self, generation: str, roster: Message, claim: Claim, store: HubStore, timeout: timedelta) -> None:
        self.generation = generation
        self.source = roster["source"]
        self._roles = tuple((str(name), int(size)) for name, size in roster["roles"])
        self.is_quick = False  # all ranks share memory and have had a version: they need no hub for the next
        self._role = claim.role
        first = _first_ranks(roster)
        self.rank = first[claim.role] + claim.rank
        moves = _moves(roster, first)
        self._store = store  # the backend in C++ does not keep the Python object
        self._backend, self._shares_memory = _made_backend(
            store, self.rank, sum(size for _, size in self._roles), f"link_{generation}", timeout
        )
        self._group = _made_group(store, self._backend, f"link_{generation}")
        if self._shares_memory:
            store.close()
        self._direct = [move for move in moves if move.portion == 0]
        self._moving: list[PreparedMoves] = []  # of the CPU, and of GPUs; made with the first version
        self._gpus: set[torch.device] = set()  # of this rank's tensors
        self._roundings: list[Rounding] = []
        self._portions = self._with_loads(moves)
        self._vote: LinkVote | None = None  # made with the first version

    # By the hub's word.

    def move(
        self,
        parts: Parts,
        destinations: Parts,
        loader: Loader,
        sets: int,
    ) -> None:
        """Moves what the publisher's ranks give into the destinations of the others. Every rank calls it: it is one
        redistribution of all tensors for all roles. A prepared one: the same destinations each time. What goes to Loads
        follows, portion by portion."""
        if self._vote is None:
            self._sort_by_device(parts, destinations)
            for moving in self._moving:
                self._prepare(moving, parts, destinations)
            self._vote = LinkVote(self._group)
            self._round()
            loader.make_room(portion.pieces for portion in self._portions)
        else:
            self._run_moves(parts, sets)
        loader.begin()
        for portion in self._portions:
            portion.bring(parts, loader, sets)

    def settle(self) -> None:
        """After a version that all ranks have, the next ones may go without the hub. Not where there are Loads: the hub
        tells the others if one fails."""
        self.is_quick = self._shares_memory and not self._portions

    def plan(self, held_bytes: int) -> ModelPlan:
        """After the first version."""
        all_moving = [*self._moving, *(portion.moving for portion in self._portions)]
        made = [moving.call for moving in all_moving if moving.call is not None]
        staging = sum(rounding.arrived.nbytes for rounding in self._roundings)
        return ModelPlan(
            roles=self._roles,
            tensors=sum(len(moving.moves) for moving in all_moving),
            bytes=tuple(_sums(rows) for rows in zip(*(call.bytes for call in made), strict=True)),
            least_bytes=_sums([call.least_bytes for call in made]),
            staging_bytes=staging + max((portion.bytes_here for portion in self._portions), default=0),
            held_bytes=held_bytes,
            moves_text="\n".join(call.explain().split("\n", 1)[1] for call in made),
        )

    def _with_loads(self, moves: Sequence[Move]) -> list[Portion]:
        numbers = sorted({move.portion for move in moves if move.portion > 0})
        by_number = [[move for move in moves if move.portion == number] for number in numbers]
        return [Portion(some, self._group, self.rank, self._role) for some in by_number]

    # Without the hub.

    def try_version(
        self,
        version: int,
        parts: Parts,
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

    def _sort_by_device(self, parts: Parts, destinations: Parts) -> None:
        """What is on the ranks' one GPU on both sides moves there, everything else on the CPU."""
        self._gpus = gpus_of([*parts.values(), *destinations.values()])
        is_shared = any(move.is_on_gpus for move in self._direct) and self._shares_memory
        is_shared = is_shared and share_one_gpu(self._gpus, self._group)
        for is_on_gpus in (False, True):
            moves = [move for move in self._direct if (move.is_on_gpus and is_shared) == is_on_gpus]
            if moves:
                moving = PreparedMoves(moves, self._group, self.rank, self._role, is_on_gpus=is_on_gpus)
                self._moving.append(moving)

    def _prepare(self, moving: PreparedMoves, parts: Parts, destinations: Parts) -> None:
        moves = moving.moves
        wanted = [
            destinations[move.name] if is_here else None for move, is_here in zip(moves, moving.is_here, strict=True)
        ]
        outs = [
            out if out is not None and out.is_cuda == moving.is_on_gpus and _can_land(out, move) else None
            for out, move in zip(wanted, moves, strict=True)
        ]
        self._roundings += [
            Rounding(destination, arrived.local)
            for destination, out, arrived in zip(wanted, outs, moving.prepare(parts, outs), strict=True)
            if destination is not None and out is None
        ]

    def _run_moves(self, parts: Parts, sets: int) -> None:
        for moving in self._moving:
            moving.run(parts, sets)
        self._round()

    def _round(self) -> None:
        if self._roundings:
            with torch.no_grad():
                for rounding in self._roundings:
                    rounding.destination.copy_(rounding.arrived)
        wait_for(self._gpus)  # a version has moved when it is there

    def leave(self) -> None:
        """Whoever waits for this rank here is told."""
        if self._shares_memory:
            self._backend.abort()


def _can_land(out: Tensor, move: Move) -> bool:
    """Whether the bytes that move are those of the destination."""
    return out.dtype == move.after.dtype and not out.is_conj() and not out.is_neg()


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
    for role in targets:
        subscribed = roster["models"][role]
        for name, portion in portions(published, subscribed).items():
            entry = published[name]
            before = layout_of(entry, first[source], entry["dtype"])
            after = layout_of(subscribed[name], first[role], entry["dtype"])
            is_on_gpus = "on_gpu" in entry and "on_gpu" in subscribed[name]
            moves.append(Move(name, role, before, after, portion, is_on_gpus))
    return moves


def _sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))


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
