"""MeshTensors saved by torch.distributed.checkpoint on some ranks and loaded by others, in other layouts."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp

import shardway as sw
from tests.support.mesh_reference import held, part
from tests.support.ranks import run_ranks

WHOLE = torch.arange(63.0).view(9, 7)
FLAGS = torch.arange(5) % 2 == 0
RAGGED = sw.Shard(0, (4, 0, 5))


def placed(whole, rank, mesh, placements, fill=True):
    layout = sw.Layout(tuple(whole.shape), whole.dtype, mesh, placements)
    local = part(whole, held(layout, rank))
    return sw.MeshTensor(local if fill else torch.zeros_like(local), layout)


def save(rank, size, folder):
    state = {
        "weight": placed(WHOLE, rank, sw.Mesh((3,)), [RAGGED]),
        "nested": {"flags": placed(FLAGS, rank, sw.Mesh((3,)), [sw.Replicate()])},
        "step": 7,
    }
    dcp.save(sw.for_checkpoint(state), checkpoint_id=folder)


def load(rank, size, folder, mesh_shape, placements):
    mesh = sw.Mesh(mesh_shape)
    weight = placed(WHOLE, rank, mesh, placements, fill=False)
    flags = placed(FLAGS, rank, mesh, [sw.Shard(0)] + [sw.Replicate()] * (len(mesh_shape) - 1), fill=False)
    state = sw.for_checkpoint({"weight": weight, "nested": {"flags": flags}, "step": 0})
    dcp.load(state, checkpoint_id=folder)
    assert state["step"] == 7
    assert torch.equal(weight.full(), WHOLE)
    assert torch.equal(flags.full(), FLAGS)


@pytest.mark.parametrize(
    ("size", "mesh_shape", "placements"),
    [
        (1, (1,), [sw.Replicate()]),
        (2, (2,), [sw.Shard(1)]),
        (4, (2, 2), [sw.Shard(0), sw.Shard(1)]),
        (3, (3,), [sw.Shard(0, (0, 1, 8))]),
    ],
)
def test_saved_ragged_on_three_ranks(tmp_path, size, mesh_shape, placements):
    run_ranks(3, save, str(tmp_path))
    run_ranks(size, load, str(tmp_path), mesh_shape, placements)


def test_addends_are_refused():
    mesh = sw.Mesh((1,))
    layout = sw.Layout((2,), torch.float32, mesh, [sw.Partial()])
    with pytest.raises(ValueError, match="made of addends"):
        sw.for_checkpoint({"x": sw.MeshTensor(torch.ones(2), layout)})


def test_it_is_for_checkpoints_alone():
    layout = sw.Layout((2,), torch.float32, sw.Mesh((1,)), [sw.Replicate()])
    part = sw.for_checkpoint(sw.MeshTensor(torch.ones(2), layout))
    with pytest.raises(NotImplementedError, match="use the MeshTensor"):
        part + 1
