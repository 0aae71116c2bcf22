"""Process groups without an engine of torch's: written in Python, or torch's own for tests with threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg

import shardway as sw
from tests.support.ranks import ranks


class Wrapping(dist.ProcessGroup):
    """Passes its calls on to another group, as tracing and fault-tolerant groups do."""

    def __init__(self, inner: dist.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner
        self.called: list[str] = []

    def getBackendName(self) -> str:
        return "wrapping"

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        self.called.append("allgather")
        return self.inner.allgather(outputs, inputs)

    def alltoall_base(self, output: Any, x: Any, output_sizes: Any, input_sizes: Any, opts: Any = None) -> Any:
        self.called.append("alltoall_base")
        return self.inner.alltoall_base(output, x, output_sizes, input_sizes)


class Poor(dist.ProcessGroup):
    """Has no method but a name."""

    def getBackendName(self) -> str:
        return "poor"


def assert_works(rank: int, size: int, group: Any) -> None:
    for rows in (1, 5000):
        x = torch.full((rows + rank, 3), float(rank), requires_grad=True)
        gathered, sizes = sw.all_gather_v(x, group=group)
        assert sizes == tuple(rows + r for r in range(size))
        assert torch.equal(gathered, torch.cat([torch.full((rows + r, 3), float(r)) for r in range(size)]))
        gathered.sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, float(size)))
        again, _ = sw.all_gather_v(x.detach(), sizes=sizes, group=group)
        assert torch.equal(again, gathered)
        swapped, received = sw.all_to_all_v(torch.full((rows * size, 2), float(rank)), (rows,) * size, group=group)
        assert received == (rows,) * size
        assert torch.equal(swapped[:, 0], torch.arange(size).repeat_interleave(rows).float())
        part = sw.reduce_scatter_v(torch.ones(rows * size), group=group)
        assert torch.equal(part, torch.full((rows,), float(size)))
        total = sw.all_reduce(torch.full((rows,), rank + 1.0), group=group)
        assert torch.equal(total, torch.full((rows,), size * (size + 1) / 2))
        late = sw.all_reduce(torch.full((rows,), rank + 1.0), group=group, async_op=True)
        assert torch.equal(late.wait(), total)
        sent = sw.broadcast(torch.full((rows,), float(rank)), src=size - 1, group=group)
        assert torch.equal(sent, torch.full((rows,), size - 1.0))
    layout = sw.Layout((2 * size, 2), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    moved = sw.redistribute(sw.MeshTensor(torch.full((2, 2), float(rank)), layout, group=group), [sw.Shard(1)])
    assert moved.local.shape[0] == 2 * size
    if size == 1:
        return
    with pytest.raises(ValueError, match="ranks called different collectives"):
        sw.all_reduce(torch.ones(2), group=group) if rank == 0 else sw.all_gather_v(torch.ones(2), group=group)
    assert sw.gather_sizes(torch.ones(rank + 1), group=group) == tuple(range(1, size + 1))


@ranks(1, 2, 3)
def test_a_group_written_in_python_works_through_its_own_methods(rank, size):
    world = dist.group.WORLD
    dist.Backend.register_backend("wrapping", lambda *_: Wrapping(world), devices=["cpu"])
    group = dist.new_group(backend="wrapping")
    assert_works(rank, size, group)
    assert size == 1 or {"allgather", "alltoall_base"} <= set(group.called)


@ranks(2, timeout_s=20)
def test_a_group_without_the_methods_is_refused(rank, size):
    group = Poor(rank, size)
    for call in (
        lambda: sw.all_gather_v(torch.ones(2), group=group),
        lambda: sw.all_gather_v(torch.ones(2), sizes=(2, 2), group=group),
        lambda: sw.all_reduce(torch.ones(20000), group=group),
        lambda: sw.all_reduce(torch.ones(2), group=group, async_op=True).wait(),
    ):
        with pytest.raises(ValueError, match=r"poor.*(allgather|alltoall_base)"):
            call()


def run_threads(size: int, body: Any) -> None:
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    multi_threaded_pg._install_threaded_pg()
    failures: list[str] = []
    store = dist.HashStore()

    def run(rank: int) -> None:
        try:
            dist.init_process_group("threaded", store=store, rank=rank, world_size=size)
            body(rank, size)
        except BaseException as error:
            failures.append(f"rank {rank}: {error!r}")
            multi_threaded_pg.ProcessLocalGroup.exception_handle(error)
        finally:
            dist.destroy_process_group()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    hung = [thread.name for thread in threads if thread.is_alive()]
    multi_threaded_pg._uninstall_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
    assert not failures, failures
    assert not hung, hung


def threaded_body(rank: int, size: int) -> None:
    assert_works(rank, size, dist.group.WORLD)


@ranks(1)
def test_threaded_groups_of_torch_work(rank, size):
    dist.destroy_process_group()
    run_threads(3, threaded_body)
