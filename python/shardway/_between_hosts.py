"""What messages between hosts cost: a part of `-m shardway.calibrate`."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import shardway as sw
from shardway._timing import TimedCall, compare

_GIB = float(1 << 30)
_SMALLEST_BYTES = 4
_LARGEST_BYTES = 4 << 20  # of a rank's message; networks let short bursts pass quicker
_REPETITIONS = 9


def hosts_of_ranks() -> list[int]:
    """Collective: the host of every rank, counted from that of rank 0. Ranks of a host can meet on its own sockets."""
    place = (Path("/proc/sys/kernel/random/boot_id").read_text(), os.stat("/proc/thread-self/ns/net").st_ino)
    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, place)
    order = list(dict.fromkeys(places))
    return [order.index(each) for each in places]


def fields_of_hosts(host_of: Sequence[int]) -> dict[str, Any]:
    """As a topology file has them."""
    ranks = host_of.count(0)
    is_even = list(host_of) == [rank // ranks for rank in range(len(host_of))]
    return {**({"ranks_per_host": ranks} if is_even else {"of_rank": list(host_of)}), "two_levels": True}


@dataclass(frozen=True)
class HostLink:
    latency_us: float
    gib_per_s: float  # of all ranks of a host together


class _Pairs:
    """The ranks of the first two hosts, each with one of the other."""

    def __init__(self, host_of: Sequence[int]) -> None:
        sides = [[rank for rank, host in enumerate(host_of) if host == side] for side in (0, 1)]
        self._pairs = list(zip(*sides, strict=False))
        self.count = len(self._pairs)

    def round_trip_us(self, size: int, pairs: int) -> float:
        """Collective: so many ranks of the first host send, and get a few bytes back; the slowest counts."""
        elements = torch.zeros(size // 4)
        answer = torch.zeros(1)
        dist.barrier()
        begin = time.perf_counter_ns()
        is_asking = False
        for asker, other in self._pairs[:pairs]:
            if dist.get_rank() == asker:
                dist.send(elements, other)
                dist.recv(answer, other)
                is_asking = True
            elif dist.get_rank() == other:
                dist.recv(elements, asker)
                dist.send(answer, asker)
        own = torch.tensor([time.perf_counter_ns() - begin if is_asking else 0])
        dist.all_reduce(own, dist.ReduceOp.MAX)
        return int(own) / 1e3

    def median_us(self, size: int, pairs: int) -> float:
        self.round_trip_us(size, pairs)  # opens connections: it does not count
        return statistics.median(self.round_trip_us(size, pairs) for _ in range(_REPETITIONS))


def measured_link(host_of: Sequence[int]) -> HostLink:
    """Collective. A message there and back has two latencies; what a large one takes more is bandwidth."""
    pairs = _Pairs(host_of)
    there_and_back = pairs.median_us(_SMALLEST_BYTES, 1)
    more_us = max(pairs.median_us(_LARGEST_BYTES, pairs.count) - there_and_back, 1e-3)
    return HostLink(there_and_back / 2, _LARGEST_BYTES * pairs.count / _GIB / (more_us / 1e6))


def error_over_hosts(topology: sw.Topology) -> float:
    """Collective: the median error of the prices of redistributions over all ranks, none of which gave a figure."""
    ranks = dist.get_world_size()
    mesh = sw.Mesh((ranks,))
    errors = []
    for rows in (64, 1024):
        before = sw.Layout((rows * ranks, 256), torch.float32, mesh, [sw.Shard(0)])
        for placements in ([sw.Replicate()], [sw.Shard(1)]):
            plan = sw.plan(before, before.with_(placements), topology)
            # Bound now: the loop goes on before it is called.
            call = TimedCall(
                lambda x, before=before, placements=placements: sw.redistribute(  # type: ignore[misc]
                    sw.MeshTensor(x.view(-1, 256), before), placements, topology=topology
                ),
                rows * 256,
            )
            for _ in range(_REPETITIONS):
                call.take_turn()
            compare([call], None)
            us = call.summary().us
            errors.append(abs(plan.cost_us - us) / us)
    return statistics.median(errors)
