"""The prices of torch 2.13 and of the seed, by name: equal to their sources' own figures."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from torch.distributed.device_mesh import _mesh_resources
from torch.distributed.tensor import Partial, Replicate, Shard, _collective_utils
from torch.distributed.tensor._redistribute import _gen_transform_infos_non_cached, use_min_cost_redistribution_plan
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

import shardway as sw
from shardway import _C
from shardway.compat import collective_utils as ours
from tests.support.specs import all_placements, random_order, random_placements, silent_mesh, spec
from tests.support.versions import until_torch

MESHES = [(4,), (2, 2), (2, 2, 2)]
SHAPES = [(16, 8), (13, 2, 13), (10, 10), (1, 1, 1), (4096, 4096), (0, 4)]


def near(value):
    return pytest.approx(value, rel=1e-9, abs=1e-9)


def random_pair(draw, *, other_orders, partial_target=True):
    mesh = silent_mesh(draw.choice(MESHES))
    shape, dtype = draw.choice(SHAPES), draw.choice([torch.float32, torch.bfloat16, torch.int64])
    found = []
    for partial in (True, partial_target):
        placements = random_placements(draw, mesh.ndim, len(shape), partial=partial)
        order = random_order(draw, placements) if other_orders else None
        found.append(spec(mesh, placements, shape, dtype, order))
    return found


@pytest.fixture(params=[1, 2, 4, 8], ids=lambda n: f"{n} a host")
def devices_per_host(request, monkeypatch):
    monkeypatch.setattr(_mesh_resources, "num_devices_per_host", lambda device_type: request.param)
    _collective_utils.MeshTopoInfo.build_from_mesh.cache_clear()
    ours._build.cache_clear()
    yield request.param
    _collective_utils.MeshTopoInfo.build_from_mesh.cache_clear()
    ours._build.cache_clear()


def test_redistribute_cost_is_torchs(seed, devices_per_host):
    draw = random.Random(seed)
    for _ in range(150):
        a, b = random_pair(draw, other_orders=False)
        assert ours.redistribute_cost(a, b) == near(_collective_utils.redistribute_cost(a, b)), (a, b)


@until_torch(2, 13, "prices are those of 2.13; it plans other steps where shards lie in another order")
def test_redistribute_cost_is_torchs_in_every_order_of_shards(seed, devices_per_host):
    draw = random.Random(seed)
    for _ in range(40):
        a, b = random_pair(draw, other_orders=True)
        assert ours.redistribute_cost(a, b) == near(_collective_utils.redistribute_cost(a, b)), (a, b)


@pytest.mark.parametrize("mesh_shape", [(4,), (2, 2)], ids=str)
def test_redistribute_cost_is_torchs_for_every_pair(mesh_shape):
    mesh = silent_mesh(mesh_shape)
    specs = [spec(mesh, placements, (13, 2)) for placements in all_placements(len(mesh_shape), 2)]
    for a in specs:
        for b in specs:
            assert ours.redistribute_cost(a, b) == near(_collective_utils.redistribute_cost(a, b)), (a, b)


def test_a_single_step_costs_what_torch_says(seed, devices_per_host):
    draw = random.Random(seed)
    for _ in range(200):
        a, _ = random_pair(draw, other_orders=False)
        placements = list(a.placements)
        placements[draw.randrange(len(placements))] = random_placements(draw, 1, len(a.shape))[0]
        b = spec(a.mesh, placements, a.shape, a.tensor_meta.dtype)
        topo = ours.MeshTopoInfo.build_from_mesh(a.mesh)._figures()
        found = topo.one_step_cost(sw.Layout.from_spec(a), sw.Layout.from_spec(b))
        assert found == near(_collective_utils.one_step_redistribute_cost(a, b)), (a, b)


def torch_plan_cost(a, b):
    """What torch's min-cost planner says its own plan costs: each step priced by itself."""
    layouts = [a]
    for step in _gen_transform_infos_non_cached(a, b, use_graph_based_transform=True):
        placements = list(layouts[-1].placements)
        placements[step.mesh_dim] = step.src_dst_placements[1]
        layouts.append(spec(a.mesh, placements, a.shape, a.tensor_meta.dtype))
    return sum(_collective_utils.one_step_redistribute_cost(x, y) for x, y in itertools.pairwise(layouts))


def test_the_plan_under_torchs_rules_costs_what_torchs_min_cost_planner_finds(seed, devices_per_host):
    draw = random.Random(seed)
    for _ in range(30):
        a, b = random_pair(draw, other_orders=False, partial_target=False)
        plan = sw.plan(a, b, sw.Topology.assumed(devices_per_host), rules="torch_2_13")
        assert plan.cost_us == near(torch_plan_cost(a, b)), (a, b)


def test_the_greedy_layouts_are_those_of_torchs_default_planner(seed):
    draw = random.Random(seed)
    for _ in range(200):
        a, b = random_pair(draw, other_orders=False, partial_target=False)
        steps = _gen_transform_infos_non_cached(a, b, use_graph_based_transform=False)
        layouts = _C.greedy_layouts(sw.Layout.from_spec(a), sw.Layout.from_spec(b))
        assert len(layouts) == len(steps) + 1
        for step, before, after in zip(steps, layouts[:-1], layouts[1:], strict=True):
            changed = [m for m in range(a.mesh.ndim) if before.placements[m] != after.placements[m]]
            assert changed == [step.mesh_dim]
            theirs = sw.Layout(a.shape, torch.float32, sw.Mesh((1,)), [step.src_dst_placements[1]])
            assert after.placements[step.mesh_dim] == theirs.placements[0]


def test_the_topology_of_a_mesh_is_torchs(devices_per_host):
    for shape in [(4,), (2, 2), (2, 2, 2), (8, 1), (3, 5)]:
        mesh = silent_mesh(shape)
        theirs = _collective_utils.MeshTopoInfo.build_from_mesh(mesh)
        mine = ours.MeshTopoInfo.build_from_mesh(mesh)
        assert mine.mesh == mesh
        assert mine.mesh_dim_devices == theirs.mesh_dim_devices
        assert mine.mesh_dim_bandwidth == near(theirs.mesh_dim_bandwidth)
        assert mine.mesh_dim_latency == theirs.mesh_dim_latency
        assert ours.MeshTopoInfo.build_from_mesh(mesh) is mine
        for dim in range(len(shape)):
            for name in ("allgather_cost", "allreduce_cost", "reduce_scatter_cost"):
                theirs_us = getattr(_collective_utils, name)(0.37, theirs, dim)
                assert getattr(ours, name)(0.37, mine, dim) == near(theirs_us)


def test_figures_of_ones_own_price_the_collectives():
    mesh = sw.Mesh((2, 4))
    topo = ours.MeshTopoInfo(mesh, [2, 4], [10.0, 100.0], [5.0, 1.0])
    assert ours.allgather_cost(1.0, topo, 1) == near(6.6 + 3 * 1.0 + 1e6 * 3 / 4 / 100)
    assert ours.allreduce_cost(1.0, topo, 0) == near(6.6 + 2 * 5.0 + 1e6 * 2 / 2 / 10)
    given = ours.MeshTopoInfo.build_from_mesh(mesh, sw.Topology(dims={"1": (1.0, 100.0)}, within_host=(5.0, 10.0)))
    assert (given.mesh_dim_bandwidth, given.mesh_dim_latency) == ([10.0, 100.0], [5.0, 1.0])


def test_names_choose_links_although_they_do_not_make_meshes_differ():
    topology = sw.Topology(dims={"tp": (9.0, 1.0)})
    for names, latency in [(("tp",), 9.0), (("dp",), 0.6)]:
        topo = ours.MeshTopoInfo.build_from_mesh(sw.Mesh((4,), names=names), topology)
        assert topo.mesh_dim_latency == [latency]


def test_spec_to_bytes_counts_the_whole_tensor():
    for shape, dtype in [((10, 10), torch.float32), ((3,), torch.bfloat16), ((0, 4), torch.int64), ((), torch.bool)]:
        theirs = spec(silent_mesh((2,)), [Replicate()], shape, dtype)
        assert ours.spec_to_bytes(theirs) == _collective_utils.spec_to_bytes(theirs)
        assert ours.spec_to_bytes(sw.Layout.from_spec(theirs)) == math.prod(shape) * dtype.itemsize


def test_what_is_no_layout_is_priced_by_torch():
    mesh = silent_mesh((2, 2))
    strided = spec(mesh, [_StridedShard(0, split_factor=2), Shard(0)], (8, 8))
    masked = spec(mesh, [_MaskPartial(), Shard(0)], (8, 8))
    full = spec(mesh, [Replicate(), Replicate()], (8, 8))
    for a in (strided, masked, full):
        for b in (strided, full):
            assert ours.redistribute_cost(a, b) == near(_collective_utils.redistribute_cost(a, b)), (a, b)
    with pytest.raises(ValueError, match="not both Layouts"):
        ours.redistribute_cost(strided, sw.Layout.from_spec(full))


def test_a_rank_outside_the_mesh_pays_nothing():
    mesh = silent_mesh((2,), ranks=[0, 1], rank=3)
    a, b = spec(mesh, [Shard(0)], (8,)), spec(mesh, [Replicate()], (8,))
    assert ours.redistribute_cost(a, b) == _collective_utils.redistribute_cost(a, b) == 0


def test_the_min_cost_switch_of_torch_does_not_change_ours(seed):
    a = spec(silent_mesh((2, 2)), [Shard(0), Shard(0)], (8, 8))
    b = spec(silent_mesh((2, 2)), [Shard(1), Shard(0)], (8, 8))
    plain = ours.redistribute_cost(a, b)
    with use_min_cost_redistribution_plan():
        assert ours.redistribute_cost(a, b) == plain


# 10×10 f32 over 4 ranks: (from, to, rules, ranks a host, µs)
S0, S1, R, P = sw.Shard(0), sw.Shard(1), sw.Replicate(), sw.Partial()
FIGURES = [
    (S0, R, "seed_004", 8, 8.403185824),
    (P, S0, "seed_004", 8, 8.403185824),
    (P, R, "seed_004", 8, 10.807433589),
    (S0, S1, "seed_004", 8, 9.400796456),
    (S0, R, "torch_2_13", 8, 8.403185824),
    (P, S0, "torch_2_13", 8, 8.403185824),
    (P, R, "torch_2_13", 8, 10.206371648),
    (S0, S1, "torch_2_13", 8, 9.400796456),
    (S0, R, "torch_2_13", 1, 14.714481019),
    (P, R, "torch_2_13", 1, 22.828962037),
    (S0, S1, "torch_2_13", 1, 15.703620255),
    (S0, R, "seed_004", 1, 14.714481019),
    (S0, S1, "seed_004", 1, 15.703620255),
]


@pytest.mark.parametrize(("a", "b", "rules", "ranks_per_host", "us"), FIGURES)
def test_the_seeds_figures(a, b, rules, ranks_per_host, us):
    layout = sw.Layout((10, 10), torch.float32, sw.Mesh((4,)), [a])
    topology = sw.Topology.assumed(ranks_per_host)
    assert sw.redistribute_cost(layout, layout.with_([b]), topology, rules=rules) == pytest.approx(us, abs=1e-9)


def test_the_rule_sets_keep_their_own_zeros_and_infinities():
    layout = sw.Layout((10, 10), torch.float32, sw.Mesh((4,)), [R])
    for rules in ("seed_004", "torch_2_13"):
        assert sw.redistribute_cost(layout, layout.with_([S0]), rules=rules) == 0
        assert sw.redistribute_cost(layout, layout.with_([P]), rules=rules) == 0
        assert sw.redistribute_cost(layout.with_([S0]), layout.with_([P]), rules=rules) == math.inf
        elsewhere = layout.with_([R], mesh=sw.Mesh((2, 2)).flattened(0, 1))
        assert sw.redistribute_cost(layout.with_([S0]), elsewhere, rules=rules) > 0
        other_mesh = layout.with_([R], mesh=sw.Mesh((4,), [3, 2, 1, 0]))
        assert sw.redistribute_cost(layout.with_([S0]), other_mesh, rules=rules) == math.inf
    assert sw.redistribute_cost(layout.with_([P]), layout.with_([sw.Partial("max")]), rules="torch_2_13") == math.inf


def test_a_partial_of_torch_is_priced_as_ours():
    mesh = silent_mesh((4,))
    a, b = spec(mesh, [Partial()], (10, 10)), spec(mesh, [Shard(0)], (10, 10))
    topology = sw.Topology.assumed(8)
    assert sw.redistribute_cost(a, b, topology, rules="torch_2_13") == pytest.approx(8.403185824, abs=1e-9)
