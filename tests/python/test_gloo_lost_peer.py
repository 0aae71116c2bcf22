"""On gloo, without shared memory: who waits hears of a death, or that a survivor raised, long before the timeout."""

from __future__ import annotations

import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.ranks import ranks, run_ranks

LARGE = 2**24  # elements: 64 MiB, which no socket's buffer holds
SOON_S = 5.0  # on a machine under load; `make faults` measures it
TIMEOUT = timedelta(seconds=20)  # nobody may wait for it

pytestmark = pytest.mark.usefixtures("messages_of_gloo")


@pytest.fixture
def messages_of_gloo(monkeypatch):
    monkeypatch.setenv("SHARDWAY_TRANSPORT", "c10d")


def enter_patiently(folder, rank, size):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=TIMEOUT)


def run_patiently(size, body, *args, **kwargs):
    """Runs a body that leaves the process group unusable, so it ends without the harness's barrier."""

    def ends(rank, size, *args, **kwargs):
        said = body(rank, size, *args, **kwargs)
        if dist.is_initialized():
            dist.destroy_process_group()
        return said

    with tempfile.TemporaryDirectory() as folder:
        return run_ranks(size, ends, *args, enter=lambda rank, size: enter_patiently(folder, rank, size), **kwargs)


def told(call):
    """The error of a call that must not wait for the timeout."""
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError) as caught:
        call()
    assert time.monotonic() - start < SOON_S, "told too late"
    return str(caught.value)


def gather(rows=LARGE, **kwargs):
    return sw.all_gather_v(torch.ones(rows), sizes=[rows] * dist.get_world_size(), **kwargs)


MIDDLES = {
    "plain": lambda: gather(),
    "async": lambda: gather(async_op=True).wait(),
    "reduced": lambda: sw.all_reduce(torch.ones(LARGE)),
}


@pytest.mark.parametrize("how", MIDDLES)
def test_a_death_in_the_middle_of_a_message_is_told_long_before_the_timeout(how):
    def body(rank, size, how):
        gather(rows=3)
        dist.barrier()
        if rank == 1:
            threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        # A survivor that gives up closes its connections as well, which the other may see first on a busy machine.
        lost = rf"rank [1{2 - rank}] could not be reached"
        with pytest.raises(dist.DistBackendError, match=rf"^(all_gather_v|all_reduce): {lost}: "):
            while True:
                start = time.monotonic()
                MIDDLES[how]()
        assert time.monotonic() - start < SOON_S, "told too late"
        assert re.search(lost, told(lambda: gather(rows=3)))
        time.sleep(1.0)  # the other survivor might name this one if it left before

    run_patiently(3, body, how, dying=[1])


def test_a_rank_that_runs_out_of_memory_tells_the_others():
    def body(rank, size):
        gather(rows=3)
        x = torch.ones(LARGE)
        if rank != 1:
            said = told(lambda: sw.all_gather_v(x))
            assert re.match(r"all_gather_v: rank 1 could not be reached: its call failed: .*memory", said), said
            assert "rank 1 could not be reached: its call failed: " in told(lambda: gather(rows=3))
            return
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (32 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        with pytest.raises(
            (RuntimeError, MemoryError)
        ) as caught:  # after the ranks have agreed: its output is too large
            sw.all_gather_v(x)
        assert not isinstance(caught.value, dist.DistBackendError)
        assert "this rank's call failed: " in told(lambda: gather(rows=3))

    run_patiently(3, body)


@pytest.mark.parametrize("first", [True, False], ids=["first call", "later call"])
def test_an_interrupted_rank_tells_the_others(first):
    def body(rank, size):
        if not first:
            gather(rows=3)
        if rank == 2:  # does not come until rank 0 was interrupted; in its first call it cannot be told why
            time.sleep(0.8)
            said = told(lambda: gather(rows=3))
            assert re.search(
                "rank [01] could not be reached: " if first else "rank 0 could not be reached: it was interrupted", said
            )
        if rank == 1:
            assert "rank 0 could not be reached: it was interrupted" in told_after(0.3, lambda: gather(rows=3))
        if rank == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            start = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                gather(rows=3)
            assert time.monotonic() - start < 0.3 + SOON_S
            assert "this rank was interrupted" in told(lambda: gather(rows=3))

    def told_after(seconds, call):
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError) as caught:
            call()
        assert time.monotonic() - start < seconds + SOON_S
        return str(caught.value)

    run_patiently(3, body)


def test_a_rank_that_times_out_tells_the_others_for_whom_it_waited():
    def body(rank, size):
        group = dist.new_group(timeout=timedelta(seconds=1))
        sw.all_reduce(torch.ones(3), group=group)
        if rank == 1:
            time.sleep(2.5)
            said = told(lambda: sw.all_reduce(torch.ones(3), group=group))
            assert re.search(
                r"rank [02] could not be reached: it gave the group up, since this rank was missed: ", said
            )
            return
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError) as caught:
            sw.all_reduce(torch.ones(3), group=group)
        assert 0.9 < time.monotonic() - start < 1 + SOON_S
        assert "all_reduce: rank 1 could not be reached: it did not answer within the timeout of 1000 ms" in str(
            caught.value
        )

    run_patiently(3, body)


def test_a_call_goes_on_that_does_not_need_a_rank_that_ended():
    rows = 2**20

    def body(rank, size):
        gather(rows=3)
        dist.barrier()
        sizes = [0 if 1 in (rank, peer) else rows for peer in range(size)]
        if rank == 2:
            time.sleep(0.5)
        out, _ = sw.all_to_all_v(torch.full((sum(sizes),), float(rank)), sizes, recv_sizes=sizes)
        if rank == 1:
            os._exit(0)  # without a word
        expected = torch.tensor([0.0, 2.0]).repeat_interleave(rows)
        assert torch.equal(out, expected)

    run_patiently(3, body, dying=[1])


def test_of_two_ranks_whose_connections_closed_the_first_is_named():
    """The second may be a survivor that gave the group up, and whose farewell did not arrive in time."""
    rows = 2**20

    def body(rank, size):
        gather(rows=3)
        dist.barrier()
        if rank == 2:
            time.sleep(0.5)
        if rank != 0:
            os._exit(0)  # without a word
        sizes = [rows, 0, rows]
        with pytest.raises(dist.DistBackendError) as caught:
            sw.all_to_all_v(torch.ones(sum(sizes)), sizes, recv_sizes=sizes)
        ended = "its process ended, or it closed the connection"
        assert f"rank 1 could not be reached: {ended}; rank 2's connection closed later" in str(caught.value)

    run_patiently(3, body, dying=[1, 2])


def test_a_rank_that_left_is_named_and_lives():
    def body(rank, size):
        gather(rows=3)
        if rank == 1:
            dist.destroy_process_group()
            time.sleep(2.0)
            return
        time.sleep(0.2)
        assert "rank 1 could not be reached: it left the group" in told(lambda: gather(rows=3))

    run_patiently(3, body)


def threads():
    return len(os.listdir("/proc/self/task"))


def leave_in_order(rank, size, places, folder):
    """Gives what the rank wrote to stderr."""
    said = open(f"{folder}/said-{rank}", "w+b")  # noqa: SIM115
    os.dup2(said.fileno(), 2)
    before = threads()
    enter_patiently(folder, rank, size)
    part = dist.new_group([0, 1])
    sw.all_reduce(torch.ones(3))
    if rank < 2:
        sw.all_gather_v(torch.ones(3), group=part)
    time.sleep(0.1 * places[rank])
    dist.destroy_process_group()
    del part
    deadline = time.monotonic() + 2
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threads() == before
    said.seek(0)
    return said.read()


@pytest.mark.parametrize("places", list(itertools.permutations(range(3))))
def test_groups_end_in_every_order_without_a_word_and_without_a_thread(places, tmp_path):
    assert run_ranks(3, leave_in_order, places, tmp_path, enter=lambda rank, size: None) == [b""] * 3


PROGRAM = """
import sys, time, torch, torch.distributed as dist
import shardway as sw
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=3)
assert sw.all_reduce(torch.ones(3)).tolist() == [3.0] * 3
time.sleep(0.2 * rank)
"""


def test_programs_that_end_without_leaving_say_nothing(tmp_path):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM]
    programs = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    for program in programs:
        said, _ = program.communicate(timeout=60)
        assert (program.returncode, said) == (0, "")


@ranks(3)
def test_calls_of_the_user_run_beside_ours(rank, size):
    evens = dist.new_group([0, 2])
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    for tag in (0, 1, 2**31 - 1):
        came = torch.zeros(5)
        asked = dist.irecv(came, behind, tag=tag)
        gathered, _ = sw.all_gather_v(torch.full((rank + 1,), float(rank)))
        assert gathered.tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]
        dist.isend(torch.full((5,), float(rank)), ahead, tag=tag).wait()
        summed = torch.ones(4)
        dist.all_reduce(summed)
        asked.wait()
        assert came.tolist() == [float(behind)] * 5 and summed.tolist() == [3.0] * 4
        if rank != 1:
            assert sw.all_reduce(torch.ones(2), group=evens).tolist() == [2.0] * 2
    anyone = torch.zeros(1)
    if rank == 0:
        assert dist.recv(anyone) == 1 and anyone.item() == 7.0
    elif rank == 1:
        dist.send(torch.tensor([7.0]), 0)
    assert sw.all_reduce(torch.ones(1)).item() == 3.0


@ranks(2)
def test_a_child_of_fork_ends_and_its_parent_goes_on(rank, size):
    gather(rows=3)
    child = os.fork()
    if not child:
        with pytest.raises(dist.DistBackendError, match="the group belongs to the process that forked this one"):
            gather(rows=3)
        os._exit(3)
    assert os.waitpid(child, 0)[1] == 3 << 8
    assert gather(rows=3)[0].tolist() == [1.0] * 6
