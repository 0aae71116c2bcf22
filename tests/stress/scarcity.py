"""Rounds in which a rank lacks something as a group begins: all is right, or every rank raises the same type."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch.distributed as dist

import shardway as sw
from tests.stress.calls import any_case, one_of
from tests.stress.groups import Group, new_group
from tests.stress.world import World
from tests.support.dense import Draw
from tests.support.scarcity import limited_descriptors, limited_files


def few_descriptors(world: World, draw: Draw) -> None:
    left = draw.integer(0, 10)
    _begin_poor(world, draw, f"{left} descriptors left", limited_descriptors(left))


def full_arena(world: World, draw: Draw) -> None:
    more = one_of(draw, (0, 4096, 1 << 20))
    committed = max(sw.memory_stats()["shared_bytes"], 1 << 20)
    _begin_poor(world, draw, f"{more} B more of shared memory", limited_files(committed + more))


def _begin_poor(world: World, draw: Draw, what: str, poverty: AbstractContextManager[None]) -> None:
    poor, backend = draw.integer(0, world.size), one_of(draw, ("gloo", "shardway"))
    seeds = [draw.integer(0, 2**31) for _ in range(2)]
    group: Group | None = None
    if backend == "gloo":  # torch's own connections are not the point
        group = _new(world, backend)
        dist.barrier(group=group.pg)
    world.doing(f"{what} on rank {poor}, first call on {backend}")
    world.called("scarcity")
    with poverty if world.rank == poor else nullcontext():
        heard, group = _first_call(world, backend, group, seeds[0])
    _compare(world, heard)
    if heard or group is None:
        group = _new(world, backend)
    world.doing(f"{backend} after {what} on rank {poor}")
    _compare(world, _call(world, group, seeds[1]))
    dist.destroy_process_group(group.pg)


def _new(world: World, backend: str) -> Group:
    return new_group(range(world.size), backend, world.rank, world.groups.timeout)


def _first_call(world: World, backend: str, group: Group | None, seed: int) -> tuple[str, Group | None]:
    try:
        group = group or _new(world, backend)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:400]}", None
    return _call(world, group, seed), group


def _call(world: World, group: Group, seed: int) -> str:
    """What went wrong."""
    case = any_case(Draw(seed), group.size)
    try:
        result = case.call(case.inputs[world.rank], world.rank, group=group.pg)
        case.check(result, world.rank)
    except AssertionError as error:
        return f"wrong value: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:400]}"
    return ""


def _compare(world: World, heard: str) -> None:
    everyone = world.exchange(heard)
    types = {text.split(":")[0] for text in everyone}
    if world.rank or types in ({""}, {"DistBackendError"}):
        return
    category = "wrong value" if "wrong value" in types else "disunity"
    world.find(category, "\n" + "\n".join(f"  rank {r}: {text or 'right'}" for r, text in enumerate(everyone)))
