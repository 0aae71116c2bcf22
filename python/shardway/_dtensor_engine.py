"""What runs in place of DTensor's own redistribute inside `use_for_dtensor()`. Loaded by the first such block."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from copy import copy
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed._functional_collectives import AsyncCollectiveTensor, _are_we_tracing
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, _api, _dispatch, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor.experimental import _tp_transform
from torch.utils._python_dispatch import _get_current_dispatch_mode

from shardway import _C
from shardway._C import Layout, MeshTensor
from shardway._dtensor import layout_of
from shardway._dtensor_redistribute import group_of_mesh, plain_local
from shardway._plan import redistribute_cost
from shardway._stats import count_left_to_torch, count_moved

_NAME = "redistribute_local_tensor"
_FUNCTION_NAME = "Redistribute"
_CALLERS: tuple[ModuleType, ...] = (_redistribute, _dispatch, _api, _tp_transform)  # each has bound the name
_MOST_KEPT = 4096

_theirs = _redistribute.redistribute_local_tensor
_their_function = _redistribute.Redistribute
_lock = threading.Lock()
_open_blocks = 0  # of all threads
_here = threading.local()
_known: dict[tuple[DTensorSpec, DTensorSpec], tuple[Layout, Layout] | _LeftToTorch] = {}
_targets: dict[tuple[int, DTensorSpec, tuple[Placement, ...]], tuple[DTensorSpec, Layout, Layout]] = {}


def open_block() -> None:
    global _open_blocks
    with _lock:
        if _open_blocks == 0:
            _bind(_redistribute_local_tensor, _Shortcut)
        _open_blocks += 1
    _here.depth = _depth_here() + 1


def close_block() -> None:
    global _open_blocks
    _here.depth = _depth_here() - 1
    with _lock:
        _open_blocks -= 1
        if _open_blocks == 0:
            _bind(_theirs, _their_function)


def _bind(function: Callable[..., Tensor], autograd_function: type) -> None:
    for caller in _CALLERS:
        setattr(caller, _NAME, function)
    setattr(_api, _FUNCTION_NAME, autograd_function)


def _depth_here() -> int:
    return getattr(_here, "depth", 0)


def _is_wanted_here() -> bool:
    """In a thread that is in a block, and in those of autograd, which work for one that waits for them."""
    return _depth_here() > 0 or isinstance(threading.current_thread(), threading._DummyThread)


def _redistribute_local_tensor(
    local_tensor: Tensor, current_spec: DTensorSpec, target_spec: DTensorSpec, **options: Any
) -> Tensor:
    if not _is_wanted_here():
        return _theirs(local_tensor, current_spec, target_spec, **options)
    try:
        if options.get("async_op"):
            raise _LeftToTorch("async_op=True")
        _check_has_data(local_tensor)
        source, target = _layouts_of(current_spec, target_spec)
        _check_has_dims_of(source, local_tensor)
        group = _group_of(current_spec.mesh)
    except _LeftToTorch as reason:
        count_left_to_torch(str(reason))
        return _theirs(local_tensor, current_spec, target_spec, **options)
    count_moved()
    return _moved(local_tensor, source, target, group)


class _Shortcut:
    """Stands for the autograd Function of DTensor.redistribute: where no gradient is recorded, running that and making
    a spec of the result anew take longer than a small move."""

    @staticmethod
    def apply(dtensor: DTensor, mesh: DeviceMesh, placements: tuple[Placement, ...], *options: Any) -> DTensor:
        if _is_wanted_here() and _is_plain(dtensor, mesh, placements, *options):
            try:
                return _redistributed(dtensor, placements)
            except _LeftToTorch:
                pass  # counted there
        result: DTensor = _their_function.apply(dtensor, mesh, placements, *options)  # type: ignore[no-untyped-call]
        return result


def _is_plain(
    dtensor: DTensor, mesh: DeviceMesh, placements: tuple[Placement, ...], async_op: bool, *dtypes: Any
) -> bool:
    """Whether nothing but a move is asked for."""
    return (
        not async_op
        and mesh is dtensor._spec.mesh
        and placements != dtensor._spec.placements
        and _keeps_dtype(dtensor._local_tensor.dtype, *dtypes)
        and not (dtensor.requires_grad and (torch.is_grad_enabled() or torch.is_inference_mode_enabled()))
        and not torch._C._are_functorch_transforms_active()
    )


def _keeps_dtype(dtype: torch.dtype, *given: Any) -> bool:
    """torch 2.13 gives one dict of dtypes, 2.11 those of forward and backward, None for unchanged."""
    if len(given) == 1 and isinstance(given[0], dict):
        return bool(given[0]["op_dtype"] == given[0]["out_dtype"] == dtype)
    return all(each is None or each == dtype for each in given)


def _redistributed(dtensor: DTensor, placements: tuple[Placement, ...]) -> DTensor:
    before, local = dtensor._spec, dtensor._local_tensor
    _check_has_data(local)
    key = id(before.mesh), before, placements  # equal meshes may have other groups; the spec keeps its mesh alive
    found = _targets.get(key)
    if found is None:
        if len(_targets) >= _MOST_KEPT:
            _targets.clear()
        after = DTensorSpec(before.mesh, placements, tensor_meta=before.tensor_meta)
        found = _targets[key] = (after, *_layouts_of(before, after))
    after, source, target = found
    _check_has_dims_of(source, local)
    group = _group_of(before.mesh)
    count_moved()
    moved = _moved(local, source, target, group)
    return DTensor.__new__(DTensor, moved, copy(after), requires_grad=False)


class _LeftToTorch(Exception):
    """Why torch is to do it. The same on every rank of the mesh."""


def _check_has_data(local: Tensor) -> None:
    if _are_we_tracing():
        raise _LeftToTorch("it is traced")
    if torch._C._len_torch_dispatch_stack():
        raise _LeftToTorch(f"{type(_get_current_dispatch_mode()).__name__} is to see the operators")
    if type(local) not in (Tensor, torch.nn.Parameter, AsyncCollectiveTensor):
        raise _LeftToTorch(f"the local part is a {type(local).__name__}")
    if local.is_meta:
        raise _LeftToTorch("the local part is on the meta device")


def _check_has_dims_of(source: Layout, local: Tensor) -> None:
    """What was made of a part on one rank has as many dims as that part; only an operator, the same on every rank,
    gives a result fewer, as the product of a matrix and a vector."""
    if local.ndim != len(source.shape):
        raise _LeftToTorch("the spec has another number of dims than the local part")


def _layouts_of(before: DTensorSpec, after: DTensorSpec) -> tuple[Layout, Layout]:
    """Remembered, what is left to torch too."""
    found = _known.get((before, after))
    if found is None:
        if len(_known) >= _MOST_KEPT:
            _known.clear()
        try:
            found = _read_layouts(before, after)
        except _LeftToTorch as reason:
            found = reason
        _known[before, after] = found
    if isinstance(found, _LeftToTorch):
        raise found
    return found


def _read_layouts(before: DTensorSpec, after: DTensorSpec) -> tuple[Layout, Layout]:
    if before.mesh != after.mesh:
        raise _LeftToTorch("it goes to another mesh")
    if before.mesh.get_coordinate() is None:
        raise _LeftToTorch("this rank is outside the mesh")
    if before.mesh.size() == 1:
        raise _LeftToTorch("the mesh has one rank")
    for spec in (before, after):
        if len({p for p in spec.placements if p.is_partial()}) > 1:
            raise _LeftToTorch("there are several kinds of Partial")
    if after.tensor_meta is None:
        after = copy(after)
        after.tensor_meta = before.tensor_meta
    try:
        source, target = layout_of(before), layout_of(after)
    except ValueError:
        raise _LeftToTorch("a placement is neither a box nor an addend of the tensor") from None
    if math.isinf(redistribute_cost(source, target)):
        raise _LeftToTorch("addends are to be made")
    return source, target


def _group_of(mesh: DeviceMesh) -> ProcessGroup:
    try:
        group = group_of_mesh(mesh)
    except ValueError:
        raise _LeftToTorch("no process group has exactly the ranks of the mesh") from None
    if type(group) is not ProcessGroup:  # one that is written in Python, as torch's threaded one: it has no engine
        raise _LeftToTorch(f"the group of the mesh is a {type(group).__name__}")
    return group


def _moved(local: Tensor, source: Layout, target: Layout, group: ProcessGroup) -> Tensor:
    local = plain_local(local)
    if local.dtype != source.dtype:  # torch converts before it communicates, and may leave the spec as it was
        source, target = (_with_dtype(layout, local.dtype) for layout in (source, target))
    part = _part(local, source, group)
    moved = _C.redistribute(part, target, None, None, None, None, None, False, None, None, None).local
    assert moved is not None
    return moved


def _with_dtype(layout: Layout, dtype: torch.dtype) -> Layout:
    return Layout(layout.shape, dtype, layout.mesh, layout.placements, layout.order)


def _part(local: Tensor, layout: Layout, group: ProcessGroup) -> MeshTensor:
    try:
        return MeshTensor(local, layout, group)
    except ValueError as error:  # of this rank alone, perhaps: the others are waiting
        shape = layout.box(torch.distributed.get_rank())[1]
        _C.refuse_redistribute(MeshTensor(local.new_empty(shape), layout, group), str(error))
        raise
