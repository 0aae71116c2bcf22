"""Lets tests that ask for GPUs run where there are none: their tensors and modules stay on the CPU.

What these tests check of a backend, most of them through DistributedDataParallel, does not depend on the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.testing._internal.common_distributed as decorators
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from tests.torch_suite import sync_batch_norm
from tests.torch_suite.names import WORLD


def open_decorators() -> None:
    """To be called before the suite is imported: marks what would be skipped for want of GPUs."""

    def mark(test: Callable[..., Any]) -> Callable[..., Any]:
        test.wants_gpus = True  # type: ignore[attr-defined]
        return test

    decorators.skip_if_no_gpu = mark
    decorators.skip_if_lt_x_gpu = lambda count, **_: mark  # type: ignore[assignment]


def stand_in(module: ModuleType) -> None:
    """In a rank, for the rest of its life."""
    module.init_multigpu_helper = lambda world, backend: {rank: [rank] for rank in range(WORLD)}  # type: ignore[attr-defined]
    for name in ("set_device", "synchronize", "manual_seed", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
    torch.accelerator.current_stream = lambda device=None: _Done()  # type: ignore[assignment,return-value]
    torch.Stream = torch.Event = _Done  # type: ignore[assignment,misc]
    sync_batch_norm.stand_in()
    plain_group = dist.new_group
    dist.new_group = lambda *args, backend=None, **kwargs: plain_group(  # type: ignore[assignment]
        *args, backend="shardway" if backend == "nccl" else backend, **kwargs
    )
    torch.nn.Module.cuda = lambda self, device=None: self  # type: ignore[method-assign,assignment]
    plain_to = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *args, **kwargs: plain_to(self, *map(_on_cpu, args), **_moved(kwargs))  # type: ignore[method-assign,assignment]
    _without_devices(DistributedDataParallel)
    _Mode().__enter__()


class _Done:
    """A stream or an event of the CPU: its work is over when a call returns."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def record(self) -> None:
        pass

    def wait(self, stream: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.device and isinstance(args[0], int):
            return torch.device("cpu")
        if func is torch.Tensor.to:
            args = (args[0], *map(_on_cpu, args[1:]))
        return func(*args, **_moved(kwargs or {}))


def _moved(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: _on_cpu(value) if name == "device" else value for name, value in kwargs.items()}


def _on_cpu(value: Any) -> Any:
    is_index = isinstance(value, int) and not isinstance(value, bool)
    is_gpu = isinstance(value, torch.device) and value.type == "cuda"
    is_name = isinstance(value, str) and value.startswith("cuda")
    return torch.device("cpu") if is_index or is_gpu or is_name else value


def _without_devices(wrapper: Any) -> None:
    plain = wrapper.__init__

    @functools.wraps(plain)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        plain(self, module, None, None, *args, **kwargs)

    wrapper.__init__ = init
