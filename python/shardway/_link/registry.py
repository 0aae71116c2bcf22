"""Who is on a link, what they declared, and whose turn it is. Run by one thread of the process that holds the link.

A member asks and gets one answer, maybe late: calls are collective over a role, so a question waits for those of the
role's other ranks. What a member should hear while it asks nothing is kept and answers its next question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from .claim import Claim
from .compare import differences, put_together, told
from .roles import (
    COLLECTIVE,
    DONE,
    FAILED,
    JOIN,
    LEAVE,
    PUBLISH,
    RECEIVE,
    SEND,
    SUBSCRIBE,
    WITHDRAW,
    Member,
    Role,
    Transfer,
    all_news,
    closed,
    refusal,
    torn,
)
from .secret import fresh_nonce
from .wire import Message

MOST_REFUSALS = 8


class Refused(Exception):
    """Why a process is not admitted. `is_final`: trying again is of no use."""

    def __init__(self, why: str, is_final: bool) -> None:
        super().__init__(why)
        self.is_final = is_final


class Meeting(Protocol):
    """Where the joint groups meet."""

    def open(self) -> Message:
        """A new place, which ends the one before; where it is."""

    def close(self) -> None:
        """Whoever waits there is told."""


class Registry:
    def __init__(self, holder: Claim, meeting: Meeting) -> None:
        self.holder = holder  # the process in which this is
        self.meeting = meeting
        self.place: Message = {}
        self.roles: dict[str, Role] = {}
        self.source: Role | None = None
        self.awaited: list[Role] = []  # those that the publisher's send waits for
        self.transfer: Transfer | None = None
        self.version = 0
        self.generation = ""  # of the last joint group; no two groups of a link have the same
        self.partners: list[Role] = []  # of the last joint group; empty: make another
        self.refusals: list[str] = []

    # Coming and going.

    def admit(self, claim: Claim, answer: Callable[[Message], None]) -> Member:
        role = self.roles.get(claim.role)
        if role is not None:
            self._check_place(role, claim)
        else:
            role = self.roles[claim.role] = Role(claim.role, claim.size)
        member = role.members[claim.rank] = Member(claim, answer, role)
        return member

    def _check_place(self, role: Role, claim: Claim) -> None:
        other = next(iter(role.members.values())).claim
        if role.size != claim.size:
            self._refuse(f"{claim} says that the role has {claim.size} ranks, but {other} said {role.size}", True)
        holder = role.members.get(claim.rank)
        if holder is not None:
            self._refuse(f"{claim} is taken by {holder.claim.process}; a second job needs another role", False)
        if claim.job and other.job and claim.job != other.job:
            self._refuse(f"role {claim.role} is taken by another job ({other}, {other.process})", False)

    def _refuse(self, why: str, is_final: bool) -> None:
        self.note_refusal(why)
        raise Refused(why, is_final)

    def note_refusal(self, why: str) -> None:
        """For the errors of those who wait in vain."""
        if why not in self.refusals:
            self.refusals = [*self.refusals, why][-MOST_REFUSALS:]

    def lose(self, member: Member, why: str, *, is_leaving: bool = False) -> None:
        what = f"{member.claim} {why}"
        if not member.role.ended:
            self._end(member.role, member, what, is_leaving)
        if self.transfer is not None and member in self.transfer.waiting:
            self.meeting.close()
            self._report(member, what)

    def _end(self, role: Role, member: Member, what: str, is_leaving: bool) -> None:
        role.ended = what
        del self.roles[role.name]
        for rank, other in list(role.members.items()):
            if other is member:
                del role.members[rank]
            elif other.asks() in COLLECTIVE:
                other.reply(closed(role.ended))
        if role in self.partners:
            self._break_up()
        if role is self.source:
            self._lose_source(role.name, what)
        elif role.is_agreed and self.source is not None:
            self._lose_target(role, self.source, None if is_leaving else what)

    def _lose_source(self, gone: str, what: str) -> None:
        self.source, self.awaited = None, []
        for role in self.roles.values():
            if role.is_agreed:
                role.is_agreed = False
                role.tell({"is": "lost", "gone": [gone], "why": f"the publisher is gone: {what}"})

    def _lose_target(self, role: Role, source: Role, what: str | None) -> None:
        self.awaited = [other for other in self.awaited if other is not role]
        if what is not None:
            self.awaited = []
            source.tell({"is": "lost", "gone": [role.name], "why": f"a subscriber is gone: {what}"})
        self._begin_transfer()

    # Questions.

    def hear(self, member: Member, question: Message) -> None:
        do = question.get("do")
        if do == LEAVE:
            return self.lose(member, "left the link", is_leaving=True)
        if do == WITHDRAW:
            return self._withdraw(member)
        member.question = question
        self.version = max(self.version, question.get("version", 0))
        if self.generation and question.get("failed") == self.generation:
            self._break_up()
        if do in (DONE, FAILED):
            return self._report(member, f"{member.claim}: {question['why']}" if do == FAILED else "")
        if member.role.ended:
            return member.reply(closed(member.role.ended))
        if do in (PUBLISH, SUBSCRIBE):
            member.news.clear()  # what is declared now is compared anew
        if member.news:
            news, member.news = member.news, []
            return member.reply(all_news(news))
        return self._advance(member.role)

    def _withdraw(self, member: Member) -> None:
        """It has waited for too long. If its answer is on its way already, that counts."""
        if member.asks() in (DONE, FAILED) and self.transfer is not None:
            for late in list(self.transfer.waiting):
                self._report(late, f"{late.claim} did not report within the timeout")
        elif member.question is not None:
            self.awaited = []
            answer = {"is": "late", "why": self._whom_it_waits_for(member.role, str(member.asks()))}
            for other in member.role.members.values():
                if other.question is not None:
                    other.reply(answer)

    def _whom_it_waits_for(self, role: Role, what: str) -> str:
        missing = role.missing(what)
        if what != JOIN:
            return f"{missing} did not call {what}" if missing else self._why_idle(what)
        return f"{missing} did not connect{self._seen_refusals()}"

    def _seen_refusals(self) -> str:
        return f"; refused meanwhile: {'; '.join(self.refusals)}" if self.refusals else ""

    def _why_idle(self, what: str) -> str:
        if what == SEND:
            waiting = [role.missing(RECEIVE) for role in self._subscribers()]
            return (
                f"{' and '.join(filter(None, waiting))} did not call receive"
                if waiting
                else f"no job subscribed{self._seen_refusals()}"
            )
        if self.source is None:
            return f"no job published{self._seen_refusals()}"
        return f"{self.source.missing(SEND)} did not call send"

    def _advance(self, role: Role) -> None:
        if len(role.members) < role.size or any(member.question is None for member in role.members.values()):
            return
        asked = {rank: str(member.asks()) for rank, member in role.members.items()}
        if len(set(asked.values())) > 1:
            calls = ", ".join(f"rank {rank} called {what}" for rank, what in sorted(asked.items()))
            return role.reply(refusal(f"the ranks of role {role.name} differ: {calls}"))
        steps = {JOIN: self._join, PUBLISH: self._publish, SUBSCRIBE: self._subscribe}
        step = steps.get(asked[0])
        return step(role) if step is not None else self._exchange(role, asked[0])

    def _join(self, role: Role) -> None:
        role.reply({"is": "joined"})

    # Declarations.

    def _subscribers(self) -> list[Role]:
        return [role for role in self.roles.values() if role.is_agreed]

    def _declared(self, role: Role) -> list[str]:
        said = {rank: member.question or {} for rank, member in role.members.items()}
        role.model, problems = put_together(role.name, role.size, said)
        self.version = max(self.version, *(message["version"] for message in said.values()))
        return problems

    def _publish(self, role: Role) -> None:
        if self.source is not None and self.source is not role:
            return role.reply(refusal(f"role {self.source.name} publishes on this link, so role {role.name} cannot"))
        problems = self._declared(role)
        assert role.model is not None
        subscribed = [other for other in self.roles.values() if other is not role and other.model is not None]
        by_role = {other: differences(role.model, other.model) for other in subscribed if other.model is not None}
        lines = problems + [line for some in by_role.values() for line in some]
        self._break_up()
        if lines:
            self.source, role.model = None, None
            text = told(f"what role {role.name} publishes", lines)
            for other, some in by_role.items():
                other.is_agreed = False
                if problems or some:
                    self._drop_if_asking(other)
                    other.tell(refusal(text))
            return role.reply(refusal(text))
        self.source = role
        role.reply({"is": "published", "version": self.version})
        for other in subscribed:
            self._agree(other)
        return None

    def _drop_if_asking(self, role: Role) -> None:
        if role.all_ask(SUBSCRIBE):
            role.model = None

    def _subscribe(self, role: Role) -> None:
        if role is self.source:
            return role.reply(refusal(f"role {role.name} publishes on this link, so it cannot subscribe"))
        problems = self._declared(role)
        assert role.model is not None
        source = self.source
        if source is None and not problems:
            return None  # until somebody publishes
        unlike = differences(source.model, role.model) if source is not None and source.model is not None else []
        if lines := problems + unlike:
            role.model, role.is_agreed = None, False
            text = told(f"what role {role.name} subscribes to", lines)
            if source is not None:
                source.tell(refusal(text))
            return role.reply(refusal(text))
        return self._agree(role)

    def _agree(self, role: Role) -> None:
        role.is_agreed = True
        self._break_up()
        if role.all_ask(SUBSCRIBE):
            role.reply({"is": "subscribed", "version": self.version})
        self._begin_transfer()

    # Transfers.

    def _exchange(self, role: Role, what: str) -> None:
        problems = [
            f"{problem} (role {role.name} rank {rank})"
            for rank, member in sorted(role.members.items())
            for problem in (member.question or {}).get("problems", [])
        ]
        if problems:
            return role.reply(refusal(told(f"what role {role.name} {what}s", problems)))
        if what == SEND and role is not self.source:
            return role.reply(refusal(f"role {role.name} has not published"))
        if what == RECEIVE and role.model is None:
            return role.reply(refusal(f"role {role.name} has not subscribed"))
        return self._begin_transfer()

    def _begin_transfer(self) -> None:
        """When the publisher sends and all that it waits for receive: those that were subscribed as it began."""
        source = self.source
        if source is None or self.transfer is not None or not source.all_ask(SEND):
            return
        self.awaited = self.awaited or self._subscribers()
        if not self.awaited or not all(role.all_ask(RECEIVE) for role in self.awaited):
            return
        targets, self.awaited = self.awaited, []
        roles = [source, *targets]
        if self.partners != roles:
            self.place = self.meeting.open()
            self.generation, self.partners = fresh_nonce(), roles
        self.version += 1
        members = self._holder_last(member for role in roles for member in role.members.values())
        self.transfer = Transfer(self.version, source, targets, set(members))
        for member in members:
            go: Message = {"is": "go", "version": self.version, "generation": self.generation}
            if member.generation != self.generation:
                member.generation, go["roster"] = self.generation, self._roster(source, targets)
            member.reply(go)

    def _break_up(self) -> None:
        """The next version needs another joint group. Ranks of the last one may be about to move it alone."""
        partners, self.partners = self.partners, []
        for role in partners:
            for member in role.members.values():
                member.nudge()

    def _roster(self, source: Role, targets: Iterable[Role]) -> Message:
        models = {role.name: role.model.entries for role in (source, *targets) if role.model is not None}
        return {
            "store": self.place,
            "source": source.name,
            "roles": [[role.name, role.size] for role in (source, *targets)],
            "models": models,
        }

    def _report(self, member: Member, failure: str) -> None:
        transfer = self.transfer
        if transfer is None or member not in transfer.waiting:
            member.reply(torn([], "that transfer is over"))
            return
        transfer.waiting.discard(member)
        if failure:
            transfer.failures[member] = failure
        if not transfer.waiting:
            self.transfer = None
            self._conclude(transfer)

    def _conclude(self, transfer: Transfer) -> None:
        if transfer.failures:
            self._break_up()
        failure = torn(transfer.gone(), f"version {transfer.version} did not arrive whole: {transfer.causes()}")
        # If somebody came meanwhile, the ranks must ask for the next version: a nudge was lost on those that reported.
        may_go_on_alone = not transfer.failures and bool(self.partners)
        complete = {"is": "complete", "version": transfer.version, "everywhere": may_go_on_alone}
        roles = (transfer.source, *transfer.targets)
        for member in self._holder_last(member for role in roles for member in role.members.values()):
            is_torn = transfer.is_torn_for(member.role)
            if is_torn:
                member.news.clear()  # it is told here
            if member.asks() in (DONE, FAILED):
                member.reply(failure if is_torn else complete)

    def _holder_last(self, members: Iterable[Member]) -> list[Member]:
        """It may end its process as soon as it has its answer, and this thread with it."""
        return sorted(members, key=lambda member: member.claim == self.holder)

    def farewell(self, member: Member) -> Message:
        """What a member hears last, when this process leaves the link: what it has not heard yet, or to look for who
        holds the link next."""
        if member.role.ended or self.holder in (other.claim for other in member.role.members.values()):
            return closed(member.role.ended or f"{self.holder} left the link")
        if self.source is not None and self.source.name == self.holder.role and member.role.is_agreed:
            why = f"the publisher is gone: {self.holder} left the link"
            member.news.append({"is": "lost", "gone": [self.holder.role], "why": why})
        return all_news(member.news) if member.news else {"is": "moved"}
