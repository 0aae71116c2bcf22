"""A child of fork gets an error from its parent's groups, whatever the parent was doing, and its end ends nothing."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks

WORDS = "process that forked this one"


def said_in_child(calls: list[Callable[[], Any]], limit_s: float = 15.0) -> list[str]:
    """What each call says in a child, which must end within the limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(int(limit_s))  # ends it where it hangs
        try:
            for call in calls:
                try:
                    said = f"came back with {call()!r}"
                except BaseException as error:
                    said = f"{type(error).__name__}: {error}"
                os.write(writing, said.replace("\n", " ").encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = lines.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0, f"the child was ended after {said}"
    return said


def assert_refused(said: list[str], count: int) -> None:
    assert len(said) == count, said
    for line in said:
        assert WORDS in line and line.startswith("DistBackendError"), said


def calls_of_child(pending: Any) -> list[Callable[[], Any]]:
    return [
        lambda: sw.all_reduce(torch.ones(4)),
        lambda: sw.all_gather_v(torch.ones(4)),
        lambda: sw.all_reduce(torch.ones(4), async_op=True).wait(),
        lambda: sw.all_gather_v(torch.ones(40000), async_op=True).wait(),
        pending.wait,
    ]


def run_forks(rank: int, size: int) -> None:
    sw.all_reduce(torch.ones(4))
    if rank == 0:  # the others come later: the call is pending, and a thread waits for them
        pending = sw.all_reduce(torch.full((4,), 2.0), async_op=True)
        time.sleep(0.05)
        calls = calls_of_child(pending)
        assert_refused(said_in_child(calls), len(calls))
    else:
        time.sleep(0.3)
        pending = sw.all_reduce(torch.full((4,), 2.0), async_op=True)
    assert float(pending.wait()[0]) == 2.0 * size
    assert float(sw.all_reduce(torch.ones(1))) == size


@ranks(2, 3, timeout_s=25)
def test_a_child_is_told_though_a_call_is_pending(rank, size):
    run_forks(rank, size)


@ranks(2, timeout_s=25)
def test_a_child_is_told_where_messages_are_sent(rank, size):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    run_forks(rank, size)


@ranks(2, timeout_s=25, backend="shardway")
def test_a_child_is_told_by_the_backend(rank, size):
    run_forks(rank, size)


@ranks(2, timeout_s=25, backend="shardway")
def test_a_child_is_told_of_work_that_its_parent_began(rank, size):
    dist.barrier()
    x = torch.ones(4)
    if rank == 0:
        pending = dist.all_reduce(x, async_op=True)
        calls = [pending.wait, lambda: dist.all_reduce(torch.ones(4)), lambda: pending.get_future().wait()]
        assert_refused(said_in_child(calls), len(calls))
    else:
        time.sleep(0.3)
        pending = dist.all_reduce(x, async_op=True)
    pending.wait()
    assert float(x[0]) == size


@pytest.mark.parametrize("transport", ["shm", "c10d"])
@ranks(2, timeout_s=40)
def test_children_are_told_while_other_threads_call(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    group = dist.new_group([0, 1])
    torch.ones(1)  # torch's first call takes locks that fork does not know of: a child that makes it may hang in torch
    ends = threading.Event()

    def hammer() -> None:
        while True:
            done = sw.all_reduce(torch.tensor([float(ends.is_set())]), group=group)
            late = sw.all_reduce(torch.ones(3), group=group, async_op=True)
            assert float(late.wait()[0]) == size
            if float(done) > 0:
                return

    thread = threading.Thread(target=hammer)
    thread.start()
    for _ in range(25):
        said = said_in_child([lambda: sw.all_reduce(torch.ones(1), group=group)])
        assert_refused(said, 1)
    ends.set()
    thread.join()
    assert float(sw.all_reduce(torch.ones(1))) == size


def without_new_threads(call: Callable[[], Any]) -> str:
    """What a call says where no memory is left for a thread's stack."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), before[1]))
    ends = threading.Event()
    takers: list[threading.Thread] = []  # of the stacks that ended threads have left
    try:
        with contextlib.suppress(RuntimeError):
            while True:
                taker = threading.Thread(target=ends.wait)
                taker.start()
                takers.append(taker)
        call()
        return "nothing was raised"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        ends.set()
        for taker in takers:
            taker.join()


@pytest.mark.parametrize("transport", ["shm", "c10d"])
@ranks(2, timeout_s=20)
def test_a_thread_that_cannot_be_started_leaves_nothing_behind(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    x = torch.ones(4)
    sw.all_reduce(x)
    said = without_new_threads(lambda: sw.all_reduce(x, async_op=True))
    assert "DistBackendError" in said and "no thread" in said, said
    assert float(sw.all_reduce(x)[0]) == size
    assert float(sw.all_reduce(x, async_op=True).wait()[0]) == size
