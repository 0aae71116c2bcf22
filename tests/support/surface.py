"""docs/surface.md: every collective, dtype, memory layout, transport and way to call it, tried out.

Two ranks per transport make every call and check what it gives against one process. A cell says yes, or why not: the
text of the error that the call raised. `python -m tests.support.surface` writes the page anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from . import dense
from .cases import (
    Case,
    all_gather_case,
    all_reduce_case,
    all_to_all_case,
    broadcast_case,
    gather_case,
    reduce_scatter_case,
    scatter_case,
)
from .dense import Draw
from .ranks import run_ranks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "surface.md"
YES = "yes"
RANKS = 2
ROOT = 1
SHAPE, DIM, SIZES = (2, 3, 2, 3), 1, [3, 1]

OPS = ("all_gather_v", "reduce_scatter_v", "all_to_all_v", "all_reduce", "broadcast", "gather_v", "scatter_v")
LAYOUTS = ("contiguous", "strided", "channels-last")
WAYS = ("forward", "backward", "double backward", "async", "out=", "compile")
TRANSPORTS = {
    "shared memory": "CPU tensors of ranks on one host",
    "c10d": "the same ranks with SHARDWAY_TRANSPORT=c10d, on gloo",
    "fake": "torch's backend of that name, which moves nothing: shape and dtype are checked, with sizes given and on "
    "the rank that is src and dst, and of compile the forward alone",
}
FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
DTYPES = (*dense.FLOATS, *FLOAT8, *dense.INTEGERS, torch.bool, torch.complex32, *dense.COMPLEX)
TIMEOUT_S = 240.0

INTRODUCTION = f"""# What works

Made by `make surface`, which makes the calls and compares what they give with one process; a test makes them again and
compares the outcome with this page. A cell says yes for {", ".join(LAYOUTS[:-1])} and {LAYOUTS[-1]} tensors on every
transport, or why not. *backward* and *double backward* are of `grad="sum"`. *compile* is one graph of torch.compile,
forward and, where there is a gradient, backward; there each dtype is tried in one of the memory layouts, and what
*forward* refuses is not tried. The transports:"""

Answers = dict[tuple[str, torch.dtype, str, str], str]  # by op, dtype, layout and way


def case_of(op: str, draw: Draw, dtype: torch.dtype) -> Case:
    makers: dict[str, Callable[[], Case]] = {
        "all_gather_v": lambda: all_gather_case(draw, SHAPE, DIM, SIZES, dtype),
        "reduce_scatter_v": lambda: reduce_scatter_case(draw, SHAPE, DIM, SIZES, dtype),
        "all_to_all_v": lambda: all_to_all_case(draw, SHAPE, DIM, [[1, 2], [3, 1]], dtype),
        "all_reduce": lambda: all_reduce_case(draw, SHAPE, RANKS, dtype),
        "broadcast": lambda: broadcast_case(draw, SHAPE, RANKS, ROOT, dtype),
        "gather_v": lambda: gather_case(draw, SHAPE, DIM, SIZES, ROOT, dtype),
        "scatter_v": lambda: scatter_case(draw, SHAPE, DIM, SIZES, ROOT, dtype),
    }
    return makers[op]()


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The values of x, in memory as the layout says."""
    if layout == "contiguous":
        return x.clone()
    bytes_of = x.view(torch.uint8) if x.dtype in FLOAT8 else x  # copies of float8 tensors are not all there
    if layout == "channels-last":
        return bytes_of.contiguous(memory_format=torch.channels_last).view(x.dtype)
    roomy = bytes_of.new_zeros([2 * n + 1 for n in x.shape])
    return roomy[tuple(slice(1, None, 2) for _ in x.shape)].copy_(bytes_of).view(x.dtype)


class Trial:
    """The calls of one op, dtype and layout by this rank."""

    def __init__(self, case: Case, layout: str, rank: int, draw: Draw, moves: bool) -> None:
        self.case, self.layout, self.rank, self.moves = case, layout, rank, moves
        self.known = {} if moves else case.known[rank]
        self.upstream = [draw.tensor(y.shape, y.dtype) for y in case.outputs]
        self.has_gradient = False
        self.direction = [draw.tensor(x.shape, x.dtype) for x in case.inputs]

    def input(self, requires_grad: bool = False) -> Tensor:
        return laid_out(self.case.inputs[self.rank], self.layout).requires_grad_(requires_grad)

    def call(self, x: Tensor, **options: Any) -> Any:
        return self.case.call(x, self.rank, **self.known, **options)

    def check(self, got: Tensor, want: Tensor) -> None:
        if self.moves:
            dense.assert_same_bits(got, want)
        else:
            assert (got.shape, got.dtype) == (want.shape, want.dtype)

    def one_process_gradient(self) -> Tensor:
        leaves = [x.clone().requires_grad_() for x in self.case.inputs]
        outputs = self.case.dense(leaves)
        grads = torch.autograd.grad(outputs, leaves, self.upstream)
        return grads[self.rank]

    def forward(self) -> None:
        self.check(self.case.tensor_of(self.call(self.input())), self.case.outputs[self.rank])

    def backward(self) -> None:
        x = self.input(requires_grad=True)
        (grad,) = torch.autograd.grad(self.case.tensor_of(self.call(x)), x, self.upstream[self.rank])
        self.check(grad, self.one_process_gradient())

    def double_backward(self) -> None:
        """The gradient of a linear map's gradient is the map."""
        x = self.input(requires_grad=True)
        upstream = self.upstream[self.rank].clone().requires_grad_()
        (grad,) = torch.autograd.grad(self.case.tensor_of(self.call(x)), x, upstream, create_graph=True)
        (again,) = torch.autograd.grad(grad, upstream, self.direction[self.rank])
        self.check(again, self.case.dense(self.direction)[self.rank])

    def asynchronous(self) -> None:
        result = self.call(self.input(), async_op=True).wait()
        self.check(self.case.tensor_of(result), self.case.outputs[self.rank])

    def into_out(self) -> None:
        if not self.case.takes_out:
            raise TypeError("takes no out=")
        out = torch.empty_like(self.case.outputs[self.rank])
        self.call(self.input(), out=out)
        self.check(out, self.case.outputs[self.rank])


def answer(body: Callable[[], None]) -> str:
    """yes, or why not. What is wrong rather than refused goes on as an AssertionError."""
    try:
        body()
    except (ValueError, TypeError, RuntimeError) as error:
        first_line = str(error).splitlines()[0]
        return re.sub(r" \(rank \d\)$|^\w+: |(?<=float8)_\w+", "", first_line)
    return YES


def tried(rank: int, moves: bool) -> Answers:
    """Every cell on the default group, which moves what it is given or only seems to."""
    draw = Draw(0)
    answers: Answers = {}
    compiled: list[Trial] = []
    for op in OPS:
        for number, dtype in enumerate(DTYPES):
            case = case_of(op, draw, dtype)
            for place, layout in enumerate(LAYOUTS):
                trial = Trial(case, layout, rank, draw, moves)
                bodies = (trial.forward, trial.backward, trial.double_backward, trial.asynchronous, trial.into_out)
                found = [answer(body) for body in bodies]
                trial.has_gradient = moves and found[1] == YES
                compiles = found[0]
                if compiles == YES and place == number % len(LAYOUTS):
                    compiled.append(trial)
                for way, text in zip(WAYS, [*found, compiles], strict=True):
                    answers[op, dtype, layout, way] = text
    try_compiled(compiled)
    return answers


def try_compiled(trials: list[Trial]) -> None:
    """All calls in one graph, forward and backward, so that there is one compilation."""

    def together(inputs: list[Tensor]) -> list[Tensor]:
        calls = [(trial.case, trial.rank, x) for trial, x in zip(trials, inputs, strict=True)]
        return [case.tensor_of(case.call(x, rank, **case.known[rank])) for case, rank, x in calls]

    inputs = [trial.input(trial.has_gradient) for trial in trials]
    results = torch.compile(together, fullgraph=True, backend="aot_eager")(inputs)
    for trial, result in zip(trials, results, strict=True):
        trial.check(result.detach(), trial.case.outputs[trial.rank])
    chosen = [i for i, trial in enumerate(trials) if trial.has_gradient]
    if not chosen:
        return
    upstream = [trials[i].upstream[trials[i].rank] for i in chosen]
    grads = torch.autograd.grad([results[i] for i in chosen], [inputs[i] for i in chosen], upstream)
    for i, grad in zip(chosen, grads, strict=True):
        trials[i].check(grad, trials[i].one_process_gradient())


def on_a_host(rank: int, size: int, engine: str) -> Answers:
    os.environ["SHARDWAY_TRANSPORT"] = engine
    return tried(rank, moves=True)


def on_the_fake_backend(rank: int, size: int) -> Answers:
    from torch.testing._internal.distributed.fake_pg import FakeStore  # importing it registers the backend

    dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=ROOT, world_size=RANKS)
    return tried(ROOT, moves=False)


def all_answers() -> dict[str, Answers]:
    found = {}
    for transport, engine in (("shared memory", "shm"), ("c10d", "c10d")):
        first, second = run_ranks(RANKS, on_a_host, engine, timeout_s=TIMEOUT_S)
        assert first == second, f"the ranks' answers on {transport} differ"
        found[transport] = first
    (found["fake"],) = run_ranks(1, on_the_fake_backend, timeout_s=TIMEOUT_S)
    return found


class Notes:
    """The reasons, numbered as they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        return text if text == YES else f"[{self.numbers.setdefault(text, len(self.numbers) + 1)}]"

    def lines(self) -> list[str]:
        return [f"{number}. {text}" for text, number in self.numbers.items()]


def together(answers: dict[str, str]) -> str:
    """One text where all say the same; otherwise the exceptions by name."""
    usual = next(iter(answers.values()))
    exceptions = [f"{name}: {text}" for name, text in answers.items() if text != usual]
    return ", ".join([usual, *exceptions])


def row_of(found: dict[str, Answers], op: str, dtype: torch.dtype, notes: Notes) -> tuple[str, ...]:
    def on(transport: str, way: str) -> str:
        return together({layout: notes.mark(found[transport][op, dtype, layout, way]) for layout in LAYOUTS})

    return tuple(together({transport: on(transport, way) for transport in TRANSPORTS}) for way in WAYS)


def table_of(found: dict[str, Answers], op: str, notes: Notes) -> list[str]:
    rows: dict[tuple[str, ...], list[str]] = {}
    for dtype in DTYPES:
        rows.setdefault(row_of(found, op, dtype, notes), []).append(str(dtype).removeprefix("torch."))
    head = [f"## {op}", "", f"| dtype | {' | '.join(WAYS)} |", "|---" * (len(WAYS) + 1) + "|"]
    return [*head, *(f"| {', '.join(names)} | {' | '.join(row)} |" for row, names in rows.items()), ""]


def page() -> str:
    found = all_answers()
    notes = Notes()
    tables = [line for op in OPS for line in table_of(found, op, notes)]
    transports = [f"- **{name}**: {text}" for name, text in TRANSPORTS.items()]
    return "\n".join([*INTRODUCTION.splitlines(), "", *transports, "", *tables, "Reasons:", "", *notes.lines(), ""])


if __name__ == "__main__":
    PAGE.write_text(page())
