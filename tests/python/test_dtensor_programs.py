"""Programs in the manner of torch's own tests of DTensor give inside use_for_dtensor() what one process gives."""

from __future__ import annotations

import logging
import os
import warnings

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

import shardway as sw
from tests.support import dtensor_models as models
from tests.support import dtensor_programs as programs
from tests.support.ranks import run_ranks
from tests.support.versions import needs_torch

LEFT_TO_TORCH = {"addends are to be made", "a placement is neither a box nor an addend of the tensor", "async_op=True"}


def whole(tree):
    return tree_map(lambda x: x.full_tensor() if isinstance(x, DTensor) else x, tree)


def outcomes_of(program, mesh, seed):
    torch.manual_seed(seed)
    return [(whole(got), want) for got, want in program(mesh)]


def moved():
    return sw.stats()["dtensor"]["moved"]


def compare(program, mesh, seed):
    plain = outcomes_of(program, mesh, seed)
    before = moved()
    with sw.use_for_dtensor():
        ours = outcomes_of(program, mesh, seed)
    what = f"{program.__name__} on {mesh}"
    assert moved() > before, f"{what}: nothing moved on shardway"
    for number, ((got, want), (theirs, _)) in enumerate(zip(ours, plain, strict=True)):
        for right, source in ((want, "one process"), (theirs, "torch's own")):
            outcome = f"{what}, outcome {number} beside {source}"
            torch.testing.assert_close(got, right, msg=lambda text, outcome=outcome: f"{outcome}: {text}")


def compare_all(rank, size, seed):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"  # of gloo: the other backend is shared memory as it is
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # torch warns of its own slow ways
    row, grid = DeviceMesh("cpu", torch.arange(4)), DeviceMesh("cpu", torch.arange(4).view(2, 2))
    of_both = (*programs.ON_ANY_MESH, *models.ON_ANY_MESH)
    for mesh, wanted in ((row, (*of_both, *programs.ON_A_ROW, *models.ON_A_ROW)), (grid, of_both)):
        for program in wanted:
            compare(program, mesh, seed)
    assert set(sw.stats()["dtensor"]["left_to_torch"]) == LEFT_TO_TORCH


ON_GLOO = pytest.param("gloo", marks=needs_torch(2, 13, "its argmin fails on gloo"))


@pytest.mark.parametrize("backend", [ON_GLOO, "shardway"])
def test_programs_of_every_kind_give_the_same(backend, seed):
    run_ranks(4, compare_all, seed, backend=backend, timeout_s=180)
