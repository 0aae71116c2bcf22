"""The side that sends."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from shardway._C import LinkHeldVersions, LinkTensors

from .declaration import Declared
from .model_plan import ModelPlan
from .transfer import Delivery
from .wire import PUBLISH, SEND

if TYPE_CHECKING:
    from .link import JobLink


class Source:
    """What this rank publishes on a link."""

    def __init__(self, link: JobLink, tensors: Mapping[str, object]) -> None:
        self._link = link
        self._declared = Declared(tensors, link.rank, link.size)
        loads = self._declared.loads
        self._declared.problems += [f"{name}: a Load is a destination and cannot be sent" for name in loads]
        self._version = int(link.declare(self._declared.said(PUBLISH))["version"])
        self._promised = self._version
        self._held = LinkHeldVersions()
        self._added = threading.Semaphore(0)  # versions that the thread has not seen
        self._thread: threading.Thread | None = None
        link.send_by(self._held, self._added)

    @property
    def version(self) -> int:
        """Of the last one that has arrived."""
        return self._version

    @property
    def plan(self) -> ModelPlan:
        """As `JobLink.plan`."""
        return self._link.plan

    def explain(self) -> str:
        """As `JobLink.explain`."""
        return self._link.explain()

    def send(self, tensors: Mapping[str, object] | None = None, *, wait: bool = True) -> int:
        """Sends the tensors as they are now to all roles that are subscribed when it begins, at least one, and waits
        for them: the version that they have, 1, 2, … Collective over the role.

        `tensors` are others of the same names and layouts, for this send and those after it. A DistBackendError says
        that a subscriber was lost: the version has not arrived everywhere, and the next send goes to who is there.

        With `wait=False` it returns when the tensors are copied, into shared memory; a thread sends them. Two versions
        are held, and a third waits for the first to arrive. What goes wrong is raised by the next call, or by `close`.
        The number is the one that the version will have, unless a subscriber comes back that knows a higher one.
        """
        declared = self._declared if tensors is None else Declared(tensors, self._link.rank, self._link.size)
        problems = declared.problems + self._changes(declared)
        try:
            if wait or problems:
                self._held.drain(self._link.timeout)
                return self._sent(declared.tensors, problems, declared)
            self._hold(declared.tensors)
        except Exception:
            self._promised = self._version  # a version that has not begun has no number
            raise
        self._declared = declared
        self._promised = max(self._promised, self._version) + 1
        return self._promised

    def _hold(self, tensors: LinkTensors) -> None:
        self._link.check_open("send")
        self._held.add(tensors, self._link.timeout)
        self._added.release()
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_held, name="shardway-link-send", daemon=True)
            self._thread.start()

    def _send_held(self) -> None:
        while self._added.acquire() and (tensors := self._held.next()) is not None:
            failure = None
            try:
                self._sent(tensors, sets=LinkHeldVersions.most)
            except Exception as error:
                failure = error
            self._held.done(tensors, failure)

    def _sent(
        self, parts: LinkTensors, problems: Sequence[str] = (), declared: Declared | None = None, sets: int = 1
    ) -> int:
        def on_begin(version: int) -> None:
            self._declared = declared or self._declared

        self._version = Delivery(SEND, parts, problems=problems, sets=sets, on_begin=on_begin).run(self._link)
        return self._version

    def _changes(self, declared: Declared) -> list[str]:
        if declared is self._declared:
            return []
        before, after = self._declared.entries, declared.entries
        names = sorted(before.keys() | after.keys())
        moved = set(self._declared.on_gpu()) ^ set(declared.on_gpu())
        return [
            f"{name}: it is not as it was published"
            for name in names
            if before.get(name) != after.get(name) or name in moved
        ]
