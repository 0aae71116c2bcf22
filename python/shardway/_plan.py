"""The planner: the cheapest way from one layout to another, what it costs and why."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, TypeAlias

from shardway import _C
from shardway._C import Layout, MeshTensor, Plan, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.distributed.tensor._dtensor_spec import DTensorSpec

    from shardway._C import PlacementLike, Rules

LayoutLike: TypeAlias = "Layout | DTensorSpec"


def plan(
    a: LayoutLike | MeshTensor,
    b: LayoutLike | Sequence[PlacementLike],
    topology: Topology | None = None,
    max_bytes: int | None = None,
    *,
    rules: Rules = "shardway",
    relabel: bool | Sequence[int] | None = None,
) -> Plan:
    """The cheapest plan from layout `a` to layout `b`, the same on every rank. Kept, so that asking again is cheap.

    Nothing is communicated, with one exception: for a MeshTensor `a` and no topology the plan knows the hosts of the
    tensor's group; before the group's first call it is therefore collective.

    Args:
        a: A Layout or a DTensorSpec, or a MeshTensor: then it is the plan that `redistribute` would run.
        b: A Layout or a DTensorSpec; for a MeshTensor also placements.
        topology: What communication costs. None is the file in SHARDWAY_TOPOLOGY, else assumed figures with
            LOCAL_WORLD_SIZE ranks a host, else one host.
        max_bytes: No step needs more on any rank: its input, the plan's input, its output and what it stages.
        rules: Whose steps and prices: "shardway", or "torch_2_13", those of DTensor's planner.
        relabel: Lets the ranks of `b`'s mesh be chosen: True lets them change places, a list says which ranks to choose
            from. Those are chosen that hold most of what they are to have, if the plan then sends fewer bytes and costs
            no more. `plan.to` has them; `plan.relabelling` and `explain` say what that saved.

    Returns:
        The plan.

    Raises:
        ValueError: There is no such plan: addends would have to be made, or `max_bytes` is too small; or an argument is
            invalid.

    Example:
        >>> mesh = sw.Mesh((2, 4), names=("dp", "tp"))
        >>> a = sw.Layout((4096, 4096), torch.float32, mesh, [sw.Shard(0), sw.Partial()])
        >>> b = a.with_([sw.Replicate(), sw.Shard(1)])
        >>> [step.kind for step in sw.plan(a, b).steps]
        ['reduce_scatter', 'all_gather']
    """
    return _C.plan(a, b, topology, max_bytes, rules, relabel)


def redistribute_cost(
    a: LayoutLike, b: LayoutLike, topology: Topology | None = None, *, rules: Rules = "shardway"
) -> float:
    """Microseconds that the cheapest plan takes.

    Args:
        a: A Layout or a DTensorSpec.
        b: The same.
        topology: As in `plan`.
        rules: "shardway"; "torch_2_13" and "seed_004" give what their own redistribute_cost returns.

    Returns:
        The cost; infinite where addends would have to be made.

    Raises:
        ValueError: An argument is invalid.

    Example:
        >>> mesh = sw.Mesh((2, 4), names=("dp", "tp"))
        >>> a = sw.Layout((4096, 4096), torch.float32, mesh, [sw.Shard(0), sw.Partial()])
        >>> b = a.with_([sw.Replicate(), sw.Shard(1)])
        >>> 0 < sw.redistribute_cost(a, b) < sw.redistribute_cost(b, a)
        True
    """
    if not isinstance(a, Layout):
        a = _layout_of(a, "redistribute_cost: a")
    if not isinstance(b, Layout):
        b = _layout_of(b, "redistribute_cost: b")
    return _C.redistribute_cost(a, b, topology, rules)


def draw(layout: LayoutLike, columns: int | None = None) -> str:
    """Which ranks hold which part, as text.

    Args:
        layout: A Layout or a DTensorSpec.
        columns: How wide the text may be; None is as wide as the terminal.

    Returns:
        Lines of text.

    Raises:
        ValueError: `columns` is less than 1, or the layout is none.

    Example:
        >>> layout = sw.Layout((4, 4), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
        >>> print(sw.draw(layout, columns=40))
        f32[4,4] on 2: S0
        dim 0 down, dim 1 across; in each cell the ranks that hold it
          0   4
          +---+
        0 | 0 |
          +---+
        2 | 1 |
          +---+
        <BLANKLINE>
    """
    if not isinstance(layout, Layout):
        layout = _layout_of(layout, "draw: layout")
    return _C.draw(layout, shutil.get_terminal_size().columns if columns is None else columns)


def clear_plans() -> None:
    """Forgets the plans made so far.

    Example:
        >>> sw.clear_plans()
    """
    _C.clear_plans()


def _layout_of(spec: object, what: str) -> Layout:
    from shardway._dtensor import layout_of

    return layout_of(spec, what)
