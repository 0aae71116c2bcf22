"""What the process that holds a link answers, message by message."""

from __future__ import annotations

import torch

from shardway._link.claim import Claim
from shardway._link.declaration import Declared
from shardway._link.registry import Registry
from shardway._link.roles import DONE, JOIN, PUBLISH, RECEIVE, SEND, SUBSCRIBE, WITHDRAW, Member
from shardway._link.wire import Message


class Nowhere:
    def open(self) -> Message:
        return {}

    def close(self) -> None:
        pass


class Job:
    """A role of one rank, and what it was told."""

    def __init__(self, registry: Registry, role: str) -> None:
        self.told: list[Message] = []
        self._registry = registry
        self._member: Member = registry.admit(Claim.own(role, 0, 1), self.told.append)
        self.ask({"do": JOIN})

    def ask(self, question: Message) -> None:
        self._registry.hear(self._member, question)

    def declare(self, do: str, w: object = None) -> None:
        self.ask(Declared({"w": torch.ones(2) if w is None else w}, 0, 1).said(do))


def test_who_subscribes_during_a_transfer_brings_the_ranks_back_to_the_hub():
    registry = Registry(Claim.own("trainer", 0, 1), Nowhere())
    trainer, generator = Job(registry, "trainer"), Job(registry, "generator")
    trainer.declare(PUBLISH)
    generator.declare(SUBSCRIBE)

    def version(comes_meanwhile: bool) -> list[bool]:
        trainer.ask({"do": SEND})
        generator.ask({"do": RECEIVE})
        assert trainer.told[-1]["is"] == generator.told[-1]["is"] == "go"
        trainer.ask({"do": DONE})
        if comes_meanwhile:
            Job(registry, "guest").declare(SUBSCRIBE)
        generator.ask({"do": DONE})
        assert trainer.told[-1]["is"] == generator.told[-1]["is"] == "complete"
        return [job.told[-1]["everywhere"] for job in (trainer, generator)]

    assert version(comes_meanwhile=False) == [True, True]  # the next one goes without the hub
    assert version(comes_meanwhile=True) == [False, False]


def test_a_name_that_was_given_wrongly_is_not_said_to_be_missing():
    registry = Registry(Claim.own("trainer", 0, 1), Nowhere())
    trainer, generator = Job(registry, "trainer"), Job(registry, "generator")
    trainer.declare(PUBLISH)
    generator.declare(SUBSCRIBE, w=[1.0, 1.0])
    assert generator.told[-1]["is"] == "refused"
    assert generator.told[-1]["why"].splitlines() == [
        "what role generator subscribes to: 1 difference",
        "  w: it is a list, not a DTensor, MeshTensor or Tensor (role generator rank 0)",
    ]


def test_who_waits_for_a_subscriber_in_vain_hears_who_was_refused():
    registry = Registry(Claim.own("trainer", 0, 1), Nowhere())
    trainer = Job(registry, "trainer")
    trainer.declare(PUBLISH)
    trainer.ask({"do": SEND})
    registry.note_refusal("a process at 127.0.0.1 has another secret")
    trainer.ask({"do": WITHDRAW})
    why = "no job subscribed; refused meanwhile: a process at 127.0.0.1 has another secret"
    assert trainer.told[-1] == {"is": "late", "why": why}
