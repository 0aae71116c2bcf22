"""DTensor's collective utilities, point by point: one test per line 12 to 18 of the mission, through the drop-in
module, on torch's DeviceMesh and on ours.

Each result is compared with a reference in one process, and with torch's own functions where those can do it.
"""

from __future__ import annotations

import inspect
import math
import os

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, _collective_utils

import shardway as sw
from shardway.compat import collective_utils as ours
from tests.support import dense
from tests.support.dense import Draw
from tests.support.mesh_reference import cut
from tests.support.ranks import ranks
from tests.support.specs import silent_mesh, spec
from tests.support.versions import needs_torch

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


def meshes_of(size):
    """Meshes of the world: as (mesh of torch or ours, mesh dim, the ranks along it that have this one)."""
    rank = dist.get_rank()
    line = list(range(size))
    yield init_device_mesh("cpu", (size,)), 0, line
    yield sw.Mesh((size,)), -1, line
    yield sw.Mesh((size,), ranks=line[::-1], names=("tp",)), "tp", line[::-1]
    if size == 4:
        square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        for dim, row in ((0, [rank % 2, rank % 2 + 2]), (1, [rank // 2 * 2, rank // 2 * 2 + 1])):
            yield square, dim, row
            yield sw.Mesh((2, 2)), dim, row


def parts_along(whole, dim, count):
    """As torch.chunk cuts, empty where it gives fewer."""
    indices = [cut(list(range(whole.shape[dim])), count, index) for index in range(count)]
    return [whole.index_select(dim, torch.tensor(part, dtype=torch.long)) for part in indices]


def uneven(count):
    return [3, 0, 2, 4][:count]


@TRANSPORTS
@ranks(2, 3, 4)
def test_line_12_shard_dim_alltoall_exchanges_parts_of_any_size(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Draw(seed)
    for mesh, mesh_dim, row in meshes_of(size):
        place = row.index(rank)
        draws = Draw(seed + row[0])  # every row has a tensor of its own
        for gather_dim, shard_dim in ((0, 1), (1, 0), (0, 2), (-1, 0), (1, -1), (0, 0)):
            for sizes in ([2] * len(row), uneven(len(row)), [0] * len(row), [50] * len(row)):
                for dtype in (torch.float32, torch.bfloat16, torch.int64):
                    parts = draws.parts((3, 2, 5), gather_dim, sizes, dtype)
                    kept = parts[place].clone()
                    call = (parts[place], gather_dim, shard_dim, mesh, mesh_dim)
                    what = f"{mesh} dim {mesh_dim}: {gather_dim} to {shard_dim}, {sizes}"
                    wanted = parts_along(torch.cat(parts, gather_dim), shard_dim, len(row))[place]
                    dense.assert_same_bits(ours.shard_dim_alltoall(*call), wanted, what)
                    handle = ours.shard_dim_alltoall(*call, async_op=True)
                    dense.assert_same_bits(handle.wait(), wanted, f"{what}, async")
                    dense.assert_same_bits(parts[place], kept, "the input")
    strided = draw.tensor((6, 4 * size)).t()
    result = ours.shard_dim_alltoall(strided, 1, 0, sw.Mesh((size,)), 0)
    dense.assert_same_bits(result, torch.cat([strided] * size, 1)[4 * rank : 4 * rank + 4])


@needs_torch(2, 13, "its shard_dim_alltoall fails where chunks are fewer")
@TRANSPORTS
@ranks(2, 4)
def test_line_12_even_parts_come_as_torch_gives_them(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    x = Draw(seed).parts((4, 3, 4), 0, [4] * size)[rank]
    mesh = init_device_mesh("cpu", (size,))
    for gather_dim, shard_dim in ((0, 2), (1, 0), (2, 1)):
        theirs = _collective_utils.shard_dim_alltoall(x, gather_dim, shard_dim, mesh, 0)
        dense.assert_same_bits(ours.shard_dim_alltoall(x, gather_dim, shard_dim, mesh, 0), theirs)


@ranks(2, 3)
def test_line_12_it_sends_what_moves_and_no_more(rank, size):
    """No gather: the messages of gloo hold the pieces alone."""
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    rows = 60
    x = torch.full((rows, 512 * size), float(rank))  # more than fits beside the header
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        result = ours.shard_dim_alltoall(x, 0, 1, sw.Mesh((size,)), 0)
    assert result.shape == (rows * size, 512)
    sent = [math.prod(e.input_shapes[0]) for e in profile.events() if e.name == "gloo:send" and e.input_shapes]
    piece = rows * 512 * 4
    assert [length for length in sent if length >= piece] == [piece] * (size - 1), sent


@ranks(2, 3)
def test_line_12_a_meta_tensor_communicates_nothing(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    if rank == 0:  # the others do not call
        for shape, gather_dim, shard_dim in (((2, 6), 0, 1), ((4, 3, 1), -2, 0), ((5, 5), 1, 1), ((1, 1), 0, 1)):
            x = torch.empty(shape, device="meta", dtype=torch.bfloat16)
            real = parts_along(torch.cat([torch.zeros(shape)] * size, gather_dim), shard_dim, size)[0]
            for on in (mesh, sw.Mesh((size,))):
                found = ours.shard_dim_alltoall(x, gather_dim, shard_dim, on, 0)
                assert found.is_meta and found.shape == real.shape and found.dtype == torch.bfloat16
    dist.barrier()


@TRANSPORTS
@ranks(2, 3)
def test_line_12_the_gradient_goes_the_other_way(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Draw(seed)
    sizes = uneven(size)
    for gather_dim, shard_dim in ((0, 1), (1, 0), (0, 0)):
        parts = draw.parts((3, 5), gather_dim, sizes)
        whole = draw.tensor(torch.cat(parts, gather_dim).shape)
        x = parts[rank].clone().requires_grad_()
        y = ours.shard_dim_alltoall(x, gather_dim, shard_dim, sw.Mesh((size,)), 0)
        y.backward(parts_along(whole, shard_dim, size)[rank])
        dense.assert_same_bits(x.grad, dense.block(whole, sizes, rank, gather_dim))


@TRANSPORTS
@ranks(2, 3, 4)
def test_line_13_mesh_scatter_gives_every_rank_its_tensor_of_the_first(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    for mesh, mesh_dim, row in meshes_of(size):
        draw = Draw(seed + row[0])
        for sizes in ([2] * len(row), uneven(len(row)), [200] * len(row)):
            for source in range(len(row)):
                parts = draw.parts((1, 300), 0, sizes, torch.float32)
                mine = [part.clone() for part in parts] if row[source] == rank else None
                wanted = parts[row.index(rank)]
                for output in (torch.empty_like(wanted), torch.empty((*wanted.shape, 2))[..., 1]):
                    assert ours.mesh_scatter(output, mine, mesh, mesh_dim, group_src=source) is None
                    dense.assert_same_bits(output.contiguous(), wanted, f"{mesh} dim {mesh_dim}, {sizes}")
                if mine is not None:
                    assert all(torch.equal(a, b) for a, b in zip(mine, parts, strict=True))
        output = torch.zeros(3)
        work = ours.mesh_scatter(output, [torch.full((3,), float(i)) for i in range(len(row))], mesh, mesh_dim, True)
        assert isinstance(work, dist.Work)
        assert work.wait() and work.is_completed()
        assert output.tolist() == [float(row.index(rank))] * 3
        assert torch.equal(work.get_future().wait()[0], output)


@TRANSPORTS
@ranks(2, 3, 4)
def test_line_13_mesh_broadcast_gives_every_rank_the_tensor_of_the_first(rank, size, seed, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    for mesh, mesh_dim, row in meshes_of(size):
        draw = Draw(seed + row[0])
        for shape in ((), (3,), (0, 2), (300, 200)):
            for source in range(len(row)):
                wanted = draw.tensor(shape, torch.float32)
                mine = wanted.clone() if row[source] == rank else torch.full(shape, -1.0)
                for x in (mine, torch.stack([mine, mine], -1)[..., 1]):
                    assert ours.mesh_broadcast(x, mesh, mesh_dim, group_src=source) is None
                    dense.assert_same_bits(x.contiguous(), wanted, f"{mesh} dim {mesh_dim}, {shape}")
        x = torch.full((2,), float(rank))
        work = ours.mesh_broadcast(x, mesh, mesh_dim, async_op=True)
        assert isinstance(work, dist.Work) and work.wait()
        assert x.tolist() == [float(row[0])] * 2


@ranks(2)
def test_line_13_meta_tensors_communicate_nothing(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    if rank == 0:
        x = torch.empty(3, device="meta")
        for on in (mesh, sw.Mesh((size,))):
            for async_op in (False, True):
                assert ours.mesh_scatter(x, [x, x], on, 0, async_op) is None
                assert ours.mesh_broadcast(x, on, 0, async_op) is None
    dist.barrier()


@TRANSPORTS
@ranks(3, 4)
def test_line_12_and_13_ranks_outside_a_mesh_of_ours_have_nothing(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh = sw.Mesh((2,), ranks=(2, 0))
    inside = rank in (0, 2)
    x = torch.full((2, 2), float(rank)) if inside else None
    y = ours.shard_dim_alltoall(x, 0, 1, mesh, 0)
    assert y.tolist() == [[2.0], [2.0], [0.0], [0.0]] if inside else y is None
    assert ours.mesh_broadcast(x, mesh) is None
    assert x is None or x.eq(2).all()
    some = dist.new_group([0, 2])
    if inside:  # a group of the mesh's ranks alone: nobody else calls
        assert ours.shard_dim_alltoall(torch.ones(1, 2), 0, 1, mesh, 0, group=some).shape == (2, 1)


GOOD_CALLS = {
    "shard_dim_alltoall": lambda x, m: ours.shard_dim_alltoall(x, 0, 1, m, 0),
    "mesh_scatter": lambda x, m: ours.mesh_scatter(x, [x] * m.size(), m),
    "mesh_broadcast": lambda x, m: ours.mesh_broadcast(x, m),
}
BAD_CALLS = [
    ("shard_dim_alltoall", "gather_dim=2 is out of range", lambda x, m: ours.shard_dim_alltoall(x, 2, 0, m, 0)),
    ("shard_dim_alltoall", "shard_dim=-3 is out of range", lambda x, m: ours.shard_dim_alltoall(x, 0, -3, m, 0)),
    ("shard_dim_alltoall", "mesh_dim=1 is out of range", lambda x, m: ours.shard_dim_alltoall(x, 0, 1, m, 1)),
    ("shard_dim_alltoall", "input is a list, not a tensor", lambda x, m: ours.shard_dim_alltoall([1], 0, 1, m, 0)),
    ("mesh_broadcast", "group_src=9 is out of range", lambda x, m: ours.mesh_broadcast(x, m, group_src=9)),
    ("mesh_broadcast", "tensor overlaps itself", lambda x, m: ours.mesh_broadcast(x[:1].expand(2, -1), m)),
    ("mesh_scatter", "output is not a tensor", lambda x, m: ours.mesh_scatter(None, [x, x], m)),
]


@TRANSPORTS
@ranks(2, 3)
def test_line_12_and_13_one_ranks_mistake_is_an_error_on_all(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh, x = sw.Mesh((size,)), torch.ones(2, 4)
    for name, words, bad in BAD_CALLS:
        with pytest.raises(ValueError, match=rf"{name}: {words}.* \(rank 1\)"):
            (bad if rank == 1 else GOOD_CALLS[name])(x, mesh)
        GOOD_CALLS[name](x, mesh)


@TRANSPORTS
@ranks(2, 3)
def test_line_12_and_13_tensors_that_do_not_fit_together_are_an_error_on_all(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    mesh, x = sw.Mesh((size,)), torch.ones(2, 4)
    with pytest.raises(ValueError, match=rf"scatter_list has 1 tensors for {size} ranks \(rank 0\)"):
        ours.mesh_scatter(x, [x], mesh)
    with pytest.raises(ValueError, match=r"scatter_list\[0\] is int64 on cpu, but output is float32 on cpu \(rank 0\)"):
        ours.mesh_scatter(x, [x.long()] * size, mesh)
    with pytest.raises(
        ValueError, match=r"output has shape \[2, 4\] on rank 1, but scatter_list\[1\] on rank 0 has ano"
    ):
        ours.mesh_scatter(x, [x] + [x.t()] * (size - 1), mesh)
    with pytest.raises(ValueError, match=r"ranks disagree on dtype: float32 on rank 0, float64 on rank 1"):
        ours.mesh_broadcast(x.double() if rank == 1 else x, mesh)
    with pytest.raises(ValueError, match=r"ranks disagree on shape: \(\*, 4\) on rank 0, \(\*, 5\) on rank 1"):
        ours.shard_dim_alltoall(torch.ones(2, 5) if rank == 1 else x, 0, 1, mesh, 0)
    with pytest.raises(ValueError, match=r"ranks disagree on gather_dim: 0 on rank 0, 1 on rank 1"):
        ours.shard_dim_alltoall(x, 1 if rank == 1 else 0, 1, mesh, 0)
    work = ours.mesh_broadcast(x.double() if rank == 1 else x, mesh, async_op=True)
    with pytest.raises(ValueError, match="ranks disagree on dtype"):
        work.wait()
    assert GOOD_CALLS["shard_dim_alltoall"](x, mesh).shape[0] == 2 * size


def test_line_13_without_a_group_a_mesh_of_one_rank_works():
    mesh = sw.Mesh((1,))
    x = torch.arange(4.0).view(2, 2)
    assert ours.shard_dim_alltoall(x, 0, 1, mesh, 0) is x
    assert ours.mesh_broadcast(x, mesh) is None
    output = torch.zeros(2, 2)
    assert ours.mesh_scatter(output, [x], mesh, 0, True).wait()
    assert torch.equal(output, x)
    with pytest.raises(ValueError, match="mesh_scatter: output has shape"):
        ours.mesh_scatter(torch.zeros(3), [x], mesh)
    with pytest.raises(ValueError, match="mesh_broadcast: the mesh 2 has rank 1, but the group has the ranks 0"):
        ours.mesh_broadcast(x, sw.Mesh((2,)))


def test_line_14_padding_is_torchs(seed):
    draw = Draw(seed)
    x = draw.tensor((3, 4, 2)).requires_grad_()
    for dim in range(3):
        for size in range(4):
            padded = ours.pad_tensor(x, dim, size)
            dense.assert_same_bits(padded, _collective_utils.pad_tensor(x, dim, size))
            dense.assert_same_bits(ours.unpad_tensor(padded, dim, size), x)
            dense.assert_same_bits(ours.pad_tensor(x, dim - 3, size), padded)
            theirs = _collective_utils.unpad_tensor(x, dim, min(size, 2))
            dense.assert_same_bits(ours.unpad_tensor(x, dim, min(size, 2)), theirs)
    assert ours.pad_tensor(x, 1, 0) is x and ours.unpad_tensor(x, 1, 0) is x
    (grad,) = torch.autograd.grad(ours.unpad_tensor(ours.pad_tensor(x, 1, 5), 1, 5).sum(), x)
    assert torch.equal(grad, torch.ones_like(x))
    for call, words in (
        (lambda: ours.pad_tensor(x, 3, 1), "pad_tensor: pad_dim=3 is out of range for a 3-d tensor"),
        (lambda: ours.pad_tensor(x, 0, -1), "pad_tensor: pad_size=-1 is negative"),
        (lambda: ours.unpad_tensor(x, 2, 3), "unpad_tensor: pad_size=3, but the tensor has 2 along dim 2"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_line_14_a_list_of_shards_is_filled_up_with_empty_ones():
    shards = list(torch.arange(6, dtype=torch.int16).view(3, 2).split(2))
    first, second = shards
    for dim, shape in ((0, (0, 2)), (1, (2, 0)), (-1, (2, 0))):
        mine, theirs = [first, second], [first, second]
        assert ours.fill_empty_tensor_to_shards(mine, dim, 3) is mine
        _collective_utils.fill_empty_tensor_to_shards(theirs, dim, 3)
        assert [tuple(t.shape) for t in mine] == [tuple(t.shape) for t in theirs] == [(2, 2), (1, 2), *[shape] * 3]
        assert mine[0] is first and mine[1] is second and mine[2].dtype == torch.int16
    assert ours.fill_empty_tensor_to_shards(shards, 0, 0) is shards and len(shards) == 2
    with pytest.raises(ValueError, match="fill_empty_tensor_to_shards: shards is empty"):
        ours.fill_empty_tensor_to_shards([], 0, 1)


def test_line_12_to_14_the_names_and_arguments_are_those_of_torch():
    for name in ("shard_dim_alltoall", "mesh_scatter", "mesh_broadcast", "pad_tensor", "unpad_tensor"):
        theirs = inspect.signature(getattr(_collective_utils, name)).parameters
        mine = inspect.signature(getattr(ours, name)).parameters
        kept = [(p.name, p.kind, p.default) for p in mine.values() if p.name in theirs]
        assert kept == [(p.name, p.kind, p.default) for p in theirs.values()]
        extra = [p for p in mine.values() if p.name not in theirs]
        assert all(p.kind is inspect.Parameter.KEYWORD_ONLY and p.default in (None, False) for p in extra)


def test_line_15_spec_to_bytes():
    for shape, dtype in (((10, 10), torch.float32), ((0, 4), torch.int64), ((), torch.bfloat16)):
        theirs = spec(silent_mesh((2,)), [Shard(0) if shape else Replicate()], shape, dtype)
        assert ours.spec_to_bytes(theirs) == math.prod(shape) * dtype.itemsize
        assert ours.spec_to_bytes(sw.Layout.from_spec(theirs)) == math.prod(shape) * dtype.itemsize


def test_line_16_mesh_topology_from_the_innermost_dim_outward():
    mesh = sw.Mesh((2, 4, 4))
    topo = ours.MeshTopoInfo.build_from_mesh(mesh, sw.Topology.assumed(8))
    assert topo.mesh_dim_devices == [2, 4, 4]
    assert topo.mesh_dim_bandwidth == pytest.approx([87.7 * 0.22, 87.7 * 0.22, 87.7], abs=1e-12)
    assert topo.mesh_dim_latency == [2.7, 2.7, 0.6]
    assert ours.MeshTopoInfo.build_from_mesh(mesh, sw.Topology.assumed(8)) is topo
    given = ours.MeshTopoInfo.build_from_mesh(mesh, sw.Topology(within_host=(1.0, 10.0)))
    assert given.mesh_dim_latency == [1.0] * 3 and given.mesh_dim_bandwidth == [10.0] * 3


def test_line_17_collectives_cost_hops_and_bytes():
    topo = ours.MeshTopoInfo.build_from_mesh(sw.Mesh((4,)), sw.Topology.assumed(8))
    gib = 3.0
    gather = 6.6 + 3 * 0.6 + gib * 3 / 4 / 87.7 * 1e6
    assert ours.allgather_cost(gib, topo, 0) == pytest.approx(gather, abs=1e-9)
    assert ours.reduce_scatter_cost(gib, topo, 0) == pytest.approx(gather, abs=1e-9)
    for rules, hops in (("torch_2_13", 6), ("seed_004", 7)):
        wanted = 6.6 + hops * 0.6 + gib * hops / 4 / 87.7 * 1e6
        assert topo._figures().allreduce_cost(gib, 0, rules) == pytest.approx(wanted, abs=1e-9)
    assert ours.allreduce_cost(gib, topo, 0) == topo._figures().allreduce_cost(gib, 0, "torch_2_13")


def test_line_18_redistribute_cost_by_the_seeds_steps_and_by_torchs():
    mesh = silent_mesh((4,))
    of = {
        name: spec(mesh, [p], (10, 10))
        for name, p in (("S0", Shard(0)), ("S1", Shard(1)), ("R", Replicate()), ("P", Partial()))
    }
    topology = sw.Topology.assumed(8)
    figures = {("S0", "R"): 8.403185824, ("P", "S0"): 8.403185824, ("S0", "S1"): 9.400796456}
    for rules, all_reduce in (("seed_004", 10.807433589), ("torch_2_13", 10.206371648)):
        for (a, b), us in {**figures, ("P", "R"): all_reduce, ("R", "S0"): 0.0, ("S0", "P"): math.inf}.items():
            assert sw.redistribute_cost(of[a], of[b], topology, rules=rules) == pytest.approx(us, abs=1e-9)
    for a in of:
        for b in of:
            theirs = _collective_utils.redistribute_cost(of[a], of[b])
            assert ours.redistribute_cost(of[a], of[b]) == pytest.approx(theirs, abs=1e-9), (a, b)
    elsewhere = spec(
        DeviceMesh("cpu", torch.tensor([3, 2, 1, 0]), _init_backend=False, _rank=0), [Replicate()], (10, 10)
    )
    assert ours.redistribute_cost(of["S0"], elsewhere) == math.inf  # theirs
    assert 0 < sw.redistribute_cost(of["S0"], elsewhere) < math.inf  # ours can
