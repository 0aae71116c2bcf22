"""Who a process says that it is."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass

from .wire import Message, NotOurs

_LONGEST_NAME = 64
_LONGEST_LINE = 512
_MOST_RANKS = 1 << 20
_JOB = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Claim:
    role: str
    rank: int
    size: int
    process: str  # host and process number, for people
    job: str  # what a launcher calls the job; empty without one

    @staticmethod
    def own(role: object, rank: int, size: int) -> Claim:
        launched = "/".join(os.environ.get(word, "") for word in _JOB).strip("/")
        return _checked(Claim(role, rank, size, f"process {os.getpid()} on {socket.gethostname()}", launched))  # type: ignore[arg-type]

    @staticmethod
    def read(message: Message) -> Claim:
        """NotOurs means that it is invalid."""
        found = message.get("claim")
        if not isinstance(found, dict) or found.keys() != Claim.__dataclass_fields__.keys():
            raise NotOurs("no claim")
        if not all(_is_line(found[name]) for name in ("process", "job")):
            raise NotOurs("a claim without words")
        try:
            return _checked(Claim(**found))
        except ValueError as error:
            raise NotOurs(str(error)) from error

    def said(self) -> Message:
        return asdict(self)

    def __str__(self) -> str:
        return f"role {self.role} rank {self.rank}"


def _is_line(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST_LINE and (not text or text.isprintable())


def _checked(claim: Claim) -> Claim:
    role, rank, size = claim.role, claim.rank, claim.size
    if not isinstance(role, str) or not role.isprintable() or not 0 < len(role) <= _LONGEST_NAME:
        raise ValueError(f"connect: role={role!r} is not a name of 1 to {_LONGEST_NAME} characters")
    if type(rank) is not int or type(size) is not int or not 0 <= rank < size <= _MOST_RANKS:
        raise ValueError(f"connect: rank={rank!r} is not a rank of size={size!r} (role {role})")
    return claim
