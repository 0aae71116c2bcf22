"""Rounds in which calls run beside other things: later calls, threads, children of fork."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

import shardway as sw
from tests.stress.calls import any_case, laid, one_of, run_case
from tests.stress.groups import Group, new_group
from tests.stress.world import World
from tests.support import cases
from tests.support.dense import Draw

CHILD_LIMIT_S = 6  # less than the groups' timeout: the stacks of a child that hangs come before its peers give up


def late_and_dropped(world: World, draw: Draw) -> None:
    groups = [world.groups.any_of(draw) for _ in range(2)]
    pending = []
    for _ in range(draw.integer(2, 7)):
        group = one_of(draw, groups)
        case, is_dropped = any_case(draw, group.size), draw.integer(0, 4) == 0
        place = group.place(world.rank)
        choice = draw.integer(0, 1000)
        if place is None:
            continue
        world.doing(f"async {case.op} on {group.backend} {group.members}")
        world.called(f"async {case.op}", case.inputs[place].nbytes)
        x = laid(case.inputs[place], choice)
        handle = case.call(x, place, group=group.pg, async_op=True, **case.known[place])
        del x
        if not is_dropped:
            pending.append((handle, case, place))
        del handle
    run_case(world, draw, groups[0], any_case(draw, groups[0].size))
    own = Draw(draw.integer(0, 2**31) + world.rank)  # each rank waits in an order of its own
    while pending:
        handle, case, place = pending.pop(own.integer(0, len(pending)))
        world.doing(f"waiting for {case.op}")
        result = handle.wait()
        world.expect(lambda case=case, result=result, place=place: case.check(result, place))  # type: ignore[misc]


@contextmanager
def beside(body: Callable[[], None]) -> Iterator[None]:
    """Runs `body` in a thread; what it raises is raised at the end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


def _cases_on(world: World, group: Group, seed: int, count: int) -> None:
    draw = Draw(seed)
    for _ in range(count):
        run_case(world, draw, group, any_case(draw, group.size))


def threads(world: World, draw: Draw) -> None:
    seeds = [draw.integer(0, 2**31) for _ in range(3)]
    default, gloo, ours, other = world.groups.staying
    with beside(lambda: _cases_on(world, gloo, seeds[0], 6)), beside(lambda: _cases_on(world, ours, seeds[1], 6)):
        _cases_on(world, default if seeds[2] % 2 else other, seeds[2], 6)


def forks(world: World, draw: Draw) -> None:
    seed, group = draw.integer(0, 2**31), one_of(draw, world.groups.staying[1:3])
    own = Draw(seed + world.rank)
    bodies = [one_of(own, (_child_that_calls, _child_that_allocates)) for _ in range(own.integer(1, 4))]
    _use_torch_first(world, group, seed)
    with beside(lambda: _cases_on(world, group, seed, 8)):
        for body in bodies:
            _fork(world, lambda body=body: body(world.groups.staying))  # type: ignore[misc]


def _use_torch_first(world: World, group: Group, seed: int) -> None:
    """An operator of torch initialises a static variable in its first call. A child that is forked while another thread
    does that waits for ever when it uses the operator itself, whatever library it came from."""
    _cases_on(world, group, seed, 8)
    _child_that_allocates([])


def forks_before_first(world: World, draw: Draw) -> None:
    """The first call of a group is a child's."""
    group = new_group(range(world.size), one_of(draw, ("gloo", "shardway")), world.rank, world.groups.timeout)
    _fork(world, lambda: _child_that_calls([group]))
    run_case(world, draw, group, any_case(draw, group.size))
    dist.destroy_process_group(group.pg)


def forks_while_pending(world: World, draw: Draw) -> None:
    """The last rank comes late, so the others fork while their call waits for it."""
    group = one_of(draw, world.groups.staying[1:])
    case = cases.all_gather_case(draw, (1, 3), 0, draw.sizes(world.size, one_of(draw, (3, 20_000))), torch.float32)
    is_late = world.rank == world.size - 1
    if is_late:
        time.sleep(0.05)
    world.called(f"async {case.op}", case.inputs[world.rank].nbytes)
    handle = case.call(case.inputs[world.rank], world.rank, group=group.pg, async_op=True, **case.known[world.rank])
    _fork(world, lambda: _child_that_calls([group]))
    result = handle.wait()
    world.expect(lambda: case.check(result, world.rank))


def _child_that_calls(groups: list[Group]) -> bool:
    for group in groups:
        calls: list[Callable[[], object]] = [lambda group=group: sw.all_gather_v(torch.ones(3), group=group.pg)]  # type: ignore[misc]
        if group.backend == "shardway":
            calls.append(lambda group=group: dist.all_reduce(torch.ones(3), group=group.pg))  # type: ignore[misc]
        for call in calls:
            try:
                call()
            except Exception:
                continue
            return False
    return True


def _child_that_allocates(groups: list[Group]) -> bool:
    kept = []
    for i in range(40):
        kept.append(sw.empty(1 + 7919 * i).fill_(i))
        kept.append(torch.full((1 + 31 * i,), float(i)))
        if i % 3 == 0:
            kept.pop(0)
    return all(bool((x == x.view(-1)[0]).all()) for x in kept)


def _fork(world: World, body: Callable[[], bool]) -> None:
    world.doing("fork")
    world.called("fork")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if body() else 3
        finally:
            os._exit(status)
    deadline = time.monotonic() + CHILD_LIMIT_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code == 3:
                world.find("no error", "a child of fork made a call of its parent's group")
            elif code:
                world.find("crash", f"a child of fork ended with {code}")
            return
        time.sleep(0.002)
    stacks = world.stacks_of(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    world.find("hang", f"a child of fork did not end within {CHILD_LIMIT_S} s\n{stacks}")
