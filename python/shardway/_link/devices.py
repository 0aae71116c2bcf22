"""GPUs on a link: whether tensors may move from one job to another there."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.distributed import ProcessGroup

from shardway._collectives import all_gather_v


def share_one_gpu(gpus: Iterable[int], group: ProcessGroup) -> bool:
    """Whether the ranks' GPUs are all the same one. Collective."""
    mine = "".join(f"{torch.cuda.get_device_properties(gpu).uuid} " for gpu in gpus)
    told, sizes = all_gather_v(torch.tensor(list(mine.encode()), dtype=torch.uint8), group=group)
    names = {name for part in torch.split(told, list(sizes)) for name in bytes(part.tolist()).decode().split()}
    return len(names) == 1
