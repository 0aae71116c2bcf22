"""Registers the backend: init_process_group("shardway"), "cpu:shardway,cuda:nccl", or "cuda:shardway" for ranks that
share a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from shardway._C import BackendOptions, ProcessGroupShardway, Survivors, disown_group, make_backend

NAME = "shardway"

_met: ContextVar[Survivors | None] = ContextVar("met", default=None)


@contextmanager
def meant_for(survivors: Survivors) -> Iterator[None]:
    """A backend that is made meanwhile is one of these ranks, which have met already. torch hands its creator nothing
    that could say so where a group has backends of several kinds."""
    token = _met.set(survivors)
    try:
        yield
    finally:
        _met.reset(token)


def _make(given: Any, options: Any) -> Any:
    if options is not None and not isinstance(options, BackendOptions):
        raise ValueError(f"init_process_group: pg_options of {NAME} are BackendOptions, not {type(options).__name__}")
    made = BackendOptions(timeout=_timeout(_as_timedelta(given.timeout), options))
    made.group_name = given.group_id
    made.global_ranks_in_group = given.global_ranks_in_group
    if met := _met.get():
        return ProcessGroupShardway(given.store, given.group_rank, given.group_size, made, met)

    def gloo_between_hosts(prefix: str) -> Any:
        store = PrefixStore(prefix, given.store)
        return dist.ProcessGroupGloo(store, given.group_rank, given.group_size, made._timeout)

    return make_backend(given.store, given.group_rank, given.group_size, made, gloo_between_hosts)


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
    dist.Backend.register_backend(NAME, _make, extended_api=True, devices=["cpu", "cuda"])
