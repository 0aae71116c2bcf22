"""Registers the backend: init_process_group("shardway"), or "cpu:shardway,cuda:nccl"."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from shardway._C import BackendOptions, ProcessGroupShardway

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


if dist.is_available() and NAME not in dist.Backend.backend_list:
    dist.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu"])
