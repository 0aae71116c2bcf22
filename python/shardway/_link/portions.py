"""Which Loads of a role come together. Every rank of every role finds the same from the declarations alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from .layouts import layout_of
from .wire import Message


def portions(published: Mapping[str, Message], subscribed: Mapping[str, Message]) -> dict[str, int]:
    """By name, in the order in which the role declares them: 0 for what has a destination of its own, then 1, 2, … for
    Loads that fit together into the least of their `max_bytes`, on every rank."""
    found, number, limit = {}, 0, 0
    held: dict[int, int] = {}  # bytes of the portion, by rank
    for name, entry in subscribed.items():
        if "max_bytes" not in entry:
            found[name] = 0
            continue
        pieces = piece_bytes(published[name], entry)
        limit = min(limit, entry["max_bytes"])
        if number == 0 or any(held.get(rank, 0) + piece > limit for rank, piece in pieces.items()):
            number, held, limit = number + 1, {}, entry["max_bytes"]
        for rank, piece in pieces.items():
            held[rank] = held.get(rank, 0) + piece
        found[name] = number
    return found


def piece_bytes(published: Message, subscribed: Message) -> dict[int, int]:
    """What the piece of each rank of the role takes on its way to a Load: as it comes, and as it is handed over where
    the dtype changes."""
    layout = layout_of(subscribed, 0, subscribed["dtype"])
    dtypes = {published["dtype"], subscribed["dtype"]}
    each = sum(getattr(torch, dtype).itemsize for dtype in dtypes)
    return {rank: each * math.prod(layout.box(rank)[1]) for rank in layout.mesh.ranks}
