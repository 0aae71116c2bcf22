"""Process groups made of some ranks of another, on any store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import ProcessGroup, distributed_c10d


def store_of(group: ProcessGroup) -> Store:
    return distributed_c10d._world.pg_map[group][1]


def timeout_of(group: ProcessGroup) -> timedelta:
    """The group's own; torch's default where its backend does not say."""
    for device in _devices(group):
        options = getattr(group._get_backend(device), "options", None)
        if options is not None:
            found: timedelta = options._timeout
            return found
    return dist.constants.default_pg_timeout


def new_group_on(
    store: Store, old: ProcessGroup, members: Sequence[int], name: str, patience: timedelta
) -> ProcessGroup:
    """A group of these ranks of the old one, with its backends and its timeout. It waits for the others for `patience`
    while it is made. torch's own new_group would need the default group's store."""
    world = distributed_c10d._world
    numbers = dist.get_process_group_ranks(old)
    ranks = [numbers[member] for member in members]
    made: ProcessGroup
    made, _ = distributed_c10d._new_process_group_helper(
        len(ranks),
        members.index(old.rank()),
        ranks,
        dist.Backend(world.pg_map[old][0]),
        store,
        name,  # type: ignore[arg-type]  # torch's GroupName is a str
        timeout=patience,
        group_desc=f"{old.group_desc}:shrunk",
    )
    world.pg_group_ranks[made] = {number: rank for rank, number in enumerate(ranks)}
    for device in _devices(made):
        made._get_backend(device).set_timeout(timeout_of(old))
    return made


def _devices(group: ProcessGroup) -> list[torch.device]:
    return [torch.device(device) for device in group._device_types]
