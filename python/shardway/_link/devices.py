"""GPUs on a link: which tensors move from one to another, and when they have moved."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from shardway._collectives import all_gather_v


def gpus_of(tensors: Iterable[Tensor | None]) -> set[torch.device]:
    return {tensor.device for tensor in tensors if tensor is not None and tensor.is_cuda}


def share_one_gpu(gpus: Iterable[torch.device], group: ProcessGroup) -> bool:
    """Whether the ranks' GPUs are all the same one. Collective."""
    mine = "".join(f"{torch.cuda.get_device_properties(gpu).uuid} " for gpu in gpus)
    told, sizes = all_gather_v(torch.tensor(list(mine.encode()), dtype=torch.uint8), group=group)
    names = {name for part in torch.split(told, list(sizes)) for name in bytes(part.tolist()).decode().split()}
    return len(names) == 1


def wait_for(gpus: Iterable[torch.device]) -> None:
    """Until what was queued on their current streams is done."""
    for gpu in gpus:
        torch.cuda.current_stream(gpu).synchronize()
