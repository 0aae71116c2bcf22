"""FSDP2 over tensor parallelism on both sides of a link: what state_dict() gives goes out, and comes in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.support.jobs import Place, free_ports, run_jobs

HIDDEN = 6


@contextmanager
def group_of(place: Place, port: int) -> Iterator[None]:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    method = f"tcp://127.0.0.1:{port}"
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=method, rank=place.rank, world_size=place.size, timeout=limit)
    yield
    dist.destroy_process_group()


def model_of(inner: int, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(HIDDEN, inner), torch.nn.ReLU(), torch.nn.Linear(inner, HIDDEN))


def in_parallel(model: torch.nn.Module, data: int, tensor: int) -> torch.nn.Module:
    """Tensor parallel inside, FSDP2 outside, as torch documents it: the first weight is strided."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = init_device_mesh("cpu", (data, tensor), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    assert any(isinstance(p, _StridedShard) for t in model.state_dict().values() for p in t.placements)
    return model


def _publish(place: Place, port: int, inner: int) -> None:
    with group_of(place, port), place.connect(timeout=60) as link:
        model = in_parallel(model_of(inner, seed=3), 2, 2)
        source = link.publish(model.state_dict())
        assert source.send() == 1
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2)
        assert source.send() == 2


def _receive_whole(place: Place, inner: int) -> None:
    wanted = model_of(inner, seed=3).state_dict()
    got = {name: torch.full_like(tensor, float("nan")) for name, tensor in wanted.items()}
    with place.connect(timeout=60) as link:
        target = link.subscribe(got)
        for times in (1, 2):
            target.receive()
            for name, tensor in got.items():
                assert torch.equal(tensor, times * wanted[name]), name


@pytest.mark.parametrize("inner", [8, 10], ids=["even", "uneven"])
def test_a_module_of_fsdp_over_tensor_parallelism_is_sent_whole(inner):
    (port,) = free_ports(1)
    run_jobs({"trainer": (4, lambda p: _publish(p, port, inner)), "generator": (1, lambda p: _receive_whole(p, inner))})


def _publish_whole(place: Place, inner: int) -> None:
    with place.connect(timeout=60) as link:
        assert link.publish(model_of(inner, seed=4).state_dict()).send() == 1


def _receive_in_module(place: Place, port: int, inner: int) -> None:
    with group_of(place, port), place.connect(timeout=60) as link:
        model = in_parallel(model_of(inner, seed=5), 2, 2)
        assert link.subscribe(model.state_dict()).receive() == 1
        for name, tensor in model_of(inner, seed=4).state_dict().items():
            assert torch.equal(model.state_dict()[name].full_tensor(), tensor), name


def test_a_module_of_fsdp_over_tensor_parallelism_is_filled_as_torch_reads_it():
    (port,) = free_ports(1)
    jobs = {
        "trainer": (1, lambda p: _publish_whole(p, 10)),
        "generator": (4, lambda p: _receive_in_module(p, port, 10)),
    }
    run_jobs(jobs)
