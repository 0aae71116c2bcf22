"""A link between jobs, as one of its ranks holds it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

import torch.distributed as dist

from shardway._C import LinkHeldVersions

from .address import Address
from .claim import Claim
from .hub_store import HubStore
from .joint import JointGroup
from .member import Connection, HubGone, HubMoved, Membership, TooLate
from .model_plan import ModelPlan
from .secret import read_secret
from .wire import DONE, FAILED, JOIN, Message

if TYPE_CHECKING:
    from .source import Source
    from .target import Target

DEFAULT_TIMEOUT = timedelta(minutes=5)


class JobLink:
    """Ranks of several jobs that hand tensors to one another. One thread at a time may use it."""

    def __init__(self, address: Address, claim: Claim, secret: bytes, timeout: timedelta) -> None:
        self._membership = Membership(address, claim, secret)
        self._timeout = timeout
        self._process = os.getpid()
        self._declaration: Message | None = None
        self._declared_to: Connection | None = None
        self._joint: JointGroup | None = None
        self._version = 0
        self._told_of: list[str] = []  # roles whose loss was raised, since the last transfer
        self._ended = ""
        self._held = LinkHeldVersions()  # those of the source
        self._added = threading.Semaphore(0)
        try:
            self._join(self._deadline_s())
        except BaseException:
            self.close()
            raise

    @property
    def role(self) -> str:
        """The name of this job."""
        return self._membership.claim.role

    @property
    def rank(self) -> int:
        """This process's rank in the role."""
        return self._membership.claim.rank

    @property
    def size(self) -> int:
        """How many ranks the role has."""
        return self._membership.claim.size

    def publish(self, tensors: Mapping[str, object]) -> Source:
        """Declares what this role sends: a DTensor, a MeshTensor whose mesh has ranks of this role, or a Tensor that
        lies whole on every rank that names it. Ranks may name different tensors: their union is the model. Collective
        over the role. A ValueError on every rank has every difference from what other roles have subscribed to."""
        from .source import Source

        self._held.drain(self.timeout)
        return Source(self, tensors)

    def subscribe(self, tensors: Mapping[str, object], *, cast: bool = False) -> Target:
        """Declares where what another role publishes is to lie: the same kinds of tensors, which may be any views. It
        waits until a model is published. Collective over the role. A ValueError on every rank of both roles has every
        difference: names, shapes, dtypes unless `cast` allows another one, destinations that overlap."""
        from .target import Target

        return Target(self, tensors, cast)

    @property
    def plan(self) -> ModelPlan:
        """What a version moves between all ranks of all roles. A ValueError before the first, and after a loss."""
        if self._joint is None:
            raise ValueError(f"plan: it is made with the next version ({self._membership.claim})")
        return self._joint.plan(self._held.bytes)

    def explain(self) -> str:
        """The plan as text: the bytes of each pair of ranks, the busiest rank, the least that has to move, memory."""
        return self.plan.explain()

    def close(self) -> None:
        """Leaves. The other roles are told; what was sent has arrived, or this raises why not. A `with` block that ends
        in an exception leaves as if this process had died."""
        self._close(is_failing=False)

    def _close(self, *, is_failing: bool) -> None:
        is_own = os.getpid() == self._process
        try:
            if is_own and not self._ended and not is_failing:
                self._held.drain(self.timeout)
        finally:
            self._held.close()
            self._added.release()
            if is_own:
                self._membership.leave(is_failing=is_failing)
                self.leave_joint_group()
            self._joint = None
            self._ended = self._ended or "it was closed"

    def __enter__(self) -> JobLink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(is_failing=error is not None and not isinstance(error, SystemExit))

    def __repr__(self) -> str:
        state = f"closed: {self._ended}" if self._ended else f"{self._membership.address}"
        return f"JobLink({self._membership.claim} of {self.size}, {state})"

    # For Source and Target.

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    @property
    def version(self) -> int:
        """The last one that this rank has had, sent or received."""
        return self._version

    def check_open(self, call: str) -> None:
        if os.getpid() != self._process:
            raise ValueError(f"{call}: this link is of process {self._process}; a child of fork has to connect itself")
        if self._ended:
            self._raise(call, f"the link is closed: {self._ended}")

    def send_by(self, held: LinkHeldVersions, added: threading.Semaphore) -> None:
        """The versions for which `close` waits, and for what the thread waits that sends them."""
        self._held, self._added = held, added

    def declare(self, declaration: Message) -> Message:
        """What the hub answers; said again to the next hub, should this one be lost."""
        declaration["version"] = max(declaration["version"], self._version)
        self._declaration = None
        self.leave_joint_group()  # the others ask the hub, too
        answer = self.ask(declaration)
        self._declaration, self._declared_to = declaration, self._membership.connection
        self._version = int(answer["version"])
        return answer

    def ask(
        self, question: Message, *, wait_s: float = 0.0, call: str = "", deadline_s: float | None = None
    ) -> Message:
        """The answer to a question of this role's ranks, `wait_s` after the timeout or at `deadline_s` at the latest.
        Raises what the hub has to say instead, in the name of `call` or of what is asked."""
        call = call or question["do"]
        self.check_open(call)
        deadline_s = self._deadline_s() + wait_s if deadline_s is None else deadline_s
        try:
            answer = self._asked(question, deadline_s)
        except TooLate as error:
            self._raise(call, f"{self._waited()}{error}")
        except HubGone as gone:
            self._lose_hub(call, gone)
        return self._judged(call, answer)

    def _asked(self, question: Message, deadline_s: float) -> Message:
        is_report = question["do"] in (DONE, FAILED)  # of a transfer of which another hub knows nothing
        try:
            self._find_hub(question["do"], deadline_s)
            assert self._membership.connection is not None
            return self._membership.connection.ask(question, deadline_s)
        except HubGone as gone:
            hub = self._hub_role()
            is_known = isinstance(gone, HubMoved) or (hub in self._told_of and hub != self.role)
            if is_report or not is_known:
                raise
        self._told_of = []  # it was raised already that this role is lost; its rank that held the link came last
        self._membership.forget_connection()
        return self._asked(question, deadline_s)

    def _find_hub(self, call: str, deadline_s: float) -> None:
        if self._membership.connection is None:
            self._join(deadline_s)
        connection = self._membership.connection
        if self._declaration is not None and self._declared_to is not connection and connection is not None:
            self._judged(call, connection.ask(self._declaration, deadline_s))
            self._declared_to = connection

    def note_version(self, version: int) -> int:
        self._version = version
        if self._declaration is not None:
            self._declaration["version"] = version
        self._told_of = []
        return version

    def joint_group(self, go: Message) -> JointGroup:
        if self._joint is None or self._joint.generation != go["generation"]:
            self.leave_joint_group()  # the old one first
            store = HubStore(
                self._membership.visit(go["roster"]["store"]["meeting"], self.timeout.total_seconds()), self._timeout
            )
            self._joint = JointGroup(go["generation"], go["roster"], self._membership.claim, store, self._timeout)
        return self._joint

    def quick_group(self) -> JointGroup | None:
        """The joint group, if its ranks move the next version without the hub. Either on all ranks or on none."""
        self.check_open("send or receive")
        return self._joint if self._joint is not None and self._joint.is_quick else None

    def has_news(self) -> bool:
        """Whether the hub has said something unasked: somebody has come or gone."""
        connection = self._membership.connection
        return connection is None or connection.has_news()

    def leave_joint_group(self) -> None:
        if self._joint is not None:
            self._joint.leave()
        self._joint = None

    # Within.

    def _join(self, deadline_s: float) -> None:
        try:
            self._membership.connect(deadline_s)
            assert self._membership.connection is not None
            answer = self._membership.connection.ask({"do": JOIN}, deadline_s)
        except TooLate as error:
            self._raise("connect", f"{self._waited()}{error}")
        except HubGone as gone:
            self._membership.forget_connection()
            if time.monotonic() > deadline_s:
                self._raise("connect", f"{self._waited()}{gone}")
            return self._join(deadline_s)
        self._judged("connect", answer)
        return None

    def _deadline_s(self) -> float:
        return time.monotonic() + self._timeout.total_seconds()

    def _judged(self, call: str, answer: Message) -> Message:
        kind, why = answer.get("is"), str(answer.get("why", ""))
        if kind == "refused":
            raise ValueError(f"{call}: {why} ({self._membership.claim})")
        if kind == "late":
            self._raise(call, f"{self._waited()}{why}")
        if kind == "closed":
            self._ended = why
            self._raise(call, f"the link is closed: {why}")
        if kind in ("lost", "torn"):
            self._told_of = list(answer["gone"])
            self._raise(call, why)
        return answer

    def _lose_hub(self, call: str, gone: HubGone) -> NoReturn:
        connection = self._membership.connection
        who = "the process that holds the link" if connection is None else str(connection.hub)
        if self._hub_role() == self.role:
            self._ended = f"{who} died: this job has to connect again"
        self._membership.forget_connection()
        self.leave_joint_group()
        self._raise(call, f"{who}, which holds the link, is gone ({gone})")

    def _hub_role(self) -> str | None:
        connection = self._membership.connection
        return None if connection is None else connection.hub.role

    def _waited(self) -> str:
        return f"waited for {self._timeout.total_seconds():g} s: "

    def _raise(self, call: str, why: str) -> NoReturn:
        raise dist.DistBackendError(f"{call}: {why} ({self._membership.claim})")


def connect(
    address: str,
    role: str,
    rank: int | None = None,
    size: int | None = None,
    *,
    secret: str | bytes | None = None,
    timeout: timedelta | float | None = None,
) -> JobLink:
    """Joins this process to the link at `address`, as a rank of a role: a job, or a replica of one.

    Collective over the role, whose ranks are started in any order. Rank 0 of the first job on the address's host holds
    the link: it listens there. Use it in a `with` block, or close it.

    Args:
        address: Such as tcp://10.0.0.1:29700, of the host of the first job.
        role: The name of the job.
        rank: This process's rank in the role. None is RANK, else the default group's.
        size: How many ranks the role has. None is WORLD_SIZE, else the default group's.
        secret: What all processes of the link know; None is SHARDWAY_LINK_SECRET. SECURITY.md says what it protects.
        timeout: No call waits longer than about this for others: a timedelta or seconds; None is 5 minutes.

    Returns:
        The link.

    Raises:
        ValueError: An argument is invalid, or another process has this rank of the role.
        DistBackendError: The other ranks of the role did not come in time.

    Example:
        >>> with sw.connect("tcp://127.0.0.1:29700", role="trainer") as link:  # doctest: +SKIP
        ...     link.publish(model.state_dict()).send()
    """
    limit = DEFAULT_TIMEOUT if timeout is None else timeout
    limit = limit if isinstance(limit, timedelta) else timedelta(seconds=limit)
    if limit <= timedelta(0):
        raise ValueError(f"connect: timeout={timeout} is not positive")
    rank = _own_number(rank, "RANK", dist.get_rank, 0)
    size = _own_number(size, "WORLD_SIZE", dist.get_world_size, 1)
    return JobLink(Address.read(address), Claim.own(role, rank, size), read_secret(secret), limit)


def _own_number(given: int | None, word: str, of_group: object, alone: int) -> int:
    if given is not None:
        return given
    text = os.environ.get(word)
    if text is not None:
        if not text.isdecimal():
            raise ValueError(f"connect: {word}={text} in the environment is not a number")
        return int(text)
    return int(of_group()) if callable(of_group) and dist.is_initialized() else alone
