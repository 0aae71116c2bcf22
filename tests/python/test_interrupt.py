"""Ctrl-C while a rank waits for another that does not come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks

X = torch.ones(3)


def queued():
    """A plain call that has to wait for an asynchronous one."""
    sw.all_reduce(X, async_op=True)
    sw.all_gather_v(X)


def backward():
    x = X.clone().requires_grad_()
    gathered, _ = sw.all_gather_v(x, sizes=[3, 3])
    gathered.sum().backward()


CALLS = {
    "plain": lambda: sw.all_reduce(X),
    "list": lambda: sw.all_gather_v([X, X]),
    "handle": lambda: sw.all_reduce(X, async_op=True).wait(),
    "queued": queued,
    "backward": backward,
}
BACKEND_CALLS = {
    "plain": lambda: dist.all_reduce(X.clone()),
    "work": lambda: dist.all_reduce(X.clone(), async_op=True).wait(),
    "recv": lambda: dist.recv(X.clone(), 1),
    "barrier": dist.barrier,
}
LEAVES_THE_CALL_TO_ITS_THREAD = ("handle", "work")


def interrupted_after_s(call):
    """How long a call lasts that is interrupted after 0.3 s."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call()
    return time.monotonic() - start


def check_interrupt(rank, calls, how):
    """Rank 1 comes too late, and hears of it."""
    if rank == 0:
        assert interrupted_after_s(calls[how]) < 1.3
        if how not in LEAVES_THE_CALL_TO_ITS_THREAD:
            with pytest.raises(dist.DistBackendError, match="it was interrupted"):
                calls[how]()
        return
    if how == "backward":
        sw.all_gather_v(X.clone().requires_grad_(), sizes=[3, 3])
    time.sleep(1.0)
    if how in LEAVES_THE_CALL_TO_ITS_THREAD:
        calls[how]()
    else:
        with pytest.raises(dist.DistBackendError, match=r"rank 0 could not be reached: it was interrupted.*rank 1"):
            sw.all_reduce(X)


@pytest.mark.parametrize("how", CALLS)
@ranks(2)
def test_a_wait_in_shared_memory_is_interrupted(rank, size, how):
    sw.all_reduce(X)
    check_interrupt(rank, CALLS, how)


@pytest.mark.parametrize("how", BACKEND_CALLS)
@ranks(2, backend="shardway")
def test_a_wait_of_the_backend_is_interrupted(rank, size, how):
    check_interrupt(rank, BACKEND_CALLS, how)
    dist.destroy_process_group()


@ranks(2)
def test_the_first_call_of_a_group_is_interrupted(rank, size):
    if rank == 0:
        assert interrupted_after_s(CALLS["plain"]) < 1.3
        with pytest.raises(dist.DistBackendError, match="all_reduce: the group's first call was interrupted"):
            sw.all_reduce(X)


@ranks(2)
def test_a_handler_that_raises_nothing_disturbs_nothing(rank, size):
    sw.all_reduce(X)
    seen = []
    if rank == 0:
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    else:
        time.sleep(0.8)
    assert sw.all_reduce(X).tolist() == [2.0] * 3
    assert len(seen) == (rank == 0)


WAITS = """
import os, sys, torch, torch.distributed as dist, shardway as sw
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
sw.all_reduce(torch.ones(1))
print("waits", flush=True)
if rank: sys.stdin.read()
sw.all_reduce(torch.ones(1))
"""


def test_a_program_ends_with_keyboard_interrupt(tmp_path):
    ranks_ = [
        subprocess.Popen(
            [sys.executable, "-c", WAITS, str(rank), f"{tmp_path}/store"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        for rank in range(2)
    ]
    try:
        for program in ranks_:
            assert program.stdout.readline() == "waits\n", program.stderr.read()
        time.sleep(0.3)
        ranks_[0].send_signal(signal.SIGINT)
        _, errors = ranks_[0].communicate(timeout=5)
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
        assert ranks_[0].returncode == -signal.SIGINT
        _, errors = ranks_[1].communicate(timeout=20)
        assert "all_reduce: rank 0 could not be reached: it was interrupted (rank 1)" in errors
    finally:
        for program in ranks_:
            program.kill()
            program.wait()
