"""Every way to name the group that a call spans."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import shardway as sw
from shardway._dtensor_redistribute import group_of_mesh
from shardway.compat import mirasol, spear_tts
from tests.support.cases import each_op
from tests.support.dense import Draw, assert_same_bits
from tests.support.programs import run_program
from tests.support.ranks import ranks


def check_every_op(draw, group, rank, size):
    """`rank` and `size` are those in the group."""
    for case in each_op(draw, size, (3, 2), 0):
        case.check(case.call(case.inputs[rank], rank, group=group), rank, group)
        case.check(case.call(case.inputs[rank], rank, group=group, **case.known[rank]), rank, group)
    x = torch.zeros(rank + 2, 1)
    assert sw.gather_sizes(x, group=group) == tuple(r + 2 for r in range(size))


@ranks(1, 2, 3, 4)
def test_the_default_group_goes_by_none_object_name_and_mesh(rank, size, seed):
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
    world = dist.group.WORLD
    for group in (None, world, world.group_name, mesh, (mesh, 0), (mesh, "dp"), mesh["dp"], mesh.get_group()):
        check_every_op(Draw(seed), group, rank, size)


@ranks(4)
def test_the_dims_of_a_mesh_are_groups_of_their_own(rank, size, seed):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    row, column = divmod(rank, 2)
    for group in ((mesh, "tp"), (mesh, 1), (mesh, -1), mesh["tp"], mesh.get_group("tp")):
        check_every_op(Draw(seed + row), group, column, 2)
    for group in ((mesh, "dp"), (mesh, 0), mesh["dp"]):
        check_every_op(Draw(seed + column), group, row, 2)


@ranks(3, 4)
def test_a_subgroup_spans_its_own_ranks_in_their_group_order(rank, size, seed):
    members = [0, size - 1]
    subgroup = dist.new_group(members)
    for repeat in range(3):  # calls of the subgroup and of the world interleave
        if rank in members:
            for group in (subgroup, subgroup.group_name):
                check_every_op(Draw(seed + repeat), group, members.index(rank), len(members))
        check_every_op(Draw(seed + repeat), None, rank, size)


@ranks(3)
def test_backward_runs_on_the_group_of_the_call(rank, size, seed):
    members = [0, 2]
    subgroup = dist.new_group(members)
    if rank not in members:
        return
    draw = Draw(seed)
    parts = draw.parts((1, 2), 0, [2, 0, 3])
    weights = [draw.tensor((5, 2)) for _ in range(size)]
    x = parts[rank].clone().requires_grad_()
    gathered, sizes = sw.all_gather_v(x, group=subgroup)
    assert sizes == (2, 3)
    gathered.backward(weights[rank])
    total = weights[0] + weights[2]
    assert_same_bits(x.grad, total[:2] if rank == 0 else total[2:])


@ranks(2, 3)
def test_a_group_of_one_rank_gives_the_input_back(rank, size):
    groups = [dist.new_group([r]) for r in range(size)]
    x = torch.ones(3, 2)
    for group in (groups[rank], groups[rank].group_name):
        gathered, sizes = sw.all_gather_v(x, group=group)
        assert gathered is x and sizes == (3,)
        assert sw.reduce_scatter_v(x, group=group) is x
        assert sw.all_to_all_v(x, [3], group=group)[0] is x
        assert sw.all_reduce(x, group=group) is x
        assert sw.broadcast(x, rank, group=group) is x
        assert sw.gather_v(x, group_dst=0, group=group)[0] is x
        assert sw.scatter_v(x, rank, group=group) is x


@ranks(2)
def test_a_group_made_anew_under_the_same_name_is_not_mistaken_for_the_old_one(rank, size, seed, tmp_path):
    check_every_op(Draw(seed), None, rank, size)
    names = set()
    for turn in range(3):
        dist.barrier()
        dist.destroy_process_group()
        x = torch.ones(2, 1)
        assert sw.all_gather_v(x)[0] is x
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/{turn}", rank=rank, world_size=size)
        check_every_op(Draw(seed + turn), None, rank, size)
        check_every_op(Draw(seed + turn), dist.group.WORLD.group_name, rank, size)
        names.add(dist.group.WORLD.group_name)
    assert len(names) == 1


class AnotherWorld:
    """In place of what holds torch's groups, as its threaded tests put it there."""

    def __init__(self, before, default_pg):
        self._before, self.default_pg = before, default_pg

    def __getattr__(self, name):
        return getattr(self._before, name)


@ranks(3)
def test_the_default_group_is_what_torch_says_at_the_moment(rank, size, monkeypatch):
    members = [0, 2]
    pair = dist.new_group(members)
    if rank not in members:
        return
    mesh = DeviceMesh("cpu", torch.tensor([members]), _init_backend=False)
    rows = distribute_tensor(torch.arange(4.0), DeviceMesh.from_group(pair, "cpu"), [Shard(0)], src_data_rank=None)
    monkeypatch.setattr(distributed_c10d, "_world", AnotherWorld(distributed_c10d._world, pair))
    assert sw.all_reduce(torch.ones(2)).tolist() == [2.0, 2.0]
    assert sw.broadcast(torch.full((1,), float(rank)), 2).tolist() == [2.0]
    assert (
        sw.MeshTensor(None, sw.Layout((2,), torch.float32, sw.Mesh((1,), (2 - rank,)), [sw.Replicate()])).group is pair
    )
    assert sw.redistribute(rows, [Replicate()]).to_local().tolist() == [0.0, 1.0, 2.0, 3.0]
    assert group_of_mesh(mesh) is pair
    monkeypatch.setattr(distributed_c10d, "_world", AnotherWorld(distributed_c10d._world, None))
    x = torch.ones(2)
    assert sw.all_reduce(x) is x
    assert not mirasol.get_is_distributed()
    assert spear_tts.all_gather(x, 0, None)[0] is x
    monkeypatch.undo()
    assert mirasol.get_is_distributed()


DRY_RUN = """
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
import shardway as sw

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
x = torch.ones(2, 3)
gathered, sizes = sw.all_gather_v(x, sizes=[1, 2, 3, 4])
print(tuple(gathered.shape), sizes)
gathered, sizes = sw.all_gather_v(x)
print(tuple(gathered.shape), sizes)
print(*(tuple(y.shape) for y in (sw.all_reduce(x), sw.broadcast(x, 3), sw.scatter_v(x, 1, sizes=[1, 0, 1, 0]))))
try:
    sw.scatter_v(None, 3, 1)
except ValueError as error:
    print(error)
"""


def test_in_a_dry_run_every_rank_is_taken_to_say_what_this_one_says():
    done = run_program([sys.executable, "-c", DRY_RUN], timeout_s=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "(10, 3) (1, 2, 3, 4)",
        "(8, 3) (2, 2, 2, 2)",
        "(2, 3) (2, 3) (0, 3)",
        "scatter_v: x is None, but this rank is src (rank 3)",
    ]
