"""The collectives as modules. They hold no parameters."""

from __future__ import annotations

from torch import Tensor, nn

from shardway._collectives import (
    GradLike,
    OpLike,
    Ragged,
    SizesLike,
    all_gather_v,
    all_reduce,
    all_to_all_v,
    reduce_scatter_v,
)
from shardway._groups import GroupLike
from shardway._rooted import broadcast, gather_v, scatter_v


class AllGather(nn.Module):
    """`all_gather_v` as a module without parameters. Its call takes `(x, sizes=None)`, and it gives the gathered tensor
    and the sizes.

    Args:
        dim: As in the function.
        grad: "sum", "mean" or "local".
        group: The ranks that take part; None is the default group.

    Raises:
        ValueError: What `all_gather_v` raises, when the module is called.

    Example:
        >>> gathered, sizes = sw.AllGather(dim=0)(torch.ones(3, 2))
        >>> sizes
        (3,)
    """

    def __init__(self, dim: int = 0, *, grad: GradLike = "sum", group: GroupLike = None) -> None:
        super().__init__()
        self.dim = dim
        self.grad = grad
        self.group = group

    def forward(self, x: Tensor, sizes: SizesLike | None = None) -> Ragged:
        """What `all_gather_v` gives."""
        return all_gather_v(x, self.dim, sizes=sizes, grad=self.grad, group=self.group)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, grad={self.grad!r}"


class ReduceScatter(nn.Module):
    """`reduce_scatter_v` as a module without parameters. Its call takes `(x, sizes=None)`, and it gives this rank's
    part.

    Args:
        dim: As in the function.
        op: "sum", "avg" (or "mean"), "min", "max", "product".
        group: The ranks that take part; None is the default group.

    Raises:
        ValueError: What `reduce_scatter_v` raises, when the module is called.

    Example:
        >>> sw.ReduceScatter()(torch.arange(3))
        tensor([0, 1, 2])
    """

    def __init__(self, dim: int = 0, *, op: OpLike = "sum", group: GroupLike = None) -> None:
        super().__init__()
        self.dim = dim
        self.op = op
        self.group = group

    def forward(self, x: Tensor, sizes: SizesLike | None = None) -> Tensor:
        """What `reduce_scatter_v` gives."""
        return reduce_scatter_v(x, sizes, self.dim, op=self.op, group=self.group)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, op={self.op!r}"


class AllToAll(nn.Module):
    """`all_to_all_v` as a module without parameters. Its call takes `(x, send_sizes, recv_sizes=None)`, and it gives
    what arrived and the size of each block.

    Args:
        dim: As in the function.
        group: The ranks that take part; None is the default group.

    Raises:
        ValueError: What `all_to_all_v` raises, when the module is called.

    Example:
        >>> sw.AllToAll()(torch.arange(3), [3])
        (tensor([0, 1, 2]), (3,))
    """

    def __init__(self, dim: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.dim = dim
        self.group = group

    def forward(self, x: Tensor, send_sizes: SizesLike, recv_sizes: SizesLike | None = None) -> Ragged:
        """What `all_to_all_v` gives."""
        return all_to_all_v(x, send_sizes, self.dim, recv_sizes=recv_sizes, group=self.group)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class AllReduce(nn.Module):
    """`all_reduce` as a module without parameters. Its call takes `(x)`, and it gives the combination of all ranks'
    tensors.

    Args:
        op: "sum", "avg" (or "mean"), "min", "max", "product".
        grad: "sum", "mean" or "local".
        group: The ranks that take part; None is the default group.

    Raises:
        ValueError: What `all_reduce` raises, when the module is called.

    Example:
        >>> sw.AllReduce(op="max")(torch.arange(3))
        tensor([0, 1, 2])
    """

    def __init__(self, *, op: OpLike = "sum", grad: GradLike = "sum", group: GroupLike = None) -> None:
        super().__init__()
        self.op = op
        self.grad = grad
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """What `all_reduce` gives."""
        return all_reduce(x, op=self.op, grad=self.grad, group=self.group)

    def extra_repr(self) -> str:
        return f"op={self.op!r}, grad={self.grad!r}"


class Broadcast(nn.Module):
    """`broadcast` as a module without parameters. Its call takes `(x)`, and it gives the tensor of rank `src`.

    Args:
        src: The global rank that has the tensor.
        group: The ranks that take part; None is the default group.

    Raises:
        ValueError: What `broadcast` raises, when the module is called.

    Example:
        >>> sw.Broadcast(src=0)(torch.arange(3))
        tensor([0, 1, 2])
    """

    def __init__(self, src: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.src = src
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """What `broadcast` gives."""
        return broadcast(x, self.src, group=self.group)

    def extra_repr(self) -> str:
        return f"src={self.src}"


class Gather(nn.Module):
    """`gather_v` as a module without parameters. Its call takes `(x, sizes=None)`, and it gives the gathered tensor, on
    `dst`, and the sizes.

    Args:
        dst: The global rank that gets them.
        dim: As in the function.
        group: The ranks that take part; None is the default group.

    Raises:
        ValueError: What `gather_v` raises, when the module is called.

    Example:
        >>> gathered, sizes = sw.Gather(dst=0)(torch.ones(3, 2))
        >>> sizes
        (3,)
    """

    def __init__(self, dst: int = 0, dim: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.dst = dst
        self.dim = dim
        self.group = group

    def forward(self, x: Tensor, sizes: SizesLike | None = None) -> Ragged:
        """What `gather_v` gives."""
        return gather_v(x, self.dst, self.dim, sizes=sizes, group=self.group)

    def extra_repr(self) -> str:
        return f"dst={self.dst}, dim={self.dim}"


class Scatter(nn.Module):
    """`scatter_v` as a module without parameters. Its call takes `(x, sizes=None)`, and it gives this rank's part of
    what `src` has.

    Args:
        src: The global rank that has the tensor.
        dim: As in the function.
        group: The ranks that take part; None is the default group.

    Raises:
        ValueError: What `scatter_v` raises, when the module is called.

    Example:
        >>> sw.Scatter(src=0)(torch.arange(3))
        tensor([0, 1, 2])
    """

    def __init__(self, src: int = 0, dim: int = 0, *, group: GroupLike = None) -> None:
        super().__init__()
        self.src = src
        self.dim = dim
        self.group = group

    def forward(self, x: Tensor | None, sizes: SizesLike | None = None) -> Tensor:
        """What `scatter_v` gives."""
        return scatter_v(x, self.src, self.dim, sizes=sizes, group=self.group)

    def extra_repr(self) -> str:
        return f"src={self.src}, dim={self.dim}"
