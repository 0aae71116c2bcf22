"""Several ranks on one GPU: what tests/gpu and bench.gpu start with.

NCCL refuses two ranks on one GPU unless each says that it is on a host of its own; then they talk over sockets of the
loopback interface. The server of MPS lets kernels of several processes run at the same time; without it they take
turns of a third of a millisecond.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

_MPS = "nvidia-cuda-mps-control"
_COUNT = "import torch; print(torch.cuda.device_count())"


def why_no_gpu() -> str | None:
    """Asked in a process of its own: one that has looked for a GPU can fork no ranks that use it."""
    if not torch.backends.cuda.is_built():
        return f"torch {torch.__version__} is built without CUDA"
    if not dist.is_nccl_available():
        return f"torch {torch.__version__} is built without NCCL"
    found = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=False)
    return None if found.stdout.strip().isdigit() and int(found.stdout) > 0 else "torch finds no GPU"


@contextlib.contextmanager
def mps() -> Iterator[None]:
    """Ranks forked inside share the GPU. Without the program, or where it has been started, as it is."""
    if shutil.which(_MPS) is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        ours = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for path in ours.values():
            Path(path).mkdir()
        os.environ.update(ours)
        try:
            subprocess.run([_MPS, "-d"], check=True, timeout=30)
            try:
                yield
            finally:
                subprocess.run([_MPS], input="quit\n", text=True, check=False, timeout=30, stdout=subprocess.DEVNULL)
        finally:
            for name in ours:
                del os.environ[name]


def enter_group(rank: int, size: int, *, store: Path, backend: str = "nccl", timeout_s: float = 60.0) -> None:
    os.environ["NCCL_HOSTID"] = f"rank{rank}"
    os.environ["NCCL_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.cuda.set_device(0)
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s)
    )
