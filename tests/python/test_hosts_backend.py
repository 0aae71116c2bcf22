"""The backend "shardway" on several hosts: torch.distributed's calls, and shardway's own on the same group."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from tests.support.dense import Draw, assert_same_bits, reduced, spread_over
from tests.support.hosts import Host, torchrun_on
from tests.support.ranks import run_ranks

PLACES = ([0, 0, 1], [0, 1, 0, 1], [0, 1, 2])
OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "min": dist.ReduceOp.MIN, "product": dist.ReduceOp.PRODUCT}
LENGTHS = (0, 3, 1000, 2048, 70001)  # in a block up to 8 KiB, in shares beyond


def inputs_of(draw: Draw, size: int, length: int, dtype: torch.dtype) -> list[Tensor]:
    return [draw.tensor((length,), dtype) for _ in range(size)]


def check_reductions(rank: int, size: int, draw: Draw) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for length in LENGTHS:
            for name, op in OPS.items():
                if name == "avg" and not dtype.is_floating_point:
                    continue
                addends = inputs_of(draw, size, length, dtype)
                wanted = reduced(addends, name)
                found = addends[rank].clone()
                dist.all_reduce(found, op)
                assert_same_bits(found, wanted, f"all_reduce {name} {dtype} {length}")
                found = addends[rank].clone()
                dist.reduce(found, size - 1, op)
                assert_same_bits(found, wanted if rank == size - 1 else addends[rank], f"reduce {name}")
        wholes = inputs_of(draw, size, size * 1000, dtype)
        own = torch.empty(1000, dtype=dtype)
        dist.reduce_scatter_tensor(own, wholes[rank])
        assert_same_bits(own, reduced(wholes).chunk(size)[rank], "reduce_scatter_tensor")


def check_moves(rank: int, size: int, draw: Draw) -> None:
    for length in LENGTHS:
        parts = inputs_of(draw, size, length, torch.float32)
        whole = torch.cat(parts)
        out = torch.empty_like(whole)
        dist.all_gather_into_tensor(out, parts[rank])
        assert_same_bits(out, whole, "all_gather_into_tensor")
        listed = [torch.empty_like(part) for part in parts]
        dist.all_gather(listed, parts[rank])
        assert_same_bits(torch.cat(listed), whole, "all_gather")
        found = parts[rank].clone()
        dist.broadcast(found, size - 1)
        assert_same_bits(found, parts[-1], "broadcast")
    sends = [[draw.integer(0, 900) for _ in range(size)] for _ in range(size)]
    xs = [draw.tensor((sum(of_rank), 3), torch.float64) for of_rank in sends]
    received = [of_rank[rank] for of_rank in sends]
    out = torch.empty(sum(received), 3, dtype=torch.float64)
    dist.all_to_all_single(out, xs[rank], received, sends[rank])
    assert_same_bits(out, torch.cat([x.split(of)[rank] for x, of in zip(xs, sends, strict=True)]), "all_to_all")


def check_what_is_gloos(rank: int, size: int, draw: Draw) -> None:
    value = torch.tensor([1 << rank])
    dist.all_reduce(value, dist.ReduceOp.BOR)
    assert value.item() == (1 << size) - 1
    if rank == 0:
        dist.send(torch.arange(4), size - 1)
    elif rank == size - 1:
        got = torch.empty(4, dtype=torch.int64)
        dist.recv(got, 0)
        assert got.tolist() == [0, 1, 2, 3]
    dist.barrier()


def check_async_and_own(rank: int, size: int, draw: Draw) -> None:
    addends = inputs_of(draw, size, 4001, torch.float32)
    first, second = addends[rank].clone(), addends[rank].clone()
    works = [dist.all_reduce(first, async_op=True), dist.all_reduce(second, dist.ReduceOp.MAX, async_op=True)]
    gathered, sizes = sw.all_gather_v(torch.full((rank + 1,), float(rank)))
    for work in works:
        work.wait()
    assert_same_bits(first, reduced(addends), "async")
    assert_same_bits(second, reduced(addends, "max"), "async max")
    assert sizes == tuple(range(1, size + 1))
    assert_same_bits(gathered, torch.cat([torch.full((r + 1,), float(r)) for r in range(size)]))


def check_futures(rank: int, size: int, draw: Draw) -> None:
    """A callback may make a call and wait for it."""
    first, second = torch.ones(3), torch.ones(3)

    def chained(_: object) -> Tensor:
        return dist.all_reduce(second, async_op=True).get_future().wait()

    dist.all_reduce(first, async_op=True).get_future().then(chained).wait()
    assert torch.equal(first, torch.full((3,), float(size)))
    assert torch.equal(second, first)


def check_bad_input(rank: int, size: int, draw: Draw) -> None:
    with pytest.raises(ValueError, match=rf"all_gather: a list has 1 tensors for {size} ranks \(rank {rank}\)"):
        dist.all_gather([torch.ones(2)], torch.ones(2))
    with pytest.raises(ValueError, match=f"has {size + 1} rows, which {size} ranks cannot share equally"):
        dist.all_to_all_single(torch.empty(size + 1), torch.ones(size + 1))
    with pytest.raises(
        ValueError, match=rf"the output has 3 elements, but {size} ranks with inputs of 2 give {2 * size}"
    ):
        dist.all_gather_into_tensor(torch.empty(3), torch.ones(2))
    with pytest.raises(ValueError, match=rf"broadcast: the root {size} is not among the {size} ranks"):
        dist.group.WORLD.broadcast(torch.ones(2), size).wait()
    with pytest.raises(ValueError, match="the output has 2 rows, but its split sizes add up to 1"):
        dist.all_to_all_single(torch.empty(2), torch.ones(size), [1] + [0] * (size - 1), [1] * size)
    with pytest.raises(ValueError, match=rf"all_gather: a list has 1 tensors for {size} ranks \(rank {rank}\)"):
        dist.all_gather([torch.ones(2)], torch.ones(2), async_op=True)  # before it is posted
    many = [torch.full((2,), float(rank)), torch.ones(2, dtype=torch.int64)]
    average = dist.AllreduceCoalescedOptions()
    average.reduceOp = dist.ReduceOp.AVG
    with pytest.raises(ValueError, match=rf"all_reduce: op avg of int64 is not defined.*\(rank {rank}\)"):
        dist.group.WORLD.allreduce_coalesced(many, average)
    assert many[0].tolist() == [rank, rank]  # nothing has moved
    out = torch.empty(size, 2).t()  # and what is not contiguous is fine
    dist.all_gather_into_tensor(out, torch.full((2,), float(rank)))
    assert_same_bits(out.contiguous().view(-1), torch.arange(float(size)).repeat_interleave(2))


def everything(rank: int, size: int, seed: int, host_of: list[int]) -> None:
    spread_over(host_of)
    draw = Draw(seed)
    assert dist.get_backend() == "shardway"
    for check in (
        check_reductions,
        check_moves,
        check_what_is_gloos,
        check_async_and_own,
        check_futures,
        check_bad_input,
    ):
        check(rank, size, draw)


@pytest.mark.parametrize("host_of", PLACES, ids=str)
def test_torch_distributed_on_several_hosts(three_hosts: tuple[Host, ...], seed: int, host_of: list[int]) -> None:
    enter = torchrun_on(three_hosts, host_of, backend="shardway")
    run_ranks(len(host_of), everything, seed, host_of, enter=enter, timeout_s=240)


def made_and_destroyed(rank: int, size: int) -> None:
    for _ in range(3):
        part = dist.new_group(list(range(size)), backend="shardway")
        value = torch.ones(2)
        dist.all_reduce(value, group=part)
        assert value.tolist() == [size, size]
        dist.destroy_process_group(part)


def test_groups_come_and_go(three_hosts: tuple[Host, ...]) -> None:
    host_of = [0, 0, 1]
    run_ranks(3, made_and_destroyed, enter=torchrun_on(three_hosts, host_of, backend="shardway"), timeout_s=120)
