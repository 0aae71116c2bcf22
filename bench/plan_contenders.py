"""The planners that bench/plan.py compares, the pairs of layouts that they are asked for, and the price of their plans.

DTensor is given what makes its plans best: a flattened mesh for every set of mesh dims, so that it merges its
collectives as far as it can, and the hosts that ours assumes.
"""

from __future__ import annotations

import itertools
import logging
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources
from torch.distributed.tensor import Partial, Replicate, Shard, _collective_utils, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.placement_types import Placement

import shardway as sw
from shardway import _C, _dtensor

OURS, GREEDY, MIN_COST = "shardway", "DTensor greedy", "DTensor min-cost"
TENSOR_DIMS = 3


@dataclass(frozen=True)
class Pair:
    mesh: tuple[int, ...]
    shape: tuple[int, ...]
    a: DTensorSpec
    b: DTensorSpec


@dataclass(frozen=True)
class Quality:
    """A plan at the prices of shardway, step by step."""

    cost_us: float
    collectives: int
    bytes: int
    peak_bytes: int
    makes_addends: bool  # steps that do are free here


class Contender(Protocol):
    name: str

    def forget(self, *, shapes: bool = False) -> None:
        """Forgets its plans; with `shapes` all that it knows."""

    def plan(self, pair: Pair) -> Any: ...
    def cached_plan(self, pair: Pair) -> Any: ...
    def cached_cost(self, pair: Pair) -> float: ...
    def layouts(self, pair: Pair, plan: Any) -> list[sw.Layout]:
        """What the plan passes through, both ends among them."""


class Shardway:
    name = OURS
    # The planner keeps what it knows of the last 16 shapes and meshes: these displace all others.
    _OTHERS = tuple(sw.Layout((rows,), torch.float32, sw.Mesh((2,)), [sw.Shard(0)]) for rows in range(2, 26))

    def __init__(self, topology: sw.Topology) -> None:
        self._topology = topology

    def forget(self, *, shapes: bool = False) -> None:
        if shapes:
            for other in self._OTHERS:
                sw.plan(other, other.with_([sw.Replicate()]), self._topology)
            _dtensor._known_mesh.cache_clear()
        sw.clear_plans()
        _dtensor._layouts.clear()

    def plan(self, pair: Pair) -> sw.Plan:
        return sw.plan(pair.a, pair.b, self._topology)

    def cached_plan(self, pair: Pair) -> sw.Plan:
        return sw.plan(pair.a, pair.b, self._topology)

    def cached_cost(self, pair: Pair) -> float:
        return sw.redistribute_cost(pair.a, pair.b, self._topology)

    def layouts(self, pair: Pair, plan: sw.Plan) -> list[sw.Layout]:
        return [plan.from_, *(step.to for step in plan.steps)]


class DTensor:
    def __init__(self, name: str, use_graph: bool) -> None:
        self.name = name
        self._use_graph = use_graph

    def forget(self, *, shapes: bool = False) -> None:
        _redistribute.clear_redistribute_planner_cache()
        _redistribute._gen_transform_infos.cache_clear()

    def plan(self, pair: Pair) -> list[Any]:
        return _redistribute._gen_transform_infos_non_cached(pair.a, pair.b, self._use_graph)

    def cached_plan(self, pair: Pair) -> list[Any]:
        return _redistribute._gen_transform_infos(pair.a, pair.b, self._use_graph)

    def cached_cost(self, pair: Pair) -> float:
        with _redistribute.use_min_cost_redistribution_plan(self._use_graph):
            return float(_collective_utils.redistribute_cost(pair.a, pair.b))

    def layouts(self, pair: Pair, plan: list[Any]) -> list[sw.Layout]:
        a, b = pair.a, pair.b
        placements = list(a.placements)
        order = _redistribute.DTensorRedistributePlanner._ShardOrder_to_dict(a.shard_order)
        passed = [sw.Layout.from_spec(a)]
        for step in _redistribute._optimize_transform_infos(plan, a.mesh, a.placements, b.placements):
            _redistribute._update_shard_order_and_placements(step, placements, order)
            passed.append(passed[0].with_(placements, [order.get(dim, []) for dim in range(len(pair.shape))]))
        return passed


def contenders(topology: sw.Topology) -> tuple[Contender, Contender, Contender]:
    """From now on DTensor assumes the hosts of this topology."""
    ranks_per_host = topology.ranks_per_host or sys.maxsize
    _mesh_resources.num_devices_per_host = staticmethod(lambda device_type: ranks_per_host)
    _collective_utils.MeshTopoInfo.build_from_mesh.cache_clear()
    logging.getLogger(_redistribute.__name__).setLevel(logging.ERROR)  # it tells of each merge that cannot be
    return Shardway(topology), DTensor(GREEDY, use_graph=False), DTensor(MIN_COST, use_graph=True)


def makes_addends(layouts: Sequence[sw.Layout]) -> bool:
    """Whether a plan turns what it has into addends again, which shardway never does and so has no price for."""
    return any(
        after.is_partial() and not before.is_partial()
        for x, y in itertools.pairwise(layouts)
        for before, after in zip(x.placements, y.placements, strict=True)
    )


def quality(layouts: Sequence[sw.Layout], topology: sw.Topology) -> Quality:
    steps = []
    stretch = [layouts[0]]
    for layout in layouts[1:]:
        if makes_addends([stretch[-1], layout]):
            steps += _C.steps_along(stretch, topology)
            stretch = []
        stretch.append(layout)
    steps += _C.steps_along(stretch, topology)
    return Quality(
        cost_us=math.fsum(step.cost_us for step in steps),
        collectives=sum(step.kind != "slice" for step in steps),
        bytes=sum(step.bytes for step in steps),
        peak_bytes=max((step.peak_bytes for step in steps), default=0),
        makes_addends=makes_addends(layouts),
    )


def torch_price(pair: Pair, plan: list[Any]) -> float:
    """What DTensor's own price list says of its min-cost plan: each step by itself, as its search adds them up."""
    specs = [pair.a]
    for step in plan:
        placements = list(specs[-1].placements)
        placements[step.mesh_dim] = step.src_dst_placements[1]
        specs.append(DTensorSpec(pair.a.mesh, tuple(placements), tensor_meta=pair.a.tensor_meta))
    return math.fsum(_collective_utils.one_step_redistribute_cost(x, y) for x, y in itertools.pairwise(specs))


def random_pairs(mesh: DeviceMesh, shape: tuple[int, ...], count: int, draw: random.Random) -> list[Pair]:
    """Two different layouts each. A Partial of the second was one in the first."""
    kinds: list[Placement] = [*(Shard(dim) for dim in range(TENSOR_DIMS)), Replicate()]
    meta = TensorMeta(torch.Size(shape), torch.empty(shape, device="meta").stride(), torch.float32)
    found: list[Pair] = []
    while len(found) < count:
        first = tuple(draw.choice([*kinds, Partial()]) for _ in range(mesh.ndim))
        second = tuple(draw.choice([*kinds, p] if p.is_partial() else kinds) for p in first)
        if first != second:
            specs = (DTensorSpec(mesh, placements, tensor_meta=meta) for placements in (first, second))
            found.append(Pair(tuple(mesh.shape), shape, *specs))
    return found


def device_mesh(shape: tuple[int, ...]) -> DeviceMesh:
    """A mesh of the default group's first ranks, and a flattened one for every set of its dims."""
    names = tuple("abcdefgh"[: len(shape)])
    mesh = DeviceMesh("cpu", torch.arange(math.prod(shape)).view(shape), mesh_dim_names=names)
    for size in range(2, len(shape) + 1):
        for dims in itertools.combinations(names, size):
            mesh[dims]._flatten("_".join(dims))
    return mesh
