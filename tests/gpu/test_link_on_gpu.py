"""A link whose tensors are on a GPU that the jobs share, and one between a GPU and the CPU."""

from __future__ import annotations

import pytest
import torch

import shardway as sw
from tests.support.gpu_cases import cuda_alone
from tests.support.jobs import free_ports
from tests.support.ranks import run_ranks

pytestmark = cuda_alone
ROWS, COLUMNS = 60, 32
NAMES = [f"w{i}" for i in range(40)]


def value(name: str, version: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * version + int(name[1:]))
    return torch.randn(ROWS, COLUMNS, generator=generator).to(dtype)


def no_group(rank: int, size: int) -> None:
    torch.cuda.set_device(0)


def layout(size: int, dim: int) -> sw.Layout:
    return sw.Layout((ROWS, COLUMNS), torch.float32, sw.Mesh((size,)), [sw.Shard(dim)])


def trainer(link: sw.JobLink, device: str, versions: int, wait: bool) -> None:
    lies = layout(link.size, 0)
    rows = slice(*[ROWS * (link.rank + i) // link.size for i in (0, 1)])
    parts = {name: torch.empty(ROWS // link.size, COLUMNS, device=device) for name in NAMES}
    source = link.publish({name: sw.MeshTensor(part, lies) for name, part in parts.items()})
    for version in range(1, versions + 1):
        for name, part in parts.items():
            part.copy_(value(name, version)[rows])
        if version == 3:  # storages that were replaced
            parts = {name: part.clone() for name, part in parts.items()}
            tensors = {name: sw.MeshTensor(part, lies) for name, part in parts.items()}
            assert source.send(tensors, wait=wait) == version
        else:
            assert source.send(wait=wait) == version


def generator(link: sw.JobLink, device: str, versions: int, dtype: torch.dtype) -> None:
    lies = layout(link.size, 1)
    columns = slice(*[COLUMNS * (link.rank + i) // link.size for i in (0, 1)])
    width = COLUMNS // link.size
    fused = torch.full((len(NAMES), ROWS, width + 2), torch.nan, device=device, dtype=dtype)  # with a border
    lies = sw.Layout(lies.shape, dtype, lies.mesh, lies.placements)
    views = {name: sw.MeshTensor(fused[i, :, 1:-1], lies) for i, name in enumerate(NAMES)}
    target = link.subscribe(views, cast=dtype != torch.float32)
    for version in range(1, versions + 1):
        assert target.receive() == version
        for i, name in enumerate(NAMES):
            assert fused[i, :, 1:-1].cpu().equal(value(name, version, dtype)[:, columns]), (
                f"{name} of version {version}"
            )
    assert fused[:, :, 0].isnan().all() and fused[:, :, -1].isnan().all()
    assert "the least possible" in link.explain()


def jobs(rank, size, address, devices, wait, dtype):
    half = size // 2
    role = "trainer" if rank < half else "generator"
    with sw.connect(address, role, rank % half, half, timeout=60) as link:
        if role == "trainer":
            trainer(link, devices[0], 5, wait)
        else:
            generator(link, devices[1], 5, dtype)


@pytest.mark.parametrize("size", [2, 4], ids=lambda n: f"{n // 2}+{n // 2}")
@pytest.mark.parametrize("devices", [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")], ids="-".join)
@pytest.mark.parametrize("wait", [True, False], ids=["waiting", "without waiting"])
def test_versions_arrive_whole(gpu, size, devices, wait):
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    run_ranks(size, jobs, address, devices, wait, torch.float32, enter=no_group, timeout_s=90.0)


def test_a_dtype_is_cast_on_the_gpu(gpu):
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    run_ranks(4, jobs, address, ("cuda", "cuda"), True, torch.bfloat16, enter=no_group, timeout_s=90.0)
