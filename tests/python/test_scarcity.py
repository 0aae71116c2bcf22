"""A rank that lacks something: all ranks have the same results, or every one of them has a clear error, soon."""

from __future__ import annotations

import datetime
import errno
import functools
import gc
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.faults.leftovers import Holdings
from tests.stress.crew import free_port
from tests.support import scarcity
from tests.support.programs import end_all, end_with_parent, has_ended, run_program, started_program
from tests.support.ranks import run_ranks

SIZE, POOR = 3, 1
SMALL, LARGE = 3, 1 << 19  # elements of each rank
SOON_S = 10.0  # far less than the timeout
TIMEOUT = datetime.timedelta(seconds=60)
MiB = 1 << 20

refuse = scarcity.refuse_calls
SCARCITIES = {
    "24 descriptors": functools.partial(scarcity.take_descriptors, 24),
    "no descriptors": functools.partial(scarcity.take_descriptors, 3),
    "files of 1 MiB": functools.partial(scarcity.limit_files, MiB),
    "no files": functools.partial(scarcity.limit_files, 0),
    "no memfd": functools.partial(refuse, ["memfd_create"]),
    "no pidfd": functools.partial(refuse, ["pidfd_open"]),
    "pidfd forbidden": functools.partial(refuse, ["pidfd_open"], errno.EPERM),
    "no ptrace": functools.partial(refuse, ["ptrace", "process_vm_readv", "process_vm_writev"], errno.EPERM),
    "no threads": scarcity.refuse_threads,
    "no memory": functools.partial(refuse, ["fallocate"], errno.ENOSPC),
    "no advice": functools.partial(refuse, ["madvise", "sched_getaffinity"], errno.EPERM),
    "small /dev/shm": functools.partial(scarcity.replace_dev_shm, "size=4k"),
    "read-only /dev/shm": functools.partial(scarcity.replace_dev_shm, "size=4k", read_only=True),
}
# What a group in shared memory cannot begin without, and what its error says. A gloo group goes without shared memory.
REFUSED = {
    "no descriptors": "Too many open files",
    "files of 1 MiB": r"ulimit -f|\d+ bytes are needed",
    "no files": r"ulimit -f|\d+ bytes are needed|Invalid argument",
    "no memfd": "memfd_create: Function not implemented",
    "no pidfd": "pidfd_open: Function not implemented",
    "pidfd forbidden": "pidfd_open: Operation not permitted",
    "no threads": "no thread could be started to meet the others",
    "no memory": r"\d+ bytes are needed, 0 are available",
}
UNPRIVILEGED = os.geteuid() != 0
MOUNTS = [name for name in SCARCITIES if "/dev/shm" in name]


def _enter(port, rank, size):
    """The store is a connection that is there: one in a file would need descriptors and files of its own."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)


def _on_ranks(body, *args, timeout_s=60.0):
    return run_ranks(SIZE, body, *args, timeout_s=timeout_s, enter=functools.partial(_enter, free_port()))


def _is_right(group, rank, count):
    gathered, sizes = sw.all_gather_v(torch.full((count + rank,), float(rank)), group=group)
    total = sw.all_reduce(torch.full((count,), rank + 1.0), group=group)
    wanted = torch.cat([torch.full((count + r,), float(r)) for r in range(SIZE)])
    is_right = torch.equal(gathered, wanted) and sizes == tuple(count + r for r in range(SIZE))
    return is_right and torch.equal(total, torch.full((count,), float(sum(range(1, SIZE + 1)))))


def _tried(step):
    """What came of it, and after how long."""
    start = time.monotonic()
    try:
        how = "right" if step() else "wrong"
    except Exception as error:
        how = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return how, time.monotonic() - start


def _new_group(backend):
    group = dist.new_group(backend=backend, timeout=TIMEOUT)
    if backend == "gloo":
        dist.barrier(group=group)  # torch's own connections are there
    return group


def _first_calls(rank, size, name, backend, poor):
    """The rank is poor before the group begins. That is in the first call on gloo, else when the group is made."""
    gc.freeze()  # or looking for garbage takes longer than all else
    before = Holdings.now()
    group = _new_group("gloo") if backend == "gloo" else None
    dist.barrier()
    if rank in poor:
        SCARCITIES[name]()

    def join():
        nonlocal group
        group = group or _new_group(backend)
        return _is_right(group, rank, SMALL)

    found = [_tried(join)]
    if group is not None:
        found.append(_tried(lambda: _is_right(group, rank, LARGE)))
    dist.barrier()  # torch's own group goes on, whatever came of the other
    if group is not None:
        dist.destroy_process_group(group)
        group = None
    dist.barrier()
    scarcity.give_descriptors_back()
    assert not _left_since(before)
    return found


def _left_since(before):
    """What does not go within a few seconds. A group's memory goes when the last rank has dropped the group."""
    deadline = time.monotonic() + 5
    while True:
        gc.collect()
        sw.empty_cache()
        found = Holdings.now().beyond(before)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


def _later_calls(rank, size, name, backend):
    group = _new_group(backend)
    assert _is_right(group, rank, SMALL)
    if rank == POOR:
        SCARCITIES[name]()
    return [_tried(lambda count=count: _is_right(group, rank, count)) for count in (SMALL, LARGE, SMALL)]


def _skip_without_rights(name):
    if name in MOUNTS and UNPRIVILEGED:
        pytest.skip("only root can put another file system on /dev/shm")


@pytest.mark.parametrize("poor", [(POOR,), tuple(range(SIZE))], ids=["one", "all"])
@pytest.mark.parametrize("name", SCARCITIES)
def test_a_gloo_group_goes_without_shared_memory(name, poor):
    _skip_without_rights(name)
    found = _on_ranks(_first_calls, name, "gloo", poor)
    assert all(how == "right" and seconds < SOON_S for steps in found for how, seconds in steps), found


@pytest.mark.parametrize("poor", [(POOR,), tuple(range(SIZE))], ids=["one", "all"])
@pytest.mark.parametrize("name", SCARCITIES)
def test_a_group_in_shared_memory_begins_or_every_rank_says_why_not(name, poor):
    _skip_without_rights(name)
    found = _on_ranks(_first_calls, name, "shardway", poor)
    texts = {steps[0][0] for steps in found}
    assert len(texts) == 1, texts  # one word for all
    assert all(seconds < SOON_S for steps in found for _, seconds in steps), found
    if texts != {"right"}:
        assert name in REFUSED or name == "24 descriptors", texts
        text = texts.pop()
        assert text.startswith("DistBackendError: shardway: the ranks share no memory, "), text
        assert re.search(REFUSED.get(name, "Too many open files|too many are open"), text), text
    else:
        assert name not in REFUSED or (name == "files of 1 MiB" and poor == (POOR,))
        assert all(how == "right" for steps in found for how, _ in steps), found


@pytest.mark.parametrize("backend", ["gloo", "shardway"])
@pytest.mark.parametrize("name", SCARCITIES)
def test_a_group_that_has_begun_needs_nothing_more(name, backend):
    _skip_without_rights(name)
    found = _on_ranks(_later_calls, name, backend)
    assert all(how == "right" and seconds < SOON_S for steps in found for how, seconds in steps), found


def _lacks_addresses(rank, size, backend):
    group = _new_group(backend)
    assert _is_right(group, rank, SMALL)
    x = torch.ones(8 * MiB)
    if rank == POOR:
        scarcity.limit_address_space(8 * MiB)
    return _tried(lambda: len(sw.all_gather_v(x, group=group)[0]) == SIZE * len(x))


@pytest.mark.parametrize("backend", ["gloo", "shardway"])
def test_no_room_for_a_result_is_an_error_on_every_rank(backend):
    found = _on_ranks(_lacks_addresses, backend)
    assert found[POOR][0] == f"OutOfMemoryError: no memory for a result of {4 * SIZE * 8 * MiB} bytes"
    for how, seconds in (found[0], found[2]):
        assert how.startswith(f"DistBackendError: all_gather_v: rank {POOR} could not be reached: its call failed"), how
        assert seconds < SOON_S


def _lacks_threads_for_async(rank, size, backend):
    group = dist.new_group(backend=backend, timeout=datetime.timedelta(seconds=2))
    assert _is_right(group, rank, SMALL)
    if rank == POOR:
        scarcity.refuse_threads()
    return _tried(lambda: len(sw.all_reduce(torch.ones(LARGE), group=group, async_op=True).wait()) == LARGE)


@pytest.mark.parametrize("backend", ["gloo", "shardway"])
def test_an_asynchronous_call_without_a_thread_is_an_error(backend):
    """Nothing of the call has begun on the poor rank, so the others wait for their timeout."""
    found = _on_ranks(_lacks_threads_for_async, backend)
    assert found[POOR][0].startswith("DistBackendError: all_reduce: no thread could be started"), found
    for how, seconds in (found[0], found[2]):
        assert how.startswith(f"DistBackendError: all_reduce: rank {POOR} could not be reached"), how
        assert seconds < SOON_S


def _lives_within_a_control_group(rank, size, backend, folder):
    if rank == POOR:
        with suppress(OSError):
            folder.write_text(str(scarcity.limit_memory(256 * MiB)))
    group = _new_group(backend)
    return [_tried(lambda count=count: _is_right(group, rank, count)) for count in (SMALL, LARGE)]


@pytest.mark.parametrize("backend", ["gloo", "shardway"])
def test_a_rank_in_a_small_control_group_has_the_same_results(backend, tmp_path):
    why_not = scarcity.why_no_control_group()
    if why_not:
        pytest.skip(why_not)
    note = tmp_path / "folder"
    try:
        found = _on_ranks(_lives_within_a_control_group, backend, note)
    finally:
        if note.exists():
            scarcity.remove_control_group(note.read_text())
    assert all(how == "right" and seconds < SOON_S for steps in found for how, seconds in steps), found


def _calls_a_rank_that_became_another_program(rank, backend, port, folder):
    _enter(port, rank, SIZE)
    group = dist.new_group(backend=backend, timeout=datetime.timedelta(seconds=2))
    assert _is_right(group, rank, SMALL)
    if rank == POOR:
        os.execv(shutil.which("sleep"), ["sleep", "60"])
    how, seconds = _tried(lambda: _is_right(group, rank, SMALL))
    (folder / f"rank-{rank}").write_text(f"{seconds:.3f} {how}")


@pytest.mark.parametrize("backend", ["gloo", "shardway"])
def test_a_rank_that_becomes_another_program_is_named_within_the_timeout(backend, tmp_path):
    """Its process goes on, so that only the timeout tells."""
    port, pids = free_port(), []
    try:
        for rank in range(SIZE):
            pid = os.fork()
            if pid == 0:
                try:
                    end_with_parent()
                    _calls_a_rank_that_became_another_program(rank, backend, port, tmp_path)
                finally:
                    os._exit(0)
            pids.append(pid)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (has_ended(pids[0]) and has_ended(pids[2])):
            time.sleep(0.01)
    finally:
        for pid in pids:
            end_all(pid)
    for rank in (0, 2):
        seconds, how = (tmp_path / f"rank-{rank}").read_text().split(" ", 1)
        assert how.startswith(f"DistBackendError: all_gather_v: rank {POOR} could not be reached"), how
        assert float(seconds) < SOON_S


CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

static atomic_long calls;
static long jump(void) { return (atomic_fetch_add(&calls, 1) % 2 ? 1 : -1) * 100000; }

int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*original)(clockid_t, struct timespec*);
  if (!original) original = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = original(clock, now);
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += jump();
  return result;
}
int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  now->tv_sec = time.tv_sec;
  now->tv_usec = time.tv_nsec / 1000;
  return 0;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""

RANK = """
import datetime, os, time, torch, torch.distributed as dist, shardway as sw
assert abs(time.time() - time.time()) > 1000  # the clock does jump
torch.set_num_threads(1)
dist.init_process_group("shardway", timeout=datetime.timedelta(seconds=3))
rank = dist.get_rank()
for count in (3, 300_000):
    for _ in range(20):
        total = sw.all_reduce(torch.full((count,), rank + 1.0))
        assert torch.equal(total, torch.full((count,), 3.0))
start = time.monotonic()
if rank == 0:
    try:
        sw.all_reduce(torch.ones(3))
    except dist.DistBackendError as error:
        assert "did not answer within the timeout of 3000 ms" in str(error), error
    assert 2.5 < time.monotonic() - start < 8, time.monotonic() - start
else:
    time.sleep(6)
os._exit(0)
"""


def test_a_clock_that_jumps_changes_nothing(tmp_path):
    """Forward and back by a day at every look; waits and timeouts go by the clock that does not jump."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "clock.so"
    (tmp_path / "clock.c").write_text(CLOCK)
    (tmp_path / "rank.py").write_text(RANK)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "clock.c", "-ldl"]
    assert run_program(command, timeout_s=60).returncode == 0
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LD_PRELOAD": str(library)}
    with ExitStack() as stack:
        programs = []
        for rank in range(2):
            program = started_program(
                [sys.executable, tmp_path / "rank.py"],
                env={**os.environ, **job, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            programs.append(stack.enter_context(program))
        outputs = [program.communicate(timeout=100)[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0], "\n".join(outputs)
