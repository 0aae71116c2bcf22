"""A row of bench/refit.py."""

from __future__ import annotations

from dataclasses import dataclass

FIELDS = {
    "bytes": "of the model",
    "us": "median, from the first rank's start to the last rank's end",
    "spread": "third quartile minus first, as a share of the median",
    "sent": "bytes that all ranks receive from others in one call; 0 where nothing is sent",
    "least": "bytes that all generators have to receive",
}


@dataclass(frozen=True)
class RefitRow:
    """One contender with one model and number of ranks."""

    op: str
    contender: str
    trainers: int
    generators: int
    bytes: int
    tensors: int
    us: float
    spread: float
    samples: int
    sent: int
    least: int
    cores: int
