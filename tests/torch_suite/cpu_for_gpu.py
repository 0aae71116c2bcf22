"""Lets tests that ask for GPUs run on one device: the CPU, or one GPU that all ranks share.

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


def stand_in(module: ModuleType, device: torch.device) -> None:
    """In a rank, for the rest of its life: every GPU is this device."""
    on_cpu = device.type == "cpu"
    module.init_multigpu_helper = lambda world, backend: {rank: [rank] for rank in range(WORLD)}  # type: ignore[attr-defined]
    if on_cpu:
        _stop_asking_for_gpus()
    else:
        _take_for_every_gpu(device)
    plain_group = dist.new_group
    dist.new_group = lambda *args, backend=None, **kwargs: plain_group(  # type: ignore[assignment]
        *args, backend="shardway" if backend == "nccl" else backend, **kwargs
    )
    moved = _Moved(device)
    plain_to = torch.nn.Module.to
    torch.nn.Module.cuda = lambda self, _=None: self if on_cpu else plain_to(self, device)  # type: ignore[method-assign,assignment]
    torch.nn.Module.to = lambda self, *args, **kwargs: plain_to(self, *map(moved.value, args), **moved.named(kwargs))  # type: ignore[method-assign,assignment]
    _with_devices(DistributedDataParallel, None if on_cpu else device)
    moved.__enter__()


def _take_for_every_gpu(device: torch.device) -> None:
    torch.cuda.set_device(device)
    torch.cuda.set_device = lambda _: None
    torch.cuda.device_count = lambda: WORLD  # type: ignore[assignment]
    for name in ("synchronize", "current_stream"):
        on_any = getattr(torch.cuda, name)
        setattr(torch.cuda, name, functools.partial(lambda on_any, *_, **__: on_any(device), on_any))

    class Device(torch.cuda.device):
        def __init__(self, _: object) -> None:
            super().__init__(device)

    class Stream(torch.cuda.Stream):
        def __new__(cls, *_: object, **__: object) -> Stream:
            return super().__new__(cls, device)

    torch.cuda.device, torch.cuda.Stream = Device, Stream  # type: ignore[misc]


def _stop_asking_for_gpus() -> None:
    for name in ("set_device", "synchronize", "manual_seed", "manual_seed_all"):
        setattr(torch.cuda, name, lambda *_, **__: None)
    torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
    torch.accelerator.current_stream = lambda device=None: _Done()  # type: ignore[assignment,return-value]
    torch.Stream = torch.Event = _Done  # type: ignore[assignment,misc]
    sync_batch_norm.stand_in()


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


class _Moved(TorchFunctionMode):
    """Whatever is to be on a GPU is on this device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0] if self._device.type == "cpu" else args[0].to(self._device)
        if func is torch.device and isinstance(args[0], int):
            return self._device
        if func is torch.Tensor.to:
            args = (args[0], *map(self.value, args[1:]))
        return func(*args, **self.named(kwargs or {}))

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {name: self.value(value) if name == "device" else value for name, value in kwargs.items()}

    def value(self, value: Any) -> Any:
        is_index = isinstance(value, int) and not isinstance(value, bool)
        is_gpu = isinstance(value, torch.device) and value.type == "cuda"
        is_name = isinstance(value, str) and value.startswith("cuda")
        return self._device if is_index or is_gpu or is_name else value


def _with_devices(wrapper: Any, device: torch.device | None) -> None:
    """Models that are given GPUs get this device; without one, none."""
    plain = wrapper.__init__

    @functools.wraps(plain)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        plain(self, module, [device] if device and device_ids else None, None, *args, **kwargs)

    wrapper.__init__ = init
