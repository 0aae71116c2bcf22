"""What one rank does in a cell, step by step, each at the word of its parent."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from tests.faults.aftermath import begin_again, enter, leftovers_since, set_timeout
from tests.faults.axes import FAULTY, RANKS, Cell, root_of
from tests.faults.catalogue import ALL
from tests.faults.leftovers import Holdings
from tests.faults.observation import OTHER, RIGHT, UNTOUCHED, Clock, Outcome, Seen
from tests.faults.prepared import LARGE, MEDIUM, SMALL, Place
from tests.faults.redistributions import forget_meshes

# For what comes before the fault: a busy machine must not look like one. Longer than a parent waits for it.
WARM_UP_TIMEOUT_S = 60.0
Step = Callable[[], Any]
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "resumed": signal.SIGSTOP}


class Member:
    """One rank of a cell."""

    def __init__(self, cell: Cell, rank: int, clock: Clock, link: Connection) -> None:
        self._cell = cell
        self._rank = rank
        self._clock = clock
        self._link = link
        self._traits, self._make = ALL[cell.call]
        self._is_faulty = rank == FAULTY
        self._result: Any = None
        self._other: Tensor | None = None  # the graph of another call, for who is to be in the wrong backward
        self._warm_s = 0.0
        self._striker: threading.Thread | None = None
        self._has_left = False
        self.prepared = self._make(self._place())

    # What the call is

    def _place(self, twisted: bool = True) -> Place:
        cell = self._cell
        twist = cell.fault if twisted and self._is_faulty and cell.fault not in ("none", "never", *SIGNALS) else ""
        if cell.moment == "backward":
            twist = ""
        scale = {"first": SMALL, "backward": MEDIUM}.get(cell.moment, LARGE)
        return Place(self._rank, scale, twist, root_of(cell), wants_gradient=cell.moment == "backward")

    def warm_up(self) -> None:
        """Makes the group usual: it has made such calls before, and has the graphs of those whose backward is next."""
        cell = self._cell
        if cell.moment == "first":
            return
        if cell.moment == "backward":
            self._result = self.prepared.start(False)
        elif cell.moment in ("large", "async", "teardown"):
            for _ in range(2):
                plain = self._make(self._place(twisted=False))
                start = time.monotonic()
                plain.start(False)
                self._warm_s = time.monotonic() - start
        if "backward" in (cell.moment, cell.fault):
            x = torch.ones(3, 2, requires_grad=True)
            is_reduction = "all_reduce" in cell.call and cell.fault == "op"
            self._other = (sw.all_gather_v(x)[0] if is_reduction else sw.all_reduce(x)).sum()

    # What it does

    def act(self, seen: Seen) -> None:
        cell = self._cell
        if self._is_faulty and cell.fault == "never":
            self._link.send("late")
            self._link.recv()
        began = time.monotonic()
        result: Any = None
        try:
            result = self._step()()
            seen.outcome = Outcome("returned")
        except Exception as error:
            seen.outcome = Outcome("raised", error=type(error).__name__, text=str(error))
        ended = time.monotonic()
        if self._striker:
            self._striker.join()
        since = self._clock.resumed if self._is_faulty else self._clock.struck
        seen.outcome.seconds = ended - max(began, since) if since < ended else ended - began
        self._look(seen, result)

    def _step(self) -> Step:
        """The call of this rank."""
        cell, prepared = self._cell, self.prepared
        if self._is_faulty and cell.fault in ("op", "backward", "exception"):
            other = self._other_step()
            if other is not None:
                return other
        if cell.moment == "backward":
            return lambda: (self._strike_first(), prepared.backward(self._result))
        if cell.moment == "async":
            return lambda: prepared.finish(self._started())
        if cell.moment == "teardown":
            if cell.fault == "op":
                return lambda: prepared.start(False)
            return self._leave_while_pending
        return lambda: (self._strike_first(), prepared.start(False))[1]

    def _other_step(self) -> Step | None:
        """What the faulty rank calls where that is another call."""
        cell = self._cell
        backwards = self._other.backward if self._other is not None else None
        if cell.fault == "op":
            if cell.moment == "teardown":
                return self._leave
            return backwards if cell.moment == "backward" else self._other_call
        if cell.fault == "backward":
            if cell.moment != "backward":
                return backwards
            plain = self._make(Place(self._rank, MEDIUM))
            return lambda: plain.start(False)
        if cell.moment == "backward":
            return lambda: self.prepared.raise_in_backward(self._result)
        return None

    def _other_call(self) -> Any:
        x = torch.ones(5, 2)
        if self._traits.kind == "backend":
            return dist.all_reduce(x) if self._cell.call == "dist.barrier" else dist.barrier()
        return sw.all_gather_v(x) if self._cell.call == "all_reduce" else sw.all_reduce(x)

    def _started(self) -> Any:
        handle = self.prepared.start(True)
        self._strike_now()
        return handle

    def _leave_while_pending(self) -> Any:
        handle = self._started()
        self._leave()
        return self.prepared.finish(handle)

    def _leave(self) -> None:
        self._has_left = True
        dist.destroy_process_group()

    # The fault itself

    def _strike_first(self) -> None:
        """Before the call; but a large one is struck in its middle."""
        if not self._is_faulty or self._cell.fault not in SIGNALS:
            return
        if self._cell.moment != "large":
            self._strike_now()
            return
        share = 0.2 + 0.6 * (self._cell.seed % 101) / 100
        self._striker = threading.Thread(target=lambda: (time.sleep(share * self._warm_s), self._strike_now()))
        self._striker.start()

    def _strike_now(self) -> None:
        if self._is_faulty and self._cell.fault in SIGNALS:
            self._clock.struck = time.monotonic()
            os.kill(os.getpid(), SIGNALS[self._cell.fault])

    # What is seen afterwards

    def _look(self, seen: Seen, result: Any) -> None:
        prepared = self.prepared
        seen.are_inputs_unchanged = prepared.are_inputs_unchanged
        seen.are_guards_whole = all(room.are_guards_whole for room in prepared.rooms)
        seen.has_gradients = prepared.has_gradients
        is_plain = not (self._is_faulty and self._cell.fault in ("op", "backward"))
        if seen.outcome.how == "returned" and is_plain:
            if self._cell.moment == "backward":
                seen.is_right = prepared.are_gradients_right()
            else:
                seen.is_right = prepared.is_right(result)
        if any(not room.is_untouched for room in prepared.rooms):
            seen.destinations = RIGHT if seen.is_right else OTHER
        else:
            seen.destinations = UNTOUCHED

    def probe(self) -> Outcome | None:
        """The group's next call, the same on every rank; at its end there is none, but for who was left alone."""
        if self._has_left or (self._cell.moment == "teardown" and self._cell.fault != "op"):
            return None
        start = time.monotonic()
        try:
            if self._traits.kind == "backend":
                x = torch.full((4,), float(self._rank))
                dist.all_reduce(x)
                is_right = torch.equal(x, torch.full((4,), 3.0))
            else:
                found, _ = sw.all_gather_v(torch.full((self._rank + 1, 2), float(self._rank)))
                is_right = found[:, 0].tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]
        except Exception as error:
            return Outcome("raised", time.monotonic() - start, type(error).__name__, str(error))
        return Outcome("returned" if is_right else "wrong", time.monotonic() - start)

    def end(self) -> Outcome:
        start = time.monotonic()
        try:
            if not self._has_left:
                self._leave()
        except Exception as error:
            return Outcome("raised", time.monotonic() - start, type(error).__name__, str(error))
        return Outcome("returned", time.monotonic() - start)


def run(cell: Cell, rank: int, clock: Clock, link: Connection, store: Path, timeout_s: float) -> None:
    """Every message to the parent is followed by its word to go on."""
    stacks = open(store.with_name(f"stacks-{rank}"), "w")  # noqa: SIM115
    faulthandler.enable(file=stacks)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)  # of names that torch is about to change
    before = Holdings.now()
    enter(cell, rank, RANKS, store, WARM_UP_TIMEOUT_S)
    member: Member | None = Member(cell, rank, clock, link)
    assert member is not None
    member.warm_up()
    set_timeout(timeout_s)
    link.send("ready")
    link.recv()
    seen = Seen(rank)
    member.act(seen)
    link.send(seen)
    link.recv()
    link.send(member.probe())
    link.recv()
    link.send(member.end())
    link.recv()
    member = None
    forget_meshes()
    gc.collect()
    link.send("dropped")
    living = link.recv()
    link.send(begin_again(cell, living.index(rank), len(living), store.with_name("again")))
    link.recv()
    link.send(leftovers_since(before, cell, timeout_s))
    link.recv()
