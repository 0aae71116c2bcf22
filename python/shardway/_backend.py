"""Registers the backend: init_process_group("shardway"), or "cpu:shardway,cuda:nccl"."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from shardway._C import BackendOptions, ProcessGroupShardway, disown_group

NAME = "shardway"


def _make(given: Any, options: Any) -> ProcessGroupShardway:
    if options is not None and not isinstance(options, BackendOptions):
        raise ValueError(f"init_process_group: pg_options of {NAME} are BackendOptions, not {type(options).__name__}")
    made = BackendOptions(timeout=_timeout(_as_timedelta(given.timeout), options))
    made.group_name = given.group_id
    made.global_ranks_in_group = given.global_ranks_in_group
    return ProcessGroupShardway(given.store, given.group_rank, given.group_size, made)


def _timeout(given: timedelta, options: BackendOptions | None) -> timedelta:
    """The one of `timeout=`; that of the options where nobody gave another."""
    return options._timeout if options is not None and given == dist.constants.default_pg_timeout else given


def _as_timedelta(timeout: timedelta | float) -> timedelta:
    return timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)


def _disown_groups() -> None:
    """In a child of fork: the groups that it inherits are its parent's, those too that were not used yet."""
    for group in dist.distributed_c10d._world.pg_map:
        disown_group(group)


if dist.is_available():
    os.register_at_fork(after_in_child=_disown_groups)
if dist.is_available() and NAME not in dist.Backend.backend_list:
    dist.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu"])
