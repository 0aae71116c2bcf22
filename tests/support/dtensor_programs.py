"""Programs on DTensors in the manner of torch's own tests of them: each yields what it computed and what one process
computes without DTensor. Every rank runs them; inputs come from a seed that all have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

Outcome = tuple[Any, Any]  # of DTensor, of one process
Program = Callable[[DeviceMesh], Iterator[Outcome]]

R, S0, S1 = Replicate(), Shard(0), Shard(1)


def spread_over(mesh: DeviceMesh, placement: Placement) -> list[Placement]:
    return [placement] * mesh.ndim


def placed(x: Tensor, mesh: DeviceMesh, *placements: Placement) -> DTensor:
    """By one placement for each dim of the mesh, or one for all of them."""
    by_dim = placements if len(placements) > 1 else spread_over(mesh, *placements)
    return distribute_tensor(x, mesh, by_dim, src_data_rank=None)


def every_placement(x: Tensor, mesh: DeviceMesh) -> Iterator[list[Placement]]:
    kinds = [R, *(Shard(d) for d in range(x.ndim))]
    yield from map(list, product(kinds, repeat=mesh.ndim))


def redistributes_with_gradients(mesh: DeviceMesh) -> Iterator[Outcome]:
    """To replicas and back, of lengths that the ranks do not divide, with fewer rows than ranks too."""
    for shape in ((9, 3), (5, 2), (3, 8, 2)) if mesh.ndim == 1 else ((5, 3),):
        x, weight = torch.randn(shape), torch.randn(shape)
        for placements in every_placement(x, mesh):
            source = placed(x, mesh, *placements).requires_grad_()
            replica = source.redistribute(placements=spread_over(mesh, R))
            yield replica.to_local(), x
            there = placed(weight, mesh, *placements)
            back = replica.redistribute(placements=placements)
            (grad,) = torch.autograd.grad((back * there).sum(), source)
            yield grad, weight


def addends_become_values(mesh: DeviceMesh) -> Iterator[Outcome]:
    for shape in ((4, 8), (5, 3)):
        x = torch.randn(shape)
        addends = DTensor.from_local(x.clone().requires_grad_(), mesh, spread_over(mesh, Partial()))
        for placements in every_placement(x, mesh):
            yield addends.redistribute(placements=placements), x * mesh.size()
        average = DTensor.from_local(x, mesh, spread_over(mesh, Partial("avg")))
        yield average.full_tensor(), x


def matrix_products(mesh: DeviceMesh) -> Iterator[Outcome]:
    a, b, bias = torch.randn(8, 12), torch.randn(12, 4), torch.randn(4)
    want = a @ b
    pairs = list(product(every_placement(a, mesh), every_placement(b, mesh)))
    for left, right in pairs[:: 1 if mesh.ndim == 1 else 16]:
        yield placed(a, mesh, *left) @ placed(b, mesh, *right), want
    for left, right in ((S0, R), (R, S1), (S1, S0), (R, R)):
        x, y, z = (placed(t, mesh, p).requires_grad_() for t, p in ((a, left), (b, right), (bias, R)))
        one = [t.clone().requires_grad_() for t in (bias, a, b)]
        yield torch.addmm(z, x, y), torch.addmm(*one)
        yield (
            torch.autograd.grad(torch.addmm(z, x, y).sin().sum(), (z, x, y)),
            torch.autograd.grad(torch.addmm(*one).sin().sum(), one),
        )


def on_every_sharding(mesh: DeviceMesh, op: Callable[..., Any], *tensors: Tensor, **options: Any) -> Iterator[Outcome]:
    """The op on all combinations of replicas and even shards of its tensors."""

    def choices(x: Tensor) -> list[Placement]:
        return [R, *(Shard(d) for d, n in enumerate(x.shape) if n % mesh.size() == 0)]

    want = op(*tensors, **options)
    for placements in product(*map(choices, tensors)):
        pairs = zip(tensors, placements, strict=True)
        yield op(*(placed(x, mesh, p) for x, p in pairs), **options), want


def batched_products(mesh: DeviceMesh) -> Iterator[Outcome]:
    yield from on_every_sharding(mesh, torch.bmm, torch.randn(4, 8, 12), torch.randn(4, 12, 3))
    yield from on_every_sharding(mesh, torch.baddbmm, torch.randn(3), torch.randn(4, 8, 3), torch.randn(4, 3, 3))


def pointwise_of_unlike_shards(mesh: DeviceMesh) -> Iterator[Outcome]:
    x, y = torch.randn(8, 4), torch.randn(8, 4)
    yield from on_every_sharding(mesh, torch.mul, x, y)
    yield from on_every_sharding(mesh, torch.where, x > 0, x, torch.tensor(1.0))
    yield from on_every_sharding(mesh, torch.add, x, torch.randn(4))


def pointwise_of_addends(mesh: DeviceMesh) -> Iterator[Outcome]:
    """What is not linear needs the sum first."""
    x = torch.randn(6, 5)
    whole = x * mesh.size()
    addends = DTensor.from_local(x, mesh, spread_over(mesh, Partial()))
    for op in (torch.relu, torch.exp, torch.sigmoid, lambda t: F.gelu(t) * 2):
        yield op(addends), op(whole)
    yield addends + placed(x, mesh, R), whole + x
    yield addends * addends, whole * whole


def reductions(mesh: DeviceMesh) -> Iterator[Outcome]:
    x = torch.randn(8, 12)
    for op in (torch.mean, torch.amax, torch.argmax, torch.linalg.vector_norm):
        for dim in (0, 1):
            yield from on_every_sharding(mesh, op, x, dim=dim)
        yield from on_every_sharding(mesh, op, x)
    positive = 1 + torch.rand(8, 4)
    yield from on_every_sharding(mesh, torch.prod, positive)
    yield from on_every_sharding(mesh, torch.cumsum, x, dim=0)
    yield from on_every_sharding(mesh, lambda t: torch.topk(t, 3, dim=0).values, x)
    yield from on_every_sharding(mesh, lambda t: torch.sort(t, dim=1).values, x)


def softmaxes_and_their_gradients(mesh: DeviceMesh) -> Iterator[Outcome]:
    x, weight = torch.randn(8, 12), torch.randn(8, 12)
    for op, dim in product((F.softmax, F.log_softmax), (0, -1)):
        one = x.clone().requires_grad_()
        want = op(one, dim=dim)
        (want_grad,) = torch.autograd.grad((want * weight).sum(), one)
        for placement in (S0, S1, R):
            d = placed(x, mesh, placement).requires_grad_()
            result = op(d, dim=dim)
            yield result, want
            loss = (result * placed(weight, mesh, R)).sum()
            yield torch.autograd.grad(loss, d)[0], want_grad


def layer_norms_and_their_gradients(mesh: DeviceMesh) -> Iterator[Outcome]:
    x, weight, bias = torch.randn(8, 4, 12), torch.randn(12), torch.randn(12)
    one = [t.clone().requires_grad_() for t in (x, weight, bias)]
    want = F.layer_norm(one[0], (12,), one[1], one[2])
    want_grads = torch.autograd.grad(want.square().sum(), one)
    for placement in (S0, S1, Shard(2), R):
        replicas = [placed(t, mesh, R).requires_grad_() for t in (weight, bias)]
        inputs = [placed(x, mesh, placement).requires_grad_(), *replicas]
        result = F.layer_norm(inputs[0], (12,), inputs[1], inputs[2])
        yield result, want
        yield torch.autograd.grad(result.square().sum(), inputs), want_grads


def losses(mesh: DeviceMesh) -> Iterator[Outcome]:
    logits, classes = torch.randn(8, 16), torch.randint(16, (8,))
    one = logits.clone().requires_grad_()
    want = F.cross_entropy(one, classes)
    (want_grad,) = torch.autograd.grad(want, one)
    for placement in (S0, R):
        d = placed(logits, mesh, placement).requires_grad_()
        loss = F.cross_entropy(d, placed(classes, mesh, placement))
        yield loss, want
        yield torch.autograd.grad(loss, d)[0], want_grad
    with loss_parallel():
        d = placed(logits, mesh, S1).requires_grad_()
        loss = F.cross_entropy(d, placed(classes, mesh, R))
        yield loss, want
        yield torch.autograd.grad(loss, d)[0], want_grad


def embeddings(mesh: DeviceMesh) -> Iterator[Outcome]:
    """By columns and by rows: of the latter the addends are torch's own kind, left to it."""
    table, words = torch.randn(12, 8), torch.randint(12, (4, 6))
    one = table.clone().requires_grad_()
    want = F.embedding(words, one)
    (want_grad,) = torch.autograd.grad(want.square().sum(), one)
    for of_table, of_words in product((S0, S1, R), (S0, R)):
        d = placed(table, mesh, of_table).requires_grad_()
        result = F.embedding(placed(words, mesh, of_words), d)
        result = result.redistribute(placements=spread_over(mesh, R))  # once: its addends remember a mask until then
        yield result, want
        yield torch.autograd.grad(result.square().sum(), d)[0], want_grad


def joins_and_picks(mesh: DeviceMesh) -> Iterator[Outcome]:
    x, y, places = torch.randn(8, 4), torch.randn(8, 4), torch.randint(8, (4, 4))
    for dim in (0, 1):
        yield from on_every_sharding(mesh, lambda a, b, dim=dim: torch.cat([a, b], dim), x, y)
    yield from on_every_sharding(mesh, lambda a, i: torch.gather(a, 0, i), x, places)
    yield from on_every_sharding(mesh, lambda a, i: torch.index_select(a, 0, i), x, torch.tensor([1, 0, 5, 3]))
    yield from on_every_sharding(mesh, lambda a: a[1:7, ::2], x)
    yield from on_every_sharding(mesh, lambda a: a.split(3, 0)[1], x)


def views(mesh: DeviceMesh) -> Iterator[Outcome]:
    x = torch.randn(8, 4, 16)
    changes: Sequence[Callable[[Any], Any]] = (
        lambda t: t.flatten(0, 1),
        lambda t: t.view(8, 4, 4, 4).transpose(1, 2),
        lambda t: t.permute(2, 0, 1),
        lambda t: t.unsqueeze(1).expand(8, 2, 4, 16),
        lambda t: t.repeat(2, 1, 1),
    )
    for change in changes:
        for placement in (S0, Shard(2), R):
            changed = change(placed(x, mesh, placement))
            yield changed.redistribute(placements=spread_over(mesh, R)), change(x)


def local_parts_and_their_gradients(mesh: DeviceMesh) -> Iterator[Outcome]:
    """from_local, full_tensor and to_local(grad_placements=…), whose gradients are redistributed."""
    weight = torch.randn(8, 12)
    for placement in (S0, S1, R):
        local = placed(torch.randn(8, 12), mesh, placement).to_local().requires_grad_()
        d = DTensor.from_local(local, mesh, spread_over(mesh, placement), run_check=False)
        (grad,) = torch.autograd.grad((d.full_tensor() * weight).sum(), local)
        yield grad, placed(weight, mesh, placement).to_local()
        (grad,) = torch.autograd.grad((d * placed(weight, mesh, S0)).sum(), local)
        yield grad, placed(weight, mesh, placement).to_local()
    x = placed(torch.randn(8, 12), mesh, S0).requires_grad_()
    whole = x.redistribute(placements=spread_over(mesh, R)).to_local(grad_placements=spread_over(mesh, Partial()))
    (grad,) = torch.autograd.grad((whole * weight).sum(), x)
    yield grad, weight * mesh.size()


ON_ANY_MESH: Sequence[Program] = (
    redistributes_with_gradients,
    addends_become_values,
    matrix_products,
    local_parts_and_their_gradients,
)
ON_A_ROW: Sequence[Program] = (
    batched_products,
    pointwise_of_unlike_shards,
    pointwise_of_addends,
    reductions,
    softmaxes_and_their_gradients,
    layer_norms_and_their_gradients,
    losses,
    embeddings,
    joins_and_picks,
    views,
)
