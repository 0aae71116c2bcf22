"""The planner: the cheapest way from one layout to another, what it costs and why."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, TypeAlias

from shardway import _C
from shardway._C import Layout, MeshTensor, Plan, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    from shardway._C import PlacementLike

LayoutLike: TypeAlias = "Layout | DTensorSpec"


def plan(
    a: LayoutLike | MeshTensor,
    b: LayoutLike | Sequence[PlacementLike],
    topology: Topology | None = None,
    max_bytes: int | None = None,
    *,
    rules: str = "shardway",
) -> Plan:
    """The cheapest plan from layout `a` to layout `b`, the same on every rank. Kept, so that asking again is cheap.

    No step needs more than `max_bytes` on any rank: its input, the plan's input, its output and what it stages.
    `topology` None is the file in SHARDWAY_TOPOLOGY, else assumed figures with LOCAL_WORLD_SIZE ranks a host, else
    one host. `rules` "torch_2_13" searches the steps of DTensor's planner at its prices. Nothing is communicated.

    For a MeshTensor `a` it is the plan that `redistribute` would run, and `b` may be placements. With `topology` None
    it knows the hosts of the tensor's group; before the group's first call it is therefore collective.
    """
    return _C.plan(a, b, topology, max_bytes, rules)


def redistribute_cost(
    a: LayoutLike, b: LayoutLike, topology: Topology | None = None, *, rules: str = "shardway"
) -> float:
    """Microseconds that the cheapest plan takes; infinite where addends would have to be made.

    `rules` "torch_2_13" and "seed_004" give what their own redistribute_cost returns.
    """
    if not isinstance(a, Layout):
        a = _layout_of(a, "redistribute_cost: a")
    if not isinstance(b, Layout):
        b = _layout_of(b, "redistribute_cost: b")
    return _C.redistribute_cost(a, b, topology, rules)


def draw(layout: LayoutLike, columns: int | None = None) -> str:
    """Which ranks hold which part, as text for a terminal of so many columns, or of this one's."""
    if not isinstance(layout, Layout):
        layout = _layout_of(layout, "draw: layout")
    return _C.draw(layout, shutil.get_terminal_size().columns if columns is None else columns)


def clear_plans() -> None:
    """Forgets the plans made so far."""
    _C.clear_plans()


def _layout_of(spec: object, what: str) -> Layout:
    from shardway._dtensor import layout_of

    return layout_of(spec, what)
