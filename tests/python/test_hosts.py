"""Ranks on several hosts: every op by gloo between them and by shared memory inside each."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.cases import each_op
from tests.support.dense import Draw, assert_same_bits, spread_over
from tests.support.hosts import Host, torchrun_on
from tests.support.mesh_reference import Layouts, same_bits
from tests.support.ranks import run_ranks

# The host of each rank: a host with one rank, ranks that do not follow one another, hosts of different sizes.
PLACES = ([0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 2, 0])


def check_ops(rank: int, size: int, seed: int) -> None:
    draw = Draw(seed)
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.bool):
        for dim in (0, 1):
            for case in each_op(draw, size, (3, 2), dim, dtype):
                x = case.inputs[rank]
                case.check(case.call(x, rank), rank, dtype)
                case.check(case.call(x, rank, **case.known[rank]), rank, f"{dtype}, sizes given")
                case.check(case.call(x, rank, async_op=True).wait(), rank, f"{dtype}, async")


def check_lists(rank: int, size: int, seed: int) -> None:
    """Rank r brings r + 1 rows, and one number more than it."""
    rows = tuple(range(1, size + 1))
    xs = [torch.full((rank + 1, 2), float(rank)), torch.full((rank + 2,), rank)]
    wanted = [
        torch.cat([torch.full((n, 2), n - 1.0) for n in rows]),
        torch.cat([torch.full((n + 1,), n - 1) for n in rows]),
    ]
    gathered, sizes = sw.all_gather_v(xs)
    for found, expected in zip(gathered, wanted, strict=True):
        assert_same_bits(found, expected)
    assert sizes == [rows, tuple(n + 1 for n in rows)]
    mine = sw.reduce_scatter_v(gathered, sizes)
    for found, x in zip(mine, xs, strict=True):
        assert_same_bits(found, x * size)
    assert sw.gather_sizes(xs[0]) == rows


def check_gradient(rank: int, size: int, seed: int) -> None:
    """Rank r weighs what it gathered by r + 1, so every row has the gradient 1 + 2 + ... + size."""
    x = torch.ones(rank + 1, 2, dtype=torch.float64, requires_grad=True)
    gathered, sizes = sw.all_gather_v(x)
    (grad,) = torch.autograd.grad((gathered * (rank + 1)).sum(), x)
    assert sizes == tuple(range(1, size + 1))
    assert torch.equal(grad, torch.full_like(grad, size * (size + 1) / 2))


def check_redistribute(rank: int, size: int, seed: int) -> None:
    layouts = Layouts(seed, size)
    for _ in range(60):
        pair = layouts.pair()
        result = sw.redistribute(sw.MeshTensor(pair.input(rank), pair.before), pair.after)
        wanted = pair.output(rank)
        assert (result.local is None) == (wanted is None), pair
        assert wanted is None or same_bits(result.local, wanted), pair


def check_plan(rank: int, size: int, host_of: list[int]) -> None:
    """Each host's rows cross once to each other host."""
    rows = sw.Layout((size, 1000), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    plan = sw.plan(sw.MeshTensor(torch.ones(1, 1000), rows), [sw.Replicate()])
    hosts = len(set(host_of))
    assert plan.in_two_levels
    assert plan.crossing_bytes == size * 4000 * (hosts - 1)
    assert "in two levels: through memory inside a host" in plan.explain()
    assert not sw.plan(rows, rows.with_([sw.Replicate()]), sw.Topology()).in_two_levels


def check_shared_memory(rank: int, size: int, host_of: list[int]) -> None:
    """It is refused between the hosts, by every rank and with the reason, and works inside each."""
    world = dist.new_group(list(range(size)))
    of_hosts = [dist.new_group([r for r in range(size) if host_of[r] == host]) for host in range(max(host_of) + 1)]
    os.environ["SHARDWAY_TRANSPORT"] = "shm"
    with pytest.raises(
        ValueError,
        match=r"the ranks share no memory: rank \d .*runs in another network namespace of this host than rank 0",
    ):
        sw.all_gather_v(torch.ones(2), group=world)
    own = of_hosts[host_of[rank]]
    gathered, _ = sw.all_gather_v(torch.full((1,), float(rank)), group=own)
    mates = [float(r) for r in range(size) if host_of[r] == host_of[rank]]
    assert_same_bits(gathered, torch.tensor(mates))
    del os.environ["SHARDWAY_TRANSPORT"]


def everything(rank: int, size: int, seed: int, host_of: list[int]) -> None:
    spread_over(host_of)
    for check in (check_ops, check_lists, check_gradient, check_redistribute):
        check(rank, size, seed)
    check_plan(rank, size, host_of)
    check_shared_memory(rank, size, host_of)
    check_ops(rank, size, seed)


@pytest.mark.parametrize("host_of", PLACES, ids=str)
def test_every_op_runs_between_hosts_and_shared_memory_stays_inside_each(
    three_hosts: tuple[Host, ...], seed: int, host_of: list[int]
) -> None:
    run_ranks(len(host_of), everything, seed, host_of, enter=torchrun_on(three_hosts, host_of), timeout_s=240)
