"""What people use torch.distributed for, on the backend: the same numbers as on gloo."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import shardway  # noqa: F401
from tests.support.ranks import ranks, run_ranks


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8))


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(12, 16, generator=generator), torch.randn(12, 8, generator=generator)


def losses(trained: nn.Module, rank: int, steps: int = 20) -> list[float]:
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
    said = []
    for step in range(steps):
        x, y = batch(rank, step)
        loss = nn.functional.mse_loss(trained(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        said.append(loss.item())
    return said


def close(got: list[float], expected: list[float]) -> None:
    torch.testing.assert_close(torch.tensor(got), torch.tensor(expected), rtol=1e-5, atol=1e-6)


def train_with_ddp(rank: int, size: int) -> list[float]:
    return losses(DistributedDataParallel(model(), bucket_cap_mb=1), rank)


def test_ddp_has_the_losses_that_it_has_on_gloo() -> None:
    ours = run_ranks(2, train_with_ddp, backend="shardway")
    theirs = run_ranks(2, train_with_ddp, backend="gloo")
    for got, expected in zip(ours, theirs, strict=True):
        close(got, expected)
    assert ours[0][-1] < ours[0][0]


@ranks(3, backend="shardway")
def test_fully_shard_trains_as_one_process_does(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    sharded = model()
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    got = losses(sharded, rank, steps=5)
    alone = model()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.05)
    expected = []
    for step in range(5):
        parts = [nn.functional.mse_loss(alone(batch(r, step)[0]), batch(r, step)[1]) for r in range(size)]
        optimizer.zero_grad()
        (sum(parts[1:], parts[0]) / size).backward()
        optimizer.step()
        expected.append(parts[rank].item())
    close(got, expected)
    for got_parameter, parameter in zip(sharded.parameters(), alone.parameters(), strict=True):
        assert isinstance(got_parameter, DTensor)
        torch.testing.assert_close(got_parameter.full_tensor(), parameter)


@ranks(4, backend="shardway")
def test_dtensor_multiplies_and_redistributes(rank: int, size: int) -> None:
    torch.manual_seed(5)
    a, b = torch.randn(10, 7), torch.randn(7, 9)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    for left in ([Shard(0), Shard(1)], [Replicate(), Shard(0)]):
        for right in ([Replicate(), Shard(0)], [Shard(1), Replicate()]):
            product = distribute_tensor(a, mesh, left) @ distribute_tensor(b, mesh, right)
            torch.testing.assert_close(product.full_tensor(), a @ b)
    moved = distribute_tensor(a, mesh, [Shard(0), Shard(0)]).redistribute(placements=[Shard(1), Replicate()])
    torch.testing.assert_close(moved.full_tensor(), a, rtol=0, atol=0)


@ranks(2, 3, backend="shardway")
def test_tensor_parallel_layers_equal_the_whole_ones(rank: int, size: int) -> None:
    def mlp() -> nn.Sequential:
        torch.manual_seed(11)
        return nn.Sequential(nn.Linear(12, 18), nn.ReLU(), nn.Linear(18, 6))

    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(2))
    mesh = init_device_mesh("cpu", (size,))
    split = parallelize_module(mlp(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    whole = mlp()
    torch.testing.assert_close(split(x), whole(x))
    split(x).square().sum().backward()
    whole(x).square().sum().backward()
    for got, expected in zip(split.parameters(), whole.parameters(), strict=True):
        assert isinstance(got.grad, DTensor) and expected.grad is not None
        torch.testing.assert_close(got.grad.full_tensor(), expected.grad)


def whole_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    return {"a": torch.randn(13, 5, generator=generator), "b": torch.randn(6, generator=generator)}


def sharded_tensors(size: int, fill: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (size,))
    return {name: distribute_tensor(fill(t), mesh, [Shard(0)]) for name, t in whole_tensors().items()}


def save(rank: int, size: int, folder: str) -> None:
    checkpoint.save(sharded_tensors(size, lambda t: t), checkpoint_id=folder)


def load(rank: int, size: int, folder: str) -> None:
    state = sharded_tensors(size, torch.zeros_like)
    checkpoint.load(state, checkpoint_id=folder)
    for name, expected in whole_tensors().items():
        assert torch.equal(state[name].full_tensor(), expected)


def test_a_checkpoint_of_three_ranks_is_loaded_by_two() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(3, save, str(Path(folder) / "saved"), backend="shardway")
        run_ranks(2, load, str(Path(folder) / "saved"), backend="shardway")


@ranks(3, backend="shardway")
def test_join_lets_ranks_have_different_numbers_of_batches(rank: int, size: int) -> None:
    trained = DistributedDataParallel(nn.Linear(2, 1, bias=False))
    nn.init.constant_(trained.module.weight, 1.0)
    steps = 0
    with Join([trained]):
        for step in range(2 + rank):
            trained(torch.full((1, 2), float(rank + step))).sum().backward()
            steps += 1
    assert steps == 2 + rank
    weights = [torch.empty(1, 2) for _ in range(size)]
    dist.all_gather(weights, trained.module.weight.detach())
    assert all(torch.equal(w, weights[0]) for w in weights)


@ranks(2, backend="shardway")
def test_objects_and_functional_collectives(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as functional

    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "words": "x" * (rank * 50_000)})
    assert [o["rank"] for o in objects] == [0, 1] and len(objects[1]["words"]) == 50_000
    words = ["first", 2] if rank == 0 else [None, None]
    dist.broadcast_object_list(words, 0)
    assert words == ["first", 2]
    x = torch.arange(6.0) + rank
    assert torch.equal(functional.all_reduce(x, "sum", dist.group.WORLD), 2 * torch.arange(6.0) + 1)
    gathered = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    assert torch.equal(gathered, torch.cat([torch.arange(6.0), torch.arange(6.0) + 1]))
    scattered = functional.reduce_scatter_tensor(x, "avg", 0, dist.group.WORLD)
    assert torch.equal(scattered, (torch.arange(6.0) + 0.5)[3 * rank : 3 * rank + 3])
