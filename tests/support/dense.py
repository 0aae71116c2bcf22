"""What the collectives give, computed in one process from the inputs of all ranks: the reference of the tests.

Every rank of a test draws the inputs of all ranks from one seed, so nothing is communicated to know the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
MOVABLE = (*FLOATS, *COMPLEX, *INTEGERS, torch.bool, *FLOAT8)


class Draw:
    """Random tensors and sizes, the same on every rank that starts from the same seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def integer(self, low: int, high: int) -> int:
        """low <= result < high"""
        return int(torch.randint(low, high, (), generator=self.generator))

    def sizes(self, count: int, most: int = 4) -> list[int]:
        """A size per rank; about one in four is zero."""
        return [0 if self.integer(0, 4) == 0 else self.integer(1, most + 1) for _ in range(count)]

    def tensor(self, shape: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        shape = tuple(shape)
        if dtype.is_complex:
            part = {torch.complex32: torch.float16, torch.complex64: torch.float32}.get(dtype, torch.float64)
            return torch.complex(self.tensor(shape, part), self.tensor(shape, part))
        if dtype.is_floating_point:
            return torch.randn(shape, dtype=torch.float64, generator=self.generator).to(dtype)
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.generator).bool()
        return torch.randint(0, 100, shape, generator=self.generator).to(dtype)

    def parts(
        self, shape: Sequence[int], dim: int, sizes: Sequence[int], dtype: torch.dtype = torch.float64
    ) -> list[Tensor]:
        """One tensor per rank, of `shape` but with that rank's size along `dim`."""
        return [self.tensor(resized(shape, dim, size), dtype) for size in sizes]


def resized(shape: Sequence[int], dim: int, size: int) -> list[int]:
    shape = list(shape)
    shape[dim] = size
    return shape


def chunk_sizes(length: int, count: int) -> list[int]:
    """As torch.chunk splits, with zeros for the parts that it leaves out."""
    found = [len(part) for part in torch.empty(length).chunk(count)] if length else []
    return found + [0] * (count - len(found))


def gathered(parts: Sequence[Tensor], dim: int) -> Tensor:
    if parts[0].is_floating_point() and parts[0].element_size() == 1:  # torch cannot join them all
        return torch.cat([part.view(torch.uint8) for part in parts], dim).view(parts[0].dtype)
    return torch.cat(list(parts), dim)


def block(x: Tensor, sizes: Sequence[int], rank: int, dim: int) -> Tensor:
    """The part of `x` that belongs to `rank` when it is split along `dim`."""
    return x.narrow(dim, sum(sizes[:rank]), sizes[rank])


def exchanged(inputs: Sequence[Tensor], send_sizes: Sequence[Sequence[int]], rank: int, dim: int) -> Tensor:
    """What all_to_all_v gives to `rank`; send_sizes[r] is what rank r sends to each."""
    return gathered([block(x, sizes, rank, dim) for x, sizes in zip(inputs, send_sizes, strict=True)], dim)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_floating_point and dtype.itemsize < 4:
        return torch.float32
    return torch.int64 if dtype in INTEGERS else dtype  # sums of integers wrap alike


def ops_of(dtype: torch.dtype) -> list[str]:
    """The reductions that a dtype has."""
    ops = ["sum", "product"]
    if not dtype.is_complex:
        ops += ["min", "max"]
    if dtype.is_floating_point or dtype.is_complex:
        ops.append("avg")
    return ops


def combined(a: Tensor, b: Tensor, op: str) -> Tensor:
    if op in ("min", "max"):
        return torch.minimum(a, b) if op == "min" else torch.maximum(a, b)
    return a * b if op == "product" else a + b  # of bools: and, or


_host_of: Sequence[int] | None = None  # by rank; None: all ranks are on one host


def spread_over(host_of: Sequence[int] | None) -> None:
    """From now on the reference of this process is for ranks of several hosts."""
    global _host_of
    _host_of = host_of


def _in_order(addends: Sequence[Tensor], op: str) -> Tensor:
    total = addends[0]
    for addend in addends[1:]:
        total = combined(total, addend, op)
    return total


def reduced(inputs: Sequence[Tensor], op: str = "sum") -> Tensor:
    """All addends in rank order, host by host; f16 and bf16 in f32, rounded once; avg divided before that."""
    dtype = inputs[0].dtype
    by_host: dict[int, list[Tensor]] = {}
    for rank, addend in enumerate(inputs):
        by_host.setdefault(_host_of[rank] if _host_of else 0, []).append(addend.to(accumulator(dtype)))
    total = _in_order([_in_order(addends, op) for addends in by_host.values()], op)
    if op == "avg" and dtype.is_complex:
        total = torch.view_as_complex(torch.view_as_real(total) / len(inputs))
    elif op == "avg":
        total = total / len(inputs)
    return total.to(dtype)


def bits(x: Tensor) -> Tensor:
    flat = x.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8)


def assert_same_bits(got: Tensor, want: Tensor, what: object = "") -> None:
    assert isinstance(got, Tensor), f"{what}: {type(got)}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{what}: {tuple(got.shape)}, not {tuple(want.shape)}"
    assert torch.equal(bits(got), bits(want)), f"{what}: got\n{got}\nnot\n{want}"


def assert_close(got: Tensor, want: Tensor, what: object = "") -> None:
    """The same dtype and shape, and the same values up to rounding."""
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{what}: {got.dtype} {got.shape}, not {want.dtype} {want.shape}"
    )
    tolerance = 1e-12 if got.dtype in (torch.float64, torch.complex128) else 1e-5
    assert torch.allclose(got, want, rtol=tolerance, atol=tolerance), f"{what}: got\n{got}\nnot\n{want}"


def memory_forms(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Tensors with the values of `x` that lie in memory in other ways."""
    yield "contiguous", x
    if x.dtype not in FLOAT8:
        yield "transposed", x.transpose(0, -1).contiguous().transpose(0, -1)
        roomy = torch.zeros([2 * n + 1 for n in x.shape], dtype=x.dtype)
        every_second = roomy[tuple(slice(1, None, 2) for _ in x.shape)]
        yield "every second element", every_second.copy_(x)
    shifted = torch.zeros(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape)
    yield "with a storage offset", shifted.copy_(x)
    if x.ndim == 4:
        yield "channels last", x.contiguous(memory_format=torch.channels_last)
    if x.ndim == 5:
        yield "channels last 3d", x.contiguous(memory_format=torch.channels_last_3d)
    if x.is_complex():
        yield "conjugate view", x.conj().resolve_conj().conj()
    elif x.dtype in (torch.float32, torch.float64):
        yield "negative view", torch.complex(torch.zeros_like(x), -x).conj().imag
