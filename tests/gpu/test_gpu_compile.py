"""torch.compile of calls on a GPU, in one graph, forward and backward."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import shardway as sw
from tests.support.cases import each_op
from tests.support.dense import Draw
from tests.support.gpu_cases import DEVICE, assert_close, on_device, one_process_gradient


def whole(body, backend):
    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = False  # torch 2.11 takes a size saved for backward for a tensor
    torch._inductor.config.compile_threads = 1
    return torch.compile(body, fullgraph=True, backend=backend)


def every_collective(rank, size, seed):
    draw = Draw(seed)
    for case in each_op(draw, size, (2, 3), 1, torch.float64):
        upstream = [draw.tensor(y.shape) for y in case.outputs]
        want = one_process_gradient(case, upstream, rank)
        for known in [{}, case.known[rank]] if case.known[rank] else [{}]:
            x = on_device(case.inputs[rank]).requires_grad_()
            compiled = whole(lambda x, case=case, known=known: case.call(x, rank, **known), "aot_eager")
            y = case.tensor_of(compiled(x))
            assert_close(y, case.outputs[rank], f"{case.op} {known}")
            (grad,) = torch.autograd.grad(y, x, on_device(upstream[rank]))
            assert_close(grad, want, f"{case.op} {known}")


def loss_over_ragged_batches(rank, size, seed):
    """Inductor makes kernels of what is around the collective."""
    draw = Draw(seed)
    rows = [3 + 2 * r for r in range(size)]
    parts = [draw.tensor((n, 8), torch.float32) for n in rows]

    def loss(mine, everyone):
        similar = F.normalize(mine, dim=1) @ F.normalize(everyone, dim=1).T
        return similar.logsumexp(1).sum()

    leaves = [part.clone().requires_grad_() for part in parts]
    everyone = torch.cat(leaves)
    total = sum(loss(leaf, everyone) for leaf in leaves)
    want = torch.autograd.grad(total, leaves)[rank]
    for sizes in (None, tuple(rows)):
        compiled = whole(lambda x, sizes=sizes: loss(x, sw.all_gather_v(x, sizes=sizes)[0]), "inductor")
        x = on_device(parts[rank]).requires_grad_()
        compiled(x).backward()
        torch.testing.assert_close(x.grad.cpu(), want, rtol=1e-4, atol=1e-5)


def test_calls_compile_in_one_graph(run, seed):
    def body(rank, size):
        every_collective(rank, size, seed)
        if DEVICE == "cuda":
            loss_over_ragged_batches(rank, size, seed)

    run(2, body)
