"""Runs a test body as several ranks: processes forked from this one, which has torch loaded, joined by a backend.

    @ranks(1, 2, 3, 4)
    def test_something(rank, size): ...

makes one test per number of ranks. The body runs in every rank with the default group made; the test fails
with the traceback of each rank that failed, or with the ranks that did not end within the timeout.
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing.connection
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from .programs import end_all, end_with_parent, has_ended

DEFAULT_TIMEOUT_S = 60.0


Enter = Callable[[int, int], None]


def run_ranks(
    size: int,
    body: Callable[..., Any],
    *args: Any,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    backend: str = "gloo",
    enter: Enter | None = None,
    dying: Collection[int] = (),
    **kwargs: Any,
) -> list[Any]:
    """Calls `body(rank, size, *args, **kwargs)` in `size` forked ranks and gives what each returned. Before that a rank
    makes the default group: by `enter(rank, size)`, or on `backend` over the loopback interface. Ranks in `dying` must
    end without an answer, and give None."""
    with tempfile.TemporaryDirectory() as folder:
        enter = enter or functools.partial(_enter_on_loopback, backend, Path(folder) / "store")
        children: list[tuple[int, Connection]] = []
        try:
            children += (_fork(rank, size, enter, body, args, kwargs) for rank in range(size))
            return _collect(children, timeout_s, dying)
        finally:  # whatever comes of it, and what the ranks themselves have started
            for pid, connection in children:
                end_all(pid)
                connection.close()


def ranks(
    *sizes: int, timeout_s: float = DEFAULT_TIMEOUT_S, backend: str = "gloo"
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Makes a test of a body that takes `rank` and `size` first; its other arguments are pytest's."""

    def decorate(body: Callable[..., Any]) -> Callable[..., None]:
        @pytest.mark.parametrize("size", sizes, ids=lambda n: f"{n}ranks")
        def test(size: int, **fixtures: Any) -> None:
            run_ranks(size, body, timeout_s=timeout_s, backend=backend, **fixtures)

        functools.update_wrapper(test, body, updated=())
        del test.__wrapped__  # type: ignore[attr-defined]  # pytest reads the signature through it
        extra = list(inspect.signature(body).parameters.values())[2:]
        keyword = inspect.Parameter.KEYWORD_ONLY
        test.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter("size", keyword), *(p.replace(kind=keyword) for p in extra)]
        )
        test.pytestmark = [*getattr(body, "pytestmark", []), *test.pytestmark]  # type: ignore[attr-defined]
        return test

    return decorate


def _enter_on_loopback(backend: str, store: Path, rank: int, size: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size)


def _fork(
    rank: int, size: int, enter: Enter, body: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[int, Connection]:
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    status = 1
    try:
        ours.close()
        os.setpgid(0, 0)
        end_with_parent()
        torch.set_num_threads(1)
        enter(rank, size)
        result = body(rank, size, *args, **kwargs)
        theirs.send((True, result))
        if dist.is_initialized():
            dist.barrier()
        status = 0
    except BaseException:  # whatever a rank raised is the parent's to report
        theirs.send((False, traceback.format_exc()))
    finally:
        theirs.close()
        os._exit(status)


def _collect(children: list[tuple[int, Connection]], timeout_s: float, dying: Collection[int]) -> list[Any]:
    deadline = time.monotonic() + timeout_s
    answers: dict[int, tuple[bool, Any]] = {}
    waiting = {connection: rank for rank, (_, connection) in enumerate(children)}
    grace_s = 2.0  # once one rank has failed the others only wait for it
    while waiting and (left := deadline - time.monotonic()) > 0:
        for connection in multiprocessing.connection.wait(list(waiting), timeout=left):
            rank = waiting.pop(connection)  # type: ignore[arg-type]
            try:
                answers[rank] = connection.recv()  # type: ignore[union-attr]
                if rank in dying and answers[rank][0]:
                    answers[rank] = (False, "the process did not die")
            except EOFError:
                answers[rank] = (True, None) if rank in dying else (False, "the process ended without an answer")
            if not answers[rank][0]:
                deadline = min(deadline, time.monotonic() + grace_s)
    _await_end([pid for pid, _ in children], deadline)
    failures = [f"rank {rank}:\n{answers[rank][1]}" for rank in sorted(answers) if not answers[rank][0]]
    failures += [f"rank {rank}: no answer within the time limit" for rank in sorted(waiting.values())]
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)
    return [answers[rank][1] for rank in range(len(children))]


def _await_end(pids: list[int], deadline: float) -> None:
    """A moment for the ranks that answered to leave."""
    deadline = min(max(deadline, time.monotonic() + 1.0), time.monotonic() + 5.0)
    while time.monotonic() < deadline and not all(map(has_ended, pids)):
        time.sleep(0.002)
