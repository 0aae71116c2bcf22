"""Modules spread over ranks in the manner of torch's own tests: outputs, gradients and trained weights, each beside
those of the same module in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed._tensor.common_dtensor import MLPModule, MLPStacked, ModelArgs, Transformer

from .dtensor_programs import Outcome, Program

Spread = Callable[[nn.Module], nn.Module]


def trained(alone: nn.Module, spread: Spread, x: Tensor, part: Callable[[Tensor], Tensor]) -> Iterator[Outcome]:
    """Two steps of a module in one process and of its copy on all ranks, which is given a part of x."""
    ours = spread(deepcopy(alone))
    models = [(ours, part(x)), (alone, x)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, foreach=False) for model, _ in models]
    for _ in range(2):
        outputs = [model(given) for model, given in models]
        yield outputs[0], outputs[1] if outputs[0].shape == outputs[1].shape else part(outputs[1])
        for output in outputs:
            output.square().sum().backward()
        yield [p.grad for p in ours.parameters()], [p.grad for p in alone.parameters()]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    yield list(ours.parameters()), list(alone.parameters())


def tensor_parallel_layers(mesh: DeviceMesh) -> Iterator[Outcome]:
    def spread(model: nn.Module) -> nn.Module:
        plan = {"layers.*.net1": ColwiseParallel(), "layers.*.net2": RowwiseParallel()}
        return parallelize_module(model, mesh, plan)

    yield from trained(MLPStacked("cpu"), spread, torch.randn(6, 10), lambda x: x)


def sequence_parallel_layers(mesh: DeviceMesh) -> Iterator[Outcome]:
    """Activations are sharded between the layers; every rank is given and gives its rows."""

    def spread(model: nn.Module) -> nn.Module:
        plan = {"net1": ColwiseParallel(input_layouts=Shard(0)), "net2": RowwiseParallel(output_layouts=Shard(0))}
        return parallelize_module(model, mesh, plan)

    def rows(x: Tensor) -> Tensor:
        return x.chunk(mesh.size())[mesh.get_local_rank()]

    yield from trained(MLPModule("cpu"), spread, torch.randn(8, 10), rows)


def prepared_inputs_and_outputs(mesh: DeviceMesh) -> Iterator[Outcome]:
    def spread(model: nn.Module) -> nn.Module:
        rows, columns = Shard(0), Shard(1)
        style = PrepareModuleInput(input_layouts=rows, desired_input_layouts=Replicate())
        model = parallelize_module(model, mesh, style)
        plan = {"net1": ColwiseParallel(use_local_output=False), "net2": RowwiseParallel(use_local_output=False)}
        model = parallelize_module(model, mesh, plan)
        return parallelize_module(model, mesh, PrepareModuleOutput(output_layouts=columns, desired_output_layouts=rows))

    def rows(x: Tensor) -> Tensor:
        return x.chunk(mesh.size())[mesh.get_local_rank()]

    yield from trained(MLPModule("cpu"), spread, torch.randn(8, 10), rows)


def a_transformer(mesh: DeviceMesh) -> Iterator[Outcome]:
    """The wheel's own, with its attention and embeddings, tensor-parallel, sequence-parallel between its blocks."""
    words = torch.randint(8, (4, 8))
    alone = Transformer(ModelArgs(n_layers=1, dropout_p=0, weight_tying=False))
    ours = Transformer.parallelize(deepcopy(alone), mesh, use_seq_parallel=True, local_output_for_attn=True)
    results = [ours(words), alone(words)]
    yield results[0], results[1]
    for logits in results:
        F.cross_entropy(logits.flatten(0, 1), words.flatten()).backward()
    yield [p.grad for p in ours.parameters()], [p.grad for p in alone.parameters()]


def modules_partitioned_by_hand(mesh: DeviceMesh) -> Iterator[Outcome]:
    """By distribute_module, weights sharded over every dim of the mesh, uneven ones too."""

    def spread(model: nn.Module) -> nn.Module:
        def shard_weights(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
            for key, weight in list(module.named_parameters(recurse=False)):
                sharded = distribute_tensor(weight, mesh, [Shard(0)] * mesh.ndim, src_data_rank=None)
                module.register_parameter(key, nn.Parameter(sharded))

        def replicate(module: nn.Module, inputs: Sequence[Tensor], mesh: DeviceMesh) -> Sequence[Tensor]:
            return tuple(DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False) for x in inputs)

        def gathered(module: nn.Module, output: DTensor, mesh: DeviceMesh) -> Tensor:
            return output.full_tensor()

        return distribute_module(model, mesh, shard_weights, replicate, gathered)

    yield from trained(MLPModule("cpu"), spread, torch.randn(5, 10), lambda x: x)


ON_ANY_MESH: Sequence[Program] = (modules_partitioned_by_hand,)
ON_A_ROW: Sequence[Program] = (
    tensor_parallel_layers,
    sequence_parallel_layers,
    prepared_inputs_and_outputs,
    a_transformer,
)
