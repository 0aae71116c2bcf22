"""MeshTensors in the checkpoints of torch.distributed.checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shardway._C import MeshTensor

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
    from torch.distributed.checkpoint.planner import WriteItem


def for_checkpoint(state: Any) -> Any:
    """The same state with every MeshTensor as torch.distributed.checkpoint saves and loads it.

    Saved is each rank's box, whatever its size, and a replica once. Loading fills the `local` of the MeshTensors in
    place, whose layout, mesh and number of ranks may be others than those of the checkpoint.

    Args:
        state: A MeshTensor, or a dict, list or tuple of such, of each other and of anything else, which stays.

    Returns:
        A state for `dcp.save` and `dcp.load`.

    Raises:
        ValueError: A MeshTensor is made of addends (Partial): redistribute it first.

    Example:
        >>> layout = sw.Layout((2, 2), torch.float32, sw.Mesh((1,)), [sw.Replicate()])
        >>> state = sw.for_checkpoint({"weight": sw.MeshTensor(torch.ones(2, 2), layout)})
        >>> state["weight"].shape
        torch.Size([2, 2])
    """
    if isinstance(state, MeshTensor):
        return _Part(state)
    if isinstance(state, dict):
        return {key: for_checkpoint(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(for_checkpoint(value) for value in state)
    return state


class _Part(Tensor):
    """What this rank has of a MeshTensor, in the shape of the whole. It is for checkpoints and nothing else."""

    _mesh_tensor: MeshTensor

    @staticmethod
    def __new__(cls, mesh_tensor: MeshTensor) -> _Part:
        layout = mesh_tensor.layout
        if any(placement.is_partial() for placement in layout.placements):
            raise ValueError(
                f"for_checkpoint: {mesh_tensor!r} is made of addends (rank {mesh_tensor.rank}); redistribute it first"
            )
        part: _Part = Tensor._make_wrapper_subclass(cls, layout.shape, dtype=layout.dtype)
        part._mesh_tensor = mesh_tensor
        return part

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func}: what sw.for_checkpoint gives is for checkpoints; use the MeshTensor")

    def __repr__(self) -> str:  # type: ignore[override]
        return f"for_checkpoint({self._mesh_tensor!r})"

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

        box = self._mesh_tensor.box
        if box is None or 0 in box[1]:
            return []
        return [ChunkStorageMetadata(offsets=torch.Size(box[0]), sizes=torch.Size(box[1]))]

    def __create_write_items__(self, fqn: str, _: object) -> list[WriteItem]:
        from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
        from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

        properties = TensorProperties(dtype=self.dtype)
        return [
            WriteItem(
                index=MetadataIndex(fqn, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, properties, self.size()),
            )
            for chunk in self.__create_chunk_list__()
        ]

    def __get_tensor_shard__(self, _: MetadataIndex) -> Tensor | None:
        local = self._mesh_tensor.local
        return None if local is None else local.detach()
