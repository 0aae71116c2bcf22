"""vLLM's weight transfer through a link: its workers subscribe to what a trainer publishes with `sw.connect`.

For vllm 0.32, whose interface changes often. It is registered as the backend "shardway" in every process that imports
this module; vLLM's workers do so for `worker_extension_cls="shardway.compat.vllm.WorkerExtension"`. The link's secret
is that of SHARDWAY_LINK_SECRET: it does not travel through vLLM's control plane.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import vllm
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

import shardway as sw

__all__ = ["BACKEND", "LinkInitInfo", "LinkUpdateInfo", "LinkWeightTransferEngine", "WorkerExtension", "init_info"]

BACKEND = "shardway"
_WRITTEN_FOR = "0.32."


@dataclass(kw_only=True)
class LinkInitInfo(WeightTransferInitInfo):
    """Where the link is, and the tensors that the trainer publishes: names and shapes of a checkpoint. `role` is that
    of vLLM's workers; each data-parallel replica after the first adds its number to it."""

    address: str
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]
    role: str = "generator"
    timeout_s: float = 300.0

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.dtype_names) == len(self.shapes):
            raise ValueError(
                f"init_info: there are {len(self.names)} names, {len(self.dtype_names)} dtype_names and "
                f"{len(self.shapes)} shapes"
            )
        unknown = [name for name in self.dtype_names if not isinstance(getattr(torch, name, None), torch.dtype)]
        if unknown:
            raise ValueError(f"init_info: dtype_names has {unknown[0]!r}, which is not a dtype of torch")


@dataclass
class LinkUpdateInfo(WeightTransferUpdateInfo):
    """Nothing: an update is the next version that the trainer sends."""


def init_info(address: str, tensors: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """What the trainer hands to `init_weight_transfer_engine`. `tensors` are what it publishes; `options` are `role`
    and `timeout_s`."""
    layouts = [value.layout if isinstance(value, sw.MeshTensor) else value for value in tensors.values()]
    return {
        "address": address,
        "names": list(tensors),
        "dtype_names": [str(layout.dtype).removeprefix("torch.") for layout in layouts],
        "shapes": [list(layout.shape) for layout in layouts],
        **options,
    }


class LinkWeightTransferEngine(WeightTransferEngine[LinkInitInfo, LinkUpdateInfo]):
    """In each of vLLM's workers, which are the ranks of one role."""

    init_info_cls = LinkInitInfo
    update_info_cls = LinkUpdateInfo
    supports_draft_weight_update = False  # the names are those of the model that is served

    _link: sw.JobLink | None = None
    _target: sw.Target | None = None
    _weights: Mapping[str, Tensor] = {}
    _is_reloading = False

    def init_transfer_engine(self, init_info: LinkInitInfo) -> None:
        """Waits for the trainer to publish. Another call leaves the link before."""
        self.shutdown()
        replica = self.parallel_config.data_parallel_index
        role = f"{init_info.role}-{replica}" if replica else init_info.role
        rank, size = self.parallel_config.rank, self.parallel_config.world_size
        self._link = sw.connect(init_info.address, role, rank, size, timeout=init_info.timeout_s)
        try:
            declared = zip(init_info.names, init_info.dtype_names, init_info.shapes, strict=True)
            self._weights = {name: torch.empty(shape, dtype=getattr(torch, dtype)) for name, dtype, shape in declared}
            self._target = self._link.subscribe(self._weights)
        except BaseException:
            self.shutdown()
            raise

    def start_weight_update(self) -> None:
        """The model is left alone until a whole version is here: it serves on if none comes."""
        self._subscribed()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """vLLM's own waits for an accelerator, and raises where there is none."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: LinkUpdateInfo) -> None:
        """vLLM keeps the tensors that it loads until a layer has all of its own: these stay until the next update."""
        self._subscribed().receive()
        initialize_layerwise_reload(self.model)
        self._is_reloading = True
        self.model.load_weights(self._weights.items())

    def finish_weight_update(self) -> None:
        if self._is_reloading:
            self._is_reloading = False
            finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        link, self._link, self._target = self._link, None, None
        self._weights = {}
        if link is not None:
            link.close()

    def _subscribed(self) -> sw.Target:
        if self._target is None:
            raise RuntimeError("update_weights: this worker is on no link: call init_weight_transfer_engine first")
        return self._target


class WorkerExtension:
    """For vLLM's `worker_extension_cls`: a worker that imports it knows the backend."""


def _register() -> None:
    if not vllm.__version__.startswith(_WRITTEN_FOR):
        why = f"shardway.compat.vllm is written for vllm {_WRITTEN_FOR}x, and this is {vllm.__version__}"
        warnings.warn(f"{why}: its weight transfer changes often", stacklevel=2)
    WeightTransferEngineFactory.register_engine(BACKEND, LinkWeightTransferEngine)


_register()
