"""What the ranks of a group raise, and whether they can go on afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

import shardway as sw

from .dense import Draw, assert_same_bits


def message_of(call: Callable[[], Any]) -> str:
    """What the call raises, which must be a ValueError with the same text on every rank."""
    try:
        call()
    except ValueError as error:
        mine = str(error)
    except Exception as error:
        mine = f"not a ValueError but {type(error).__name__}: {error}"
    else:
        mine = "nothing was raised"
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    assert len(set(everyone)) == 1, everyone
    return mine


def assert_says(message: str, words: Sequence[str], what: str) -> None:
    """All words, which are regular expressions, are in the message, and it is no other kind of failure."""
    assert not message.startswith(("not a ValueError", "nothing was raised")), f"{what}: {message}"
    for word in words:
        assert re.search(word, message), f"{what}: no {word!r} in {message!r}"


def assert_usable(rank: int, size: int) -> None:
    parts = Draw(size).parts((1, 2), 0, [r + 1 for r in range(size)], torch.float32)
    gathered, sizes = sw.all_gather_v(parts[rank])
    assert_same_bits(gathered, torch.cat(parts))
    assert sizes == tuple(range(1, size + 1))
    gathered, _ = sw.all_gather_v(parts[rank], sizes=sizes)
    assert_same_bits(gathered, torch.cat(parts))
