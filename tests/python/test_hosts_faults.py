"""What ranks of several hosts are told when a rank, a host or a cable is lost; and that a slow cable is only slow."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.hosts import Host, hosts_or_skip, sent_bytes, torchrun_on
from tests.support.ranks import run_ranks

HOST_OF = [0, 0, 1, 1]
ROWS = 2**18  # of 4 bytes
TIMEOUT_S = 4.0
LATER_S = 2.0  # than it must be, on a busy machine


def _call() -> torch.Tensor:
    return sw.all_gather_v(torch.ones(ROWS))[0]


def _call_until_told(rank: int, size: int, dying: tuple[int, ...]) -> tuple[str, float]:
    """The error, and how long its call took."""
    for _ in range(3):
        _call()
    if rank in dying:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    while True:
        began = time.monotonic()
        try:
            _call()
        except dist.DistBackendError as error:
            took = time.monotonic() - began
            with pytest.raises(dist.DistBackendError):  # and from now on at once
                _call()
            return _with_answer(str(error), took)


def _with_answer(text: str, took: float) -> tuple[str, float]:
    dist.barrier = lambda: None  # type: ignore[assignment]  # the harness's last one, which a lost rank will not join
    return text, took


def _check_told(told: tuple[str, float], names: tuple[int, ...], within_s: float) -> None:
    text, took = told
    named = re.search(r"rank (\d+) could not be reached", text)
    assert named, text
    assert int(named[1]) in names, text
    assert took < within_s + LATER_S, f"told after {took:.1f} s: {text}"


def test_a_killed_rank_is_told_on_both_hosts(two_hosts: tuple[Host, ...], capfd: pytest.CaptureFixture[str]) -> None:
    found = run_ranks(
        4, _call_until_told, (3,), enter=torchrun_on(two_hosts, HOST_OF, timeout_s=TIMEOUT_S), dying=[3], timeout_s=60
    )
    _check_told(found[2], (3,), 0.5)  # its neighbour in memory
    for told in found[:2]:
        _check_told(told, (2, 3), TIMEOUT_S)
    host = f"host 1 ({socket.gethostname()})"
    for text, _ in found[:3]:
        assert f"; it is on {host} (rank " in text, text
    printed = capfd.readouterr().err
    assert re.search(r"^shardway: rank 3 could not be reached: .* \(seen by rank 2\)$", printed, re.MULTILINE), printed
    assert re.search(
        rf"^shardway: group \w+ of 2 ranks on {re.escape(host)} of a group of 4 ranks$", printed, re.MULTILINE
    )
    assert re.search(r"^shardway:   rank 2, pid \d+: ", printed, re.MULTILINE), printed
    assert re.search(r"^shardway:   rank 3: its process has ended", printed, re.MULTILINE), printed


def _call_apart(rank: int, size: int) -> str:
    x = torch.ones(ROWS)
    dist.all_reduce(x)
    with pytest.raises((ValueError, dist.DistBackendError)) as told:
        dist.broadcast(x, 0) if rank == 3 else dist.all_reduce(x)
    return _with_answer(str(told.value), 0)[0]


def test_ranks_of_a_host_that_disagree_are_named_by_their_numbers_in_the_group(two_hosts: tuple[Host, ...]) -> None:
    enter = torchrun_on(two_hosts, HOST_OF, backend="shardway", timeout_s=TIMEOUT_S)
    found = run_ranks(4, _call_apart, enter=enter, timeout_s=60)
    for text in found[2:]:
        assert re.search(r"different collectives: all_reduce .* on rank 2, broadcast .* on rank 3", text), text


def test_a_host_that_loses_all_its_ranks_is_told_on_the_other(two_hosts: tuple[Host, ...]) -> None:
    found = run_ranks(
        4,
        _call_until_told,
        (2, 3),
        enter=torchrun_on(two_hosts, HOST_OF, timeout_s=TIMEOUT_S),
        dying=[2, 3],
        timeout_s=60,
    )
    for told in found[:2]:
        _check_told(told, (0, 1, 2, 3), TIMEOUT_S)
    assert any("rank 2" in text or "rank 3" in text for text, _ in found[:2]), found


def test_a_cable_that_is_pulled_is_told_on_both_hosts_within_the_timeout(two_hosts: tuple[Host, ...]) -> None:
    def enter(rank: int, size: int) -> None:
        torchrun_on(two_hosts, HOST_OF, timeout_s=TIMEOUT_S)(rank, size)
        if rank == 0:
            threading.Timer(2.0, two_hosts[1].cut).start()

    found = run_ranks(4, _call_until_told, (), enter=enter, timeout_s=60)
    for told in found:
        _check_told(told, (0, 1, 2, 3), TIMEOUT_S)


def _count_bytes(rank: int, size: int) -> int:
    """What this rank's host sends for three gathers, after one that makes the plan."""
    _call()
    dist.barrier()
    before = sent_bytes()
    for _ in range(3):
        assert torch.equal(_call(), torch.ones(4 * ROWS))
    dist.barrier()
    return sent_bytes() - before


def test_a_slow_cable_carries_every_row_once() -> None:
    with hosts_or_skip(2, bits_per_second=200_000_000) as made:
        found = run_ranks(4, _count_bytes, enter=torchrun_on(made, HOST_OF), timeout_s=60)
    least = 3 * 2 * ROWS * 4
    for sent in found:
        assert least < sent < 1.1 * least
