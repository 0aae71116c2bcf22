"""Samples of torch's own database of operators on DTensors: the same values within use_for_dtensor() as without.

SHARDWAY_TEST_SEED gives the seed; without, it is a new one, which is printed when a test fails.
"""

from __future__ import annotations

import logging
import os
import random
import warnings

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_flatten, tree_map

import shardway as sw
from tests.support.ranks import run_ranks

SAMPLES = 200
TOO_SLOW = "nn.functional.scaled_dot_product_attention"  # torch looks for its sharding for minutes


def is_pointwise(op):
    """These take any shards. Of others torch refuses uneven shards on some ranks only, and hangs on the rest; some
    die of an empty tensor."""
    return isinstance(op, (BinaryUfuncInfo, UnaryUfuncInfo))


def tensors_in(tree):
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def is_taken(op, x):
    return x.layout == torch.strided and (is_pointwise(op) or x.numel() > 0)


def samples_of(op):
    samples = [(s.input, s.args, s.kwargs) for s in op.sample_inputs("cpu", torch.float32, requires_grad=False)]
    return [sample for sample in samples if all(is_taken(op, x) for x in tensors_in(sample))]


def distributed(op, sample, mesh, dice):
    """The arguments of a sample, sharded by chance; the same on every rank."""

    def put(x):
        if not isinstance(x, torch.Tensor):
            return x
        dims = [d for d in range(x.ndim) if is_pointwise(op) or x.shape[d] % mesh.size() == 0]
        kinds = [*map(Shard, dims), Replicate()]
        return distribute_tensor(x, mesh, [dice.choice(kinds) for _ in range(mesh.ndim)], src_data_rank=None)

    return tree_map(put, sample)


def outcome(op, arguments):
    """The whole values, or why torch's DTensor does not take the arguments."""
    x, args, kwargs = arguments
    torch.manual_seed(0)
    try:
        results = tree_flatten(op.op(x, *args, **kwargs))[0]
        return [y.full_tensor() if isinstance(y, DTensor) else y for y in results]
    except Exception as error:
        return error


@pytest.mark.parametrize("backend", ["gloo", "shardway"])
def test_samples_of_the_op_database(backend, seed):
    run_ranks(4, compare_samples, seed, backend=backend, timeout_s=240)


def compare_samples(rank, size, seed):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"  # of gloo: the other backend is shared memory as it is
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # torch logs what it refuses
    dice = random.Random(seed)
    meshes = [DeviceMesh("cpu", torch.arange(4)), DeviceMesh("cpu", torch.arange(4).view(2, 2))]
    ops = [op for op in op_db if torch.float32 in op.dtypes and op.name != TOO_SLOW]
    ops = [op for op in ops if "empty" not in op.name]  # those give any values
    compared = 0
    while compared < SAMPLES:
        op = dice.choice(ops)
        torch.manual_seed(dice.randrange(2**31))
        samples = samples_of(op)
        if not samples:
            continue
        arguments = distributed(op, dice.choice(samples), dice.choice(meshes), dice)
        theirs = outcome(op, arguments)
        with sw.use_for_dtensor():
            ours = outcome(op, arguments)
        if isinstance(theirs, Exception):  # which shardway may do nevertheless: gloo refuses int16
            continue
        assert not isinstance(ours, Exception), f"{op.name}: {ours!r}"
        torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda text, op=op: f"{op.name}: {text}")
        compared += 1
    assert sw.stats()["dtensor"]["moved"] > SAMPLES // 20
