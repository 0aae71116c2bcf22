"""How ranks that do not all share memory agree, by their store, on who goes on. src/shm/board/roll.h has the same in
memory."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from weakref import WeakSet

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import ProcessGroup

from shardway._C import end_for_shrink, gone_ranks
from shardway._torch_groups import new_group_on, store_of

ROUNDS = 32
IN, OUT = b"in", b"out"
MADE, ABANDONED = b"made", b"abandoned"
LONGEST_NAP_S = 0.1

_shrunk: WeakSet[ProcessGroup] = WeakSet()


def shrink_by_store(old: ProcessGroup, limit: timedelta) -> ProcessGroup:
    """Ranks of a host tell the others at once which of them have died. A host that lost all its ranks is waited for, as
    one that does not come."""
    if old in _shrunk:
        raise ValueError(f"shrink: the group was shrunk before: shrink the group that came of it (rank {old.rank()})")
    end_for_shrink(old)  # a rank that waits in a call raises, and comes too
    try:
        _check_answers(store_of(old), limit)
        made = _Shrinking(old, limit).run()
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        why = "not all ranks share memory, and the group's store, by which they could agree, does not answer"
        raise dist.DistBackendError(f"shrink: {why}: start the ranks again (rank {old.rank()})") from error
    _shrunk.add(old)
    return made


def _check_answers(store: Store, limit: timedelta) -> None:
    """Raises if the store is gone. One whose host is out of reach would not even refuse the question for minutes."""
    errors: list[Exception] = []

    def ask() -> None:
        try:
            store.check(["shardway/shrink"])
        except Exception as error:  # raised by the caller
            errors.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(limit.total_seconds())
    if thread.is_alive():
        raise dist.DistStoreError(f"no answer within {limit.total_seconds():g} s")
    if errors:
        raise errors[0]


class _Shrinking:
    """One rank's way through rounds. In each, a key per rank says who is in: a rank says so itself, or another says
    that it is out. The first word counts. Then those who are in make a group, and one key says what became of it."""

    def __init__(self, old: ProcessGroup, limit: timedelta) -> None:
        self.old = old
        self.limit = limit
        self.rank = old.rank()
        self.store = PrefixStore("shardway/shrink", store_of(old))

    def run(self) -> ProcessGroup:
        awaited = list(range(self.old.size()))
        for number in range(ROUNDS):
            store = PrefixStore(str(number), self.store)
            awaited = self._members(store, awaited)
            if (made := self._made(store, awaited, number)) is not None:
                return made
        raise dist.DistBackendError(f"shrink: the ranks gave up after {ROUNDS} rounds (rank {self.rank})")

    def _members(self, store: Store, awaited: list[int]) -> list[int]:
        is_in = _settle(store, str(self.rank), IN) == IN
        self._wait(lambda: self._is_settled(store, awaited))
        if is_in:
            return [rank for rank in awaited if _settle(store, str(rank), OUT) == IN]
        others = [rank for rank in awaited if store.check([str(rank)]) and store.get(str(rank)) == IN]
        verb = "has" if len(others) == 1 else "have"
        why = f"{_in_words(others)} {verb} gone on in a smaller group, since this rank did not answer in time"
        raise dist.DistBackendError(f"shrink: {why}: it cannot join them any more (rank {self.rank})")

    def _is_settled(self, store: Store, awaited: list[int]) -> bool:
        for rank in gone_ranks(self.old):
            if rank in awaited:
                _settle(store, str(rank), OUT)
        return store.check([str(rank) for rank in awaited])

    def _made(self, store: Store, members: list[int], number: int) -> ProcessGroup | None:
        made = None
        name = f"{self.old.group_name}_shrunk{number}"
        try:
            made = new_group_on(PrefixStore("group", store), self.old, members, name, self.limit / 2)
            store.set(f"made/{self.rank}", "")
            all_made = [f"made/{rank}" for rank in members]
            self._wait(lambda: store.check(all_made) or store.check(["outcome"]))
            outcome = _settle(store, "outcome", MADE if store.check(all_made) else ABANDONED)
        except dist.DistNetworkError:
            raise
        except RuntimeError:  # a member did not come to the making of the group
            outcome = _settle(store, "outcome", ABANDONED)
        if outcome == MADE:
            return made
        if made is not None:
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group(made)
        return None

    def _wait(self, is_over: Callable[[], bool]) -> None:
        end = time.monotonic() + self.limit.total_seconds()
        nap_s = 0.001
        while not is_over() and time.monotonic() < end:
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, LONGEST_NAP_S)


def _settle(store: Store, key: str, wanted: bytes) -> bytes:
    """What counts: `wanted`, or what another rank has settled before."""
    return store.compare_set(key, "", wanted.decode())


def _in_words(ranks: Sequence[int]) -> str:
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"
