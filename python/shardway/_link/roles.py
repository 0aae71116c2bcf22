"""The parts of a registry: members, roles, transfers, and what a member is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .claim import Claim
from .compare import Model, ranks_text
from .wire import Message

PUBLISH, SUBSCRIBE, SEND, RECEIVE, JOIN = "publish", "subscribe", "send", "receive", "join"
DONE, FAILED, WITHDRAW, LEAVE = "done", "failed", "withdraw", "leave"
COLLECTIVE = {JOIN, PUBLISH, SUBSCRIBE, SEND, RECEIVE}


@dataclass(eq=False)
class Member:
    claim: Claim
    answer: Callable[[Message], None]
    role: Role
    question: Message | None = None
    news: list[Message] = field(default_factory=list)
    generation: str = ""  # the last roster that it got

    def asks(self) -> str | None:
        return None if self.question is None else self.question["do"]

    def reply(self, message: Message) -> None:
        self.question = None
        self.answer(message)

    def tell(self, message: Message) -> None:
        if self.asks() in COLLECTIVE:
            self.reply(message)
        else:
            self.news.append(message)
            self.nudge()

    def nudge(self) -> None:
        """Its next call has to ask, not to go on with the others alone."""
        if self.question is None:
            self.answer({"is": "nudge"})


@dataclass(eq=False)
class Role:
    name: str
    size: int
    members: dict[int, Member] = field(default_factory=dict)
    model: Model | None = None
    is_agreed: bool = False  # a subscriber that the publisher's model fits
    ended: str = ""  # why; a role ends with its first member

    def all_ask(self, what: str) -> bool:
        return len(self.members) == self.size and all(member.asks() == what for member in self.members.values())

    def reply(self, message: Message) -> None:
        for member in self.members.values():
            member.reply(message)

    def tell(self, message: Message) -> None:
        for member in self.members.values():
            member.tell(message)

    def missing(self, what: str) -> str:
        ranks = [rank for rank in range(self.size) if (m := self.members.get(rank)) is None or m.asks() != what]
        return ranks_text(self.name, ranks) if ranks else ""


@dataclass(eq=False)
class Transfer:
    version: int
    source: Role
    targets: list[Role]
    waiting: set[Member]
    failures: dict[Member, str] = field(default_factory=dict)

    def is_torn_for(self, role: Role) -> bool:
        """A subscriber has its version if all its own ranks have; a publisher, if all have."""
        return any(role is self.source or member.role is role for member in self.failures)

    def gone(self) -> list[str]:
        return sorted({member.role.name for member in self.failures if member.role.ended})

    def causes(self) -> str:
        """Those who are gone first: the others failed for it."""
        gone = [why for member, why in self.failures.items() if member.question is None]
        return "; ".join(dict.fromkeys(gone or self.failures.values()))


def all_news(news: list[Message]) -> Message:
    gone = sorted({name for one in news for name in one.get("gone", [])})
    why = "; ".join(one["why"] for one in news)
    return {"is": "lost", "gone": gone, "why": why} if gone else refusal(why)


def refusal(why: str) -> Message:
    return {"is": "refused", "why": why}


def torn(gone: list[str], why: str) -> Message:
    return {"is": "torn", "gone": gone, "why": why}


def closed(why: str) -> Message:
    return {"is": "closed", "why": f"{why}: this job has to connect again"}
