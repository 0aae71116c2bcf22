"""What torch's tracers need to know of the operators beside their C++ kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch._library.effects import EffectType
from torch._library.simple_registry import singleton as registry

OPERATORS = (
    "all_gather_v",
    "all_gather_v_sizes",
    "reduce_scatter_v",
    "all_to_all_v",
    "all_to_all_v_sizes",
    "all_reduce",
    "broadcast",
    "gather_v",
    "gather_v_sizes",
    "scatter_v",
    "scatter_v_sizes",
    "gather_sizes",
)


SIZES_OPERATORS = tuple(name for name in OPERATORS if name.endswith("_sizes"))


def _one_size_per_rank(*arguments: Any) -> Tensor:
    group = arguments[-1]
    return torch.empty(_resolve_process_group(group).size(), dtype=torch.int64)


for _name in SIZES_OPERATORS:
    torch.library.register_fake(f"shardway::{_name}", _one_size_per_rank)

# Collectives meet in the order in which the ranks call them: a compiler may neither drop nor reorder one, also where
# what it gives is not used.
for _name in OPERATORS:
    registry.find(f"shardway::{_name}").effect.register(EffectType.ORDERED)


@functools.cache
def keep_order_in_inductor() -> None:
    """Ties every operator to the one before it in inductor's schedule.

    Its own lowering of ordered operators means to do so, but files the tie of a fallback kernel under the name of its
    buffer, where the scheduler looks for that of its operation (pytorch/pytorch#188301): then a pass for less memory,
    or a fusion, may put one collective before another on one rank alone.
    """
    from torch._inductor.lowering import fallback_handler, register_lowering
    from torch._inductor.virtualized import V

    def ordered(operator: torch._ops.OpOverload) -> Callable[..., Any]:
        fallback = fallback_handler(operator, add_to_fallback_set=False)  # type: ignore[no-untyped-call]

        def lower(*args: Any, **kwargs: Any) -> Any:
            first = len(V.graph.operations)
            result = fallback(*args, **kwargs)
            previous = V.graph.effectful_ops.get(EffectType.ORDERED)
            if previous is not None:
                for operation in V.graph.operations[first:]:
                    V.graph.additional_buffer_deps[operation.get_operation_name()].add(previous.get_name())
            return result

        return lower

    for name in OPERATORS:
        operator = getattr(torch.ops.shardway, name).default
        register_lowering(operator, type_promotion_kind=None)(ordered(operator))
