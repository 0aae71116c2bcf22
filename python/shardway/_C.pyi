from collections.abc import Sequence
from typing import Literal, overload

from torch import Tensor
from torch.distributed import ProcessGroup

__version__: str

class RaggedHandle:
    def wait(self) -> tuple[Tensor, tuple[int, ...]]: ...

class TensorHandle:
    def wait(self) -> Tensor: ...

Sizes = Sequence[int] | Tensor

@overload
def all_gather_v(
    x: Tensor,
    dim: int,
    sizes: Sizes | None,
    grad: str,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: Literal[False],
) -> tuple[Tensor, tuple[int, ...]]: ...
@overload
def all_gather_v(
    x: Tensor, dim: int, sizes: Sizes | None, grad: str, out: Tensor | None, group: ProcessGroup | None, async_op: bool
) -> tuple[Tensor, tuple[int, ...]] | RaggedHandle: ...
@overload
def reduce_scatter_v(
    x: Tensor,
    sizes: Sizes | None,
    dim: int,
    op: str,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: Literal[False],
) -> Tensor: ...
@overload
def reduce_scatter_v(
    x: Tensor, sizes: Sizes | None, dim: int, op: str, out: Tensor | None, group: ProcessGroup | None, async_op: bool
) -> Tensor | TensorHandle: ...
@overload
def all_to_all_v(
    x: Tensor,
    send_sizes: Sizes,
    dim: int,
    recv_sizes: Sizes | None,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: Literal[False],
) -> tuple[Tensor, tuple[int, ...]]: ...
@overload
def all_to_all_v(
    x: Tensor,
    send_sizes: Sizes,
    dim: int,
    recv_sizes: Sizes | None,
    out: Tensor | None,
    group: ProcessGroup | None,
    async_op: bool,
) -> tuple[Tensor, tuple[int, ...]] | RaggedHandle: ...
def memory_stats() -> dict[str, int]: ...
def empty_cache() -> None: ...
def gather_sizes(x: Tensor, dim: int, group: ProcessGroup | None) -> tuple[int, ...]: ...
def split_by_rank(parts: Sequence[Tensor] | Tensor, group: ProcessGroup | None) -> tuple[Tensor, tuple[int, ...]]: ...
