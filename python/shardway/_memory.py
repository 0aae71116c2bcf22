"""The memory of results: CPU results of 1 MiB and more reuse memory that was touched before, which is far faster.

What is freed is kept for the next result, up to 1/32 of the machine's memory, or SHARDWAY_CACHE_BYTES.

Tensors in shared memory are read by the other ranks of the host with no copy in between. They are ordinary CPU
tensors otherwise. A child of fork shares those that it inherits, writes included.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from shardway import _C


def memory_stats() -> dict[str, int]:
    """How much memory this process uses and keeps for results.

    Returns:
        Bytes in use, bytes kept, the limit on what is kept, how often kept memory was enough (`reused`) or not
        (`fresh`), and bytes of shared memory in use and taken from the system.

    Example:
        >>> sw.memory_stats()["reused"] >= 0
        True
    """
    return _C.memory_stats()


def empty_cache() -> None:
    """Gives the memory that is kept back to the system; shared memory all at once, where no tensor lies in it and no
    group of this host has it.

    Example:
        >>> sw.empty_cache()
    """
    _C.empty_cache()


def empty(*shape: int | Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
    """A CPU tensor in shared memory, not initialised. Other ranks of the host read it where it lies.

    Args:
        shape: The lengths, or one sequence of them.
        dtype: None is torch's default.

    Returns:
        The tensor.

    Raises:
        ValueError: A length is negative.

    Example:
        >>> sw.empty(2, 3).shape
        torch.Size([2, 3])
    """
    sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return _C.empty(list(sizes), dtype or torch.get_default_dtype())  # type: ignore[arg-type]


def use_shared_allocator() -> None:
    """Puts every CPU tensor of 64 KiB and more, from now on, into shared memory. It cannot be undone.

    Example:
        >>> sw.use_shared_allocator()  # doctest: +SKIP
    """
    _C.use_shared_allocator()
