"""What ranks declare, put together to a model, and two models compared: every difference, not the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .portions import too_big
from .wire import Message

MOST_SHOWN = 200


@dataclass
class Model:
    """What all ranks of a role declared. An entry is a layout in the form of layouts.py, with ranks of the role."""

    role: str
    entries: dict[str, Message]
    holders: dict[str, list[int]]
    is_cast: bool = False
    refused: frozenset[str] = frozenset()  # names that a rank gave, with a tensor that is not right

    def of(self, name: str) -> str:
        return f"{entry_text(self.entries[name])} on {ranks_text(self.role, self.holders[name])}"


def put_together(role: str, size: int, said: Mapping[int, Message]) -> tuple[Model, list[str]]:
    """The union of what the ranks said, and the problems in it."""
    refused = frozenset(name for message in said.values() for name in message.get("refused", ()))
    model = Model(role, {}, {}, any(message["cast"] for message in said.values()), refused)
    problems = [f"{problem} (role {role} rank {rank})" for rank in sorted(said) for problem in said[rank]["problems"]]
    by_name: dict[str, dict[int, Message]] = {}
    for rank in sorted(said):
        for name, entry in said[rank]["tensors"].items():
            by_name.setdefault(name, {})[rank] = entry
    for name, entries in by_name.items():
        problems += _problems_of(name, role, size, entries)
        entry = _whole_on(entries) if "placements" not in _first(entries) else _first(entries)
        on_gpu = all(name in said.get(rank, {}).get("on_gpu", ()) for rank in entry["mesh"])
        model.entries[name] = {**entry, "on_gpu": True} if on_gpu else entry
        model.holders[name] = sorted(entries)
    return model, problems


def _problems_of(name: str, role: str, size: int, entries: Mapping[int, Message]) -> list[str]:
    first_rank, first = next(iter(entries.items()))
    problems = [
        f"{name}: {entry_text(first)} on {ranks_text(role, [first_rank])}, {entry_text(entry)} on rank {rank}"
        for rank, entry in entries.items()
        if entry != first
    ]
    if problems or "placements" not in first:
        return problems
    beyond = [rank for rank in first["mesh"] if rank >= size]
    if beyond:
        problems.append(f"{name}: its mesh has {ranks_text(role, beyond)}, but the role has {size} ranks")
    absent = [rank for rank in first["mesh"] if rank < size and rank not in entries]
    if absent:
        problems.append(f"{name}: {ranks_text(role, absent)} of its mesh did not name it")
    return problems


def _first(entries: Mapping[int, Message]) -> Message:
    return next(iter(entries.values()))


def _whole_on(entries: Mapping[int, Message]) -> Message:
    """A plain tensor lies whole on every rank that named it."""
    ranks = sorted(entries)
    first = _first(entries)
    order: list[list[int]] = [[] for _ in first["shape"]]
    return {**first, "mesh_shape": [len(ranks)], "mesh": ranks, "placements": [["R"]], "order": order}


def differences(source: Model, target: Model) -> list[str]:
    """A name that a side gave with a tensor that is not right is in that side's problems, not missing."""
    found = []
    for name in (source.entries.keys() | target.entries.keys()) - source.refused - target.refused:
        if name not in target.entries:
            found.append(f"{name}: {source.of(name)}, but role {target.role} does not subscribe to it")
        elif name not in source.entries:
            found.append(f"{name}: {target.of(name)}, but role {source.role} does not publish it")
        elif (why := _difference(source.entries[name], target.entries[name], target.is_cast)) is not None:
            found.append(f"{name}: {why}: published {source.of(name)}, subscribed {target.of(name)}")
    return sorted(found)


def _difference(published: Message, subscribed: Message, is_cast: bool) -> str | None:
    if published["shape"] != subscribed["shape"]:
        return "the shapes differ"
    if any(placement[0] == "P" for placement in subscribed["placements"]):
        return "a destination cannot be Partial"
    if published["dtype"] != subscribed["dtype"]:
        if not is_cast:
            return "the dtypes differ, and cast=True is not given"
        if not _can_cast(published["dtype"], subscribed["dtype"]):
            return "the dtype cannot be cast"
    return too_big(published, subscribed)


def _can_cast(published: str, subscribed: str) -> bool:
    before, after = getattr(torch, published, None), getattr(torch, subscribed, None)
    return isinstance(before, torch.dtype) and isinstance(after, torch.dtype) and torch.can_cast(before, after)


def told(what: str, lines: Sequence[str]) -> str:
    shown = "".join(f"\n  {line}" for line in lines[:MOST_SHOWN])
    more = f"\n  and {len(lines) - MOST_SHOWN} more" if len(lines) > MOST_SHOWN else ""
    return f"{what}: {len(lines)} {'difference' if len(lines) == 1 else 'differences'}{shown}{more}"


def entry_text(entry: Message) -> str:
    """float32[8,6] whole, or float32[8,6] as S0,R over ranks 0-3"""
    kind = f"{entry['dtype']}[{','.join(map(str, entry['shape']))}]"
    if "max_bytes" in entry:
        kind += f" to a Load of {entry['max_bytes']} bytes"
    if "placements" not in entry or entry["placements"] == [["R"]]:
        return f"{kind} whole"
    places = ",".join(_placement_text(placement) for placement in entry["placements"])
    grid = "x".join(map(str, entry["mesh_shape"]))
    return f"{kind} as {places} over {grid} ranks"


def _placement_text(placement: Sequence[Any]) -> str:
    kind, *rest = placement
    if kind == "S":
        dim, sizes = rest
        return f"S{dim}" if sizes is None else f"S{dim}({','.join(map(str, sizes))})"
    return "R" if kind == "R" else f"P({rest[0]})"


def ranks_text(role: str, ranks: Sequence[int]) -> str:
    """role trainer ranks 0-2,5"""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][-1] == rank - 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    return f"role {role} rank{'s' if len(ranks) > 1 else ''} {','.join('-'.join(map(str, run)) for run in runs)}"
