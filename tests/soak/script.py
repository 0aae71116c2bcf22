"""What a world does, drawn from its seed before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from tests.stress.kinds import KINDS
from tests.support.dense import Draw

ANY, MEMORY, MESSAGES, CHECKED = "any transport", "shared memory", "messages", "checked messages"
ENVIRONMENTS: dict[str, dict[str, str]] = {
    ANY: {},
    MEMORY: {"SHARDWAY_TRANSPORT": "shm"},
    MESSAGES: {"SHARDWAY_TRANSPORT": "c10d"},
    CHECKED: {"SHARDWAY_TRANSPORT": "c10d", "SHARDWAY_CHECK": "1"},
}
_TRANSPORTS = (ANY, ANY, ANY, MEMORY, MESSAGES, CHECKED)
# Kinds that make no sense there: a scarcity that has no way round, and calls that are not compared.
_LEFT_OUT: dict[str, set[str]] = {
    ANY: set(),
    MEMORY: {"descriptors", "arena"},
    MESSAGES: {"disagree", "disagree-backend", "disagree-backward"},
    CHECKED: {"disagree-backend"},
}
TIMEOUT_S = 10.0
DEATH_TIMEOUT_S = 3.0  # of the group in whose call a rank dies
ROUND_LIMIT_S = 90.0  # a rank that is longer in one round hangs: torch waits for one peer after the other

ENDS, DIES_IN_A_CALL, DIES_ANYWHERE = "all leave", "a rank dies in a call", "a rank dies anywhere"
_ENDINGS = (ENDS, DIES_IN_A_CALL, DIES_IN_A_CALL, DIES_IN_A_CALL, DIES_ANYWHERE)


@dataclass(frozen=True)
class Script:
    seed: int
    ranks: int
    transport: str
    kinds: tuple[str, ...]
    rounds: int
    ending: str
    victim: int
    delay_s: float  # between the begin of the last round and the death
    stops: int  # how often a rank is stopped for a moment

    @property
    def victims(self) -> tuple[int, ...]:
        return () if self.ending == ENDS else (self.victim,)

    @property
    def is_by_messages(self) -> bool:
        return self.transport in (MESSAGES, CHECKED)

    @property
    def has_meshes(self) -> bool:
        """Torch keeps the groups of a DeviceMesh: such ranks hold them to their end."""
        return "dtensor" in self.kinds

    def __str__(self) -> str:
        return f"{self.ranks} ranks, {self.transport}, {self.rounds} rounds, {self.ending}, {self.stops} stops"


def script_of(seed: int) -> Script:
    draw = Draw(seed)
    ranks = draw.integer(2, 6)
    transport = _TRANSPORTS[draw.integer(0, len(_TRANSPORTS))]
    without = _LEFT_OUT[transport] | (set() if draw.integer(0, 4) == 0 else {"dtensor"})
    return Script(
        seed=seed,
        ranks=ranks,
        transport=transport,
        kinds=tuple(name for name in KINDS if name not in without),
        rounds=(1, 3, 10, 30)[draw.integer(0, 4)],
        ending=_ENDINGS[draw.integer(0, len(_ENDINGS))],
        victim=draw.integer(0, ranks),
        delay_s=draw.integer(0, 120) / 1000,
        stops=(0, 0, 2, 8)[draw.integer(0, 4)],
    )
