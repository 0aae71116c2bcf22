"""What errors of the backend say: the op, whose numbers the ranks have; and what is said of work nobody waits for."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from shardway._C import ProcessGroupShardway
from tests.support.ranks import ranks, run_ranks

SHORT = timedelta(seconds=0.3)


def started(work: dist.Work | None) -> dist.Work:
    assert work is not None
    return work


def meet(name: str, rank: int, size: int) -> None:
    """A barrier beside the groups that are tried."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{name}/{rank}", "here")
    store.wait([f"{name}/{peer}" for peer in range(size)], timedelta(seconds=20))


def error_of(call: Callable[[], Any], kind: type[Exception] = dist.DistBackendError) -> str:
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value)


OPS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": lambda g: dist.all_reduce(torch.ones(1), group=g),
    "broadcast": lambda g: dist.broadcast(torch.ones(1), 0, group=g),
    "reduce": lambda g: dist.reduce(torch.ones(1), 0, group=g),
    "all_gather": lambda g: dist.all_gather([torch.ones(1), torch.ones(1)], torch.ones(1), group=g),
    "all_gather_into_tensor": lambda g: dist.all_gather_into_tensor(torch.ones(2), torch.ones(1), group=g),
    "gather": lambda g: dist.gather(torch.ones(1), [torch.ones(1), torch.ones(1)], 0, group=g),
    "scatter": lambda g: dist.scatter(torch.ones(1), [torch.ones(1), torch.ones(1)], 0, group=g),
    "reduce_scatter": lambda g: dist.reduce_scatter(torch.ones(1), [torch.ones(1), torch.ones(1)], group=g),
    "reduce_scatter_tensor": lambda g: dist.reduce_scatter_tensor(torch.ones(1), torch.ones(2), group=g),
    "all_to_all": lambda g: dist.all_to_all_single(torch.ones(2), torch.ones(2), group=g),
    "barrier": lambda g: dist.barrier(group=g),
    "send": lambda g: dist.send(torch.ones(1), 1, group=g),
    "recv": lambda g: dist.recv(torch.ones(1), 1, group=g),
    "monitored_barrier": lambda g: g.monitored_barrier(timedelta(seconds=5)),
}


@ranks(2, backend="shardway")
def test_errors_name_the_op(rank: int, size: int) -> None:
    group = dist.new_group()
    meet("made", rank, size)
    if rank == 1:
        group._get_backend(torch.device("cpu")).abort()
    meet("aborted", rank, size)
    if rank == 0:
        for name, call in OPS.items():
            if name == "monitored_barrier":
                continue
            said = error_of(lambda call=call: call(group))  # type: ignore[misc]
            assert said == f"{name}: rank 1 could not be reached: it aborted the group (rank 0)", said
            if name not in ("send", "recv"):
                said = error_of(lambda call=call: started(call_async(call, group)).wait())  # type: ignore[misc]
                assert said.startswith(f"{name}: rank 1 could not be reached"), said
        assert error_of(lambda: OPS["monitored_barrier"](group)).startswith("monitored_barrier: rank 1 could not")
    else:
        said = error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
        assert said == "all_reduce: this rank aborted the group (rank 1)"


def call_async(call: Callable[[Any], Any], group: Any) -> Any:
    """The same call with async_op=True."""
    names = {n: getattr(dist, n) for n in dir(dist) if n in OPS or n == "all_to_all_single"}
    try:
        for name, function in names.items():
            if name not in ("send", "recv", "monitored_barrier"):
                setattr(dist, name, lambda *a, _f=function, **k: _f(*a, **k, async_op=True))
        return call(group)
    finally:
        for name, function in names.items():
            setattr(dist, name, function)


@ranks(4, backend="shardway")
def test_errors_say_whose_numbers_the_ranks_have(rank: int, size: int) -> None:
    group = dist.new_group([1, 3], timeout=SHORT)
    again = dist.new_group([0, 1], timeout=SHORT)
    if rank in (1, 3):
        words = "rank 0 is global rank 1, rank 1 is global rank 3"
        said = error_of(lambda: dist.all_reduce(torch.ones(rank), group=group), ValueError)
        assert said == (
            "all_reduce: ranks disagree on the number of elements: 1 on rank 0, 3 on rank 1"
            f" (numbers of the group: {words})"
        )
        work = started(dist.all_reduce(torch.ones(rank), group=group, async_op=True))
        assert words in error_of(work.wait, ValueError)
        if rank == 1:
            dist.send(torch.ones(2), 3, group=group)
            assert "is not among the 2 ranks (rank 0) (numbers of the group: rank 0 is global rank 1)" in error_of(
                lambda: group._get_backend(torch.device("cpu")).send([torch.ones(1)], 5, 0), ValueError
            )
        else:
            assert "recv: rank 0 sent 2 elements" in (
                said := error_of(lambda: dist.recv(torch.ones(1), 1, group=group), ValueError)
            )
            assert words in said
            assert words in error_of(lambda: dist.recv(torch.ones(1), 1, group=group))
    elif rank == 0:  # the same numbers: nothing more to say
        assert error_of(lambda: dist.barrier(group=again)).endswith("(rank 0)")
    meet("end", rank, size)


def test_a_rank_that_did_not_come_is_named_by_both_numbers() -> None:
    def body(rank: int, size: int) -> None:
        if rank == 1:
            said = error_of(lambda: dist.new_group([1, 2], timeout=SHORT))
            assert said.startswith("shardway: rank 1 did not answer within the group's timeout of 300 ms (rank 0)")
            assert "rank 0 is global rank 1, rank 1 is global rank 2" in said
        meet("end", rank, size)

    run_ranks(3, body, backend="shardway")


@ranks(3, backend="shardway")
def test_a_late_rank_is_not_told_that_it_could_not_reach_itself(rank: int, size: int) -> None:
    group = dist.new_group(timeout=SHORT)
    if rank == 2:
        meet("late", rank, size)
        said = error_of(lambda: dist.all_reduce(torch.ones(1), group=group))
        assert said == (
            "all_reduce: rank 0 could not be reached:"
            " it gave the group up, since this rank did not answer in time (rank 2)"
        )
        assert error_of(lambda: dist.barrier(group=group)) == said.replace("all_reduce", "barrier")
    else:
        assert "rank 2 could not be reached: it did not answer within the timeout of 300 ms" in error_of(
            lambda: dist.all_reduce(torch.ones(1), group=group)
        )
        meet("late", rank, size)
    meet("end", rank, size)


def test_work_that_failed_and_nobody_waited_for_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    def body(rank: int, size: int) -> None:
        named = dist.new_group(group_desc="losses")
        dist.all_reduce(torch.ones(1 + rank), group=named, async_op=True)  # dropped
        waited = started(dist.all_reduce(torch.ones(3 + rank), async_op=True))
        error_of(waited.wait, ValueError)
        asked = started(dist.all_reduce(torch.ones(5 + rank), async_op=True))
        error_of(asked.get_future().wait, ValueError)
        looked = started(dist.all_reduce(torch.ones(7 + rank), async_op=True))
        while not looked.is_completed():
            time.sleep(0.001)
        assert not looked.is_success()
        fine = started(dist.all_reduce(torch.ones(1), async_op=True))
        del fine
        if rank == 0:
            dist.send(torch.ones(2), 1)
        else:
            polled = started(dist.irecv(torch.ones(1), 0))
            while not polled.is_completed():
                time.sleep(0.001)
            del polled
        del waited, asked, looked
        error_of(lambda: dist.all_reduce(torch.ones(9 + rank)), ValueError)  # raised at the call
        dist.barrier(group=named)  # what was dropped has ended
        dist.barrier()

    run_ranks(2, body, backend="shardway")
    said = capfd.readouterr().err
    reports = re.findall(r"shardway: (\S+) of (the group \S+) failed and nobody waited for it: (.*)", said)
    ops = sorted(op for op, _, _ in reports)
    assert ops == ["all_reduce", "all_reduce", "recv"], said
    texts = [text for op, _, text in reports if op == "all_reduce"]
    assert all("the number of elements: 1 on rank 0, 2 on rank 1" in text for text in texts), said


@ranks(2, backend="shardway")
def test_a_mistake_is_raised_where_the_call_ends_and_told_to_all(rank: int, size: int) -> None:
    """Of messages at the call; of collectives at the call, and with async_op=True in wait(), on every rank."""
    meta = torch.ones(2, device="meta")
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    assert isinstance(backend, ProcessGroupShardway)
    for call in (lambda: backend.send([meta], 1 - rank, 0), lambda: backend.recv([meta], 1 - rank, 0)):
        assert "a tensor is on meta" in error_of(call, ValueError)
    work = backend.allreduce([meta if rank == 0 else torch.ones(2)])
    assert "all_reduce: a tensor is on meta, but the group moves CPU tensors only (rank 0)" in error_of(
        work.wait, ValueError
    )


@ranks(2, backend="shardway")
def test_the_timeout_of_a_group_can_be_set(rank: int, size: int) -> None:
    def gather_sizes(group: Any) -> None:
        sw.gather_sizes(torch.ones(1), group=group)

    def barrier(group: Any) -> None:
        dist.barrier(group=group)

    for case, call in enumerate((gather_sizes, barrier)):
        group = dist.new_group()
        backend: Any = group._get_backend(torch.device("cpu"))
        (backend if case else group).set_timeout(SHORT)
        assert backend.options._timeout == SHORT
        if rank == 0:
            with pytest.raises(dist.DistBackendError, match="did not answer within the timeout of 300 ms"):
                call(group)
        meet(f"{case}", rank, size)
    group = dist.new_group()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dist.distributed_c10d._set_pg_timeout(SHORT, group)
    timeout = group._get_backend(torch.device("cpu")).options._timeout  # type: ignore[attr-defined]
    is_forwarded = not any("only supported for either nccl or gloo" in str(one.message) for one in said)
    assert timeout == (SHORT if is_forwarded else timedelta(minutes=30))
