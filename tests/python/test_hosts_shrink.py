"""sw.shrink among ranks of several hosts, whose store lives, and what they are told if it does not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.hosts import Host, torchrun_on
from tests.support.ranks import Enter, run_ranks

HOST_OF = [0, 0, 1, 1]
BACKENDS = ["gloo", "shardway"]
LONG_S = 40.0  # whoever waits for the dead waits so long
SHORT_S = 3.0


def _on(hosts: tuple[Host, ...], backend: str, store: Path) -> Enter:
    """A store that no rank serves, as that of torchrun's agent."""

    def enter(rank: int, size: int) -> None:
        host = hosts[HOST_OF[rank]]
        host.enter()
        os.environ["GLOO_SOCKET_IFNAME"] = host.interface
        dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)

    return enter


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _call(group: dist.ProcessGroup | None = None) -> None:
    sw.all_reduce(torch.ones(50_000), group=group)


def _lose_a_peer(group: dist.ProcessGroup | None = None) -> None:
    with pytest.raises(dist.DistBackendError, match="could not be reached"):
        while True:
            _call(group)


def _use(group: dist.ProcessGroup, numbers: list[int]) -> None:
    """Calls of both kinds on a group of these global ranks."""
    assert dist.get_process_group_ranks(group) == numbers
    own, place = dist.get_rank(), dist.get_rank(group)
    gathered, sizes = sw.all_gather_v(torch.full((place + 1,), own), group=group)
    assert sizes == tuple(range(1, len(numbers) + 1))
    assert gathered.tolist() == [n for i, n in enumerate(numbers) for _ in range(i + 1)]
    large = torch.full((100_000,), float(own))
    assert torch.equal(sw.all_reduce(large, group=group), torch.full_like(large, sum(numbers)))
    dist.all_reduce(large, group=group)
    assert torch.equal(large, torch.full_like(large, sum(numbers)))


def _end(*groups: dist.ProcessGroup) -> None:
    for group in groups:
        dist.destroy_process_group(group)
    dist.destroy_process_group()


def _go_on_twice(rank: int, size: int) -> None:
    _call()
    if rank == 3:
        _die()
    _lose_a_peer()
    start = time.monotonic()
    small = sw.shrink(timeout=LONG_S)
    assert time.monotonic() - start < LONG_S - 10, "waited for a rank that its neighbour knows to be dead"
    _use(small, [0, 1, 2])
    assert dist.get_backend(small) == dist.get_backend()
    with pytest.raises(ValueError, match=r"^shrink: the group was shrunk before: shrink the group that came of it"):
        sw.shrink(timeout=LONG_S)
    if rank == 0:
        _die()
    _lose_a_peer(small)
    smaller = sw.shrink(small, timeout=LONG_S)
    _use(smaller, [1, 2])
    _end(smaller, small)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_ranks_that_live_go_on_and_go_on_again(two_hosts: tuple[Host, ...], backend: str, tmp_path: Path) -> None:
    run_ranks(4, _go_on_twice, enter=_on(two_hosts, backend, tmp_path / "store"), dying=[0, 3], timeout_s=90)


def _lose_a_host(rank: int, size: int) -> float:
    _call()
    if HOST_OF[rank] == 0:
        _die()
    _lose_a_peer()
    start = time.monotonic()
    small = sw.shrink(timeout=SHORT_S)
    took = time.monotonic() - start
    _use(small, [2, 3])
    _end(small)
    return took


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_host_that_loses_all_its_ranks_is_one_failure(
    two_hosts: tuple[Host, ...], backend: str, tmp_path: Path
) -> None:
    enter = _on(two_hosts, backend, tmp_path / "store")
    found = run_ranks(4, _lose_a_host, enter=enter, dying=[0, 1], timeout_s=90)
    for took in found[2:]:
        assert took < 4 * SHORT_S, "waited for each rank of the host in turn"


def _come_late(rank: int, size: int) -> None:
    """Rank 3 is in a call that the others leave, and hears of it there."""
    _call()
    store = dist.distributed_c10d._get_default_store()
    if rank == 3:
        with pytest.raises(dist.DistBackendError):
            _call()
        store.wait([f"gone on {number}" for number in range(3)])
        text = (
            r"^shrink: ranks 0, 1 and 2 have gone on in a smaller group, since this rank did not answer in time: .*3\)"
        )
        with pytest.raises(dist.DistBackendError, match=text):
            sw.shrink(timeout=SHORT_S)
        return dist.destroy_process_group()
    small = sw.shrink(timeout=SHORT_S)
    _use(small, [0, 1, 2])
    store.set(f"gone on {rank}", "")
    return _end(small)


def test_a_rank_that_comes_late_is_refused(two_hosts: tuple[Host, ...], tmp_path: Path) -> None:
    run_ranks(4, _come_late, enter=_on(two_hosts, "gloo", tmp_path / "store"), timeout_s=90)


def _lose_the_store(rank: int, size: int) -> None:
    _call()
    if rank == 0:
        _die()
    _lose_a_peer()
    text = (
        r"^shrink: not all ranks share memory, and the group's store, .* does not answer: start the ranks again \(rank"
    )
    with pytest.raises(dist.DistBackendError, match=text):
        sw.shrink(timeout=SHORT_S)
    dist.destroy_process_group()


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_the_store_there_is_one_clear_error(two_hosts: tuple[Host, ...], backend: str) -> None:
    enter = torchrun_on(two_hosts, HOST_OF, backend=backend)
    run_ranks(4, _lose_the_store, enter=enter, dying=[0], timeout_s=90)
