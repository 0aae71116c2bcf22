"""Faults that a soak must find: each is planted in one rank of a world, in place of what the library does."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

import shardway as sw
from tests.soak.script import DEATH_TIMEOUT_S, Script
from tests.stress import disagreements
from tests.stress.kinds import KINDS

OPS = ("all_gather_v", "reduce_scatter_v", "all_to_all_v", "gather_v", "scatter_v", "broadcast", "all_reduce")

Op = Callable[..., Any]
_kept: list[Any] = []


def plant(name: str, rank: int, script: Script) -> None:
    """In the first rank that lives."""
    if name and rank == next(r for r in range(script.ranks) if r not in script.victims):
        PLANTS[name]()


def _replace_ops(by: Callable[[Op], Op]) -> None:
    for name in OPS:
        setattr(sw, name, by(getattr(sw, name)))


def _spoiled(op: Op) -> Op:
    def spoiled(*given: Any, **options: Any) -> Any:
        result = op(*given, **options)
        tensor = result[0] if isinstance(result, tuple) else result
        if isinstance(tensor, torch.Tensor) and tensor.numel():
            tensor.detach().view(-1)[:1].view(torch.uint8)[0] ^= 1
        return result

    return spoiled


def _hanging(op: Op) -> Op:
    return lambda *given, **options: time.sleep(3600)


def _crashing(op: Op) -> Op:
    return lambda *given, **options: os.abort()


def _learn_late() -> None:
    def late(run: Op) -> Op:
        def late_run(*given: Any) -> None:
            try:
                run(*given)
            except Exception:
                time.sleep(DEATH_TIMEOUT_S + 1.5)
                raise

        return late_run

    for name, kind in KINDS.items():
        KINDS[name] = replace(kind, run=late(kind.run))


def _be_deaf() -> None:
    """Takes a refused call for one that went well."""
    heard = disagreements._heard
    disagreements._heard = lambda call: "returned" if heard(call).startswith("ValueError") else "nothing"


def _replace_shrink(by: Callable[[Op], Op]) -> None:
    sw.shrink = by(sw.shrink)


def _wait_for_the_dead(shrink: Op) -> Op:
    return lambda *given, **options: (shrink(*given, **options), time.sleep(DEATH_TIMEOUT_S + 1.0))[0]


def _come_late(shrink: Op) -> Op:
    return lambda *given, **options: (time.sleep(DEATH_TIMEOUT_S + 1.0), shrink(*given, **options))[1]


def _spoil_what_follows(shrink: Op) -> Op:
    return lambda *given, **options: (shrink(*given, **options), _replace_ops(_spoiled))[0]


def _keep_the_old_group(shrink: Op) -> Op:
    return lambda group, **options: (_kept.append(group), shrink(group, **options))[1]


PLANTS: dict[str, Callable[[], object]] = {
    "wrong": lambda: _replace_ops(_spoiled),
    "hang": lambda: _replace_ops(_hanging),
    "crash": lambda: _replace_ops(_crashing),
    "late": _learn_late,
    "memory": lambda: _kept.append(os.memfd_create("shardway")),
    "process": lambda: _kept.append(subprocess.Popen(["sleep", "60"])),
    "deaf": _be_deaf,
    "shrink-slow": lambda: _replace_shrink(_wait_for_the_dead),
    "shrink-late": lambda: _replace_shrink(_come_late),
    "shrink-not": lambda: _replace_shrink(lambda _: lambda group, **options: group),
    "shrink-wrong": lambda: _replace_shrink(_spoil_what_follows),
    "shrink-leak": lambda: _replace_shrink(_keep_the_old_group),
}
