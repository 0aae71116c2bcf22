"""Calls with fixed shapes that are planned, agreed on and allocated once, and run many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from shardway import _C
from shardway._C import KeptCall, Layout, MeshTensor
from shardway._collectives import all_gather_v, all_reduce, all_to_all_v, reduce_scatter_v
from shardway._redistribute import redistribute
from shardway._rooted import broadcast, gather_v, scatter_v

P = ParamSpec("P")
Result = TypeVar("Result")

_OPS: tuple[Callable[..., Any], ...] = (
    redistribute,
    all_gather_v,
    reduce_scatter_v,
    all_to_all_v,
    gather_v,
    scatter_v,
    all_reduce,
    broadcast,
)


class PreparedCall(Generic[Result]):
    """A call of several ranks that `prepare` made, ready to be made again.

    Attributes:
        result: What the call returned. Every run overwrites its tensors.
    """

    def __init__(self, kept: KeptCall, result: Result, plain: Callable[[Any], Result], first: Any) -> None:
        self.result = result
        self._kept, self._plain, self._first = kept, plain, first
        self._is_closed = False
        self._repeat = kept.repeat if kept.distributed else None

    def run(self, tensors: Any = None) -> Result:
        """Makes the call again, on every rank of its group, and returns `result`.

        Nothing is planned, allocated or compared but the number of the run. Inputs are read where they lie at that
        moment, also where their storages were replaced (`p.data = …`).

        Args:
            tensors: New inputs, from this run on: what the op takes first, of the same kind, layouts, shapes and
                dtypes. None leaves them as they are.

        Returns:
            The same objects each time.

        Raises:
            ValueError: An input does not fit, a rank is in another call, or this one is closed; on every rank where
                ranks share memory, or under SHARDWAY_CHECK=1. Elsewhere the other ranks of a gloo group raise a
                DistBackendError that says why, and the group is over.
        """
        if self._repeat is None:
            return self._run_alone(tensors)
        if tensors is None:
            self._repeat()
            return self.result
        try:
            inputs = _locals_of(tensors, self._first)
        except ValueError as error:
            self._kept.refuse(str(error))
        return self.run_parts(inputs)

    def run_parts(self, parts: Sequence[Tensor | None] | None) -> Result:
        """The same, given this rank's parts of the new inputs alone. Only where several ranks take part."""
        self._kept.run(parts)
        return self.result

    def _run_alone(self, tensors: Any) -> Result:
        if self._is_closed:
            raise ValueError("prepare: the prepared call was closed")
        if tensors is not None:
            self._first = tensors
        self.result = self._plain(self._first)
        return self.result

    def refuse(self, problem: str) -> NoReturn:
        """For a caller that cannot run it: counts as a run, and raises as `run` does for an input that does not fit."""
        if not self._kept.distributed:
            raise ValueError(f"prepare: {problem}")
        self._kept.refuse(problem)

    def keep_ready(self, sets: int) -> None:
        """For a caller whose inputs alternate between several sets of tensors: moves stay ready for that many sets, and
        keep their tensors. By default for the last one."""
        self._kept.keep_ready(sets)

    def fix(self) -> None:
        """Says that the call's tensors stay the same, and where they are, from now on. Every rank calls it.

        Ranks that share a GPU then have nothing to tell one another. A run queues its work on the current stream, the
        host waits for nobody, and nothing is compared unless SHARDWAY_CHECK=1. A run may be captured in a CUDA graph;
        every rank has to replay it as often as the others, in the same order. On other transports runs stay as they
        are.

        A run that finds a tensor elsewhere is a ValueError, and so is one that is given tensors.
        """
        if self._kept.distributed:
            self._kept.fix()

    def explain(self) -> str:
        """Who sends how many bytes to whom in one run, the busiest rank, and the least that has to move."""
        return self._kept.explain()

    @property
    def is_distributed(self) -> bool:
        """Whether several ranks take part. If not, every run is a plain call, with results of its own."""
        return self._kept.distributed

    @property
    def bytes(self) -> tuple[tuple[int, ...], ...]:
        """What each rank of the group sends to each in one run: `bytes[a][b]` from rank a to rank b."""
        return self._kept.sent

    @property
    def least_bytes(self) -> tuple[int, ...]:
        """What each rank has to receive in one run, whatever the plan."""
        return self._kept.least if self._kept.distributed else (0,)

    @property
    def busiest_rank(self) -> int:
        """The rank of the group that sends or receives most."""
        return self._kept.busiest_rank

    @property
    def exchanges(self) -> int:
        """How often the ranks meet in one run."""
        return self._kept.exchanges

    def close(self) -> None:
        """Releases tensors and buffers; `result` stays. A later run is a ValueError."""
        self._is_closed = True
        self._kept.close()

    def __enter__(self) -> PreparedCall[Result]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def prepare(op: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs) -> PreparedCall[Result]:
    """Makes a call that can be made again without planning, agreeing or allocating.

    Every rank of the group calls it, as it would call the op. The call itself is made, too, so that `result` is
    complete.

    Args:
        op: `redistribute`, of one tensor or of a list, or a collective: `all_gather_v`, `reduce_scatter_v`,
            `all_to_all_v`, `gather_v`, `scatter_v`, `all_reduce`, `broadcast`.
        args: The op's own arguments.
        kwargs: The same. `async_op` is refused.

    Returns:
        The call; its `run()` returns what the op returns, in the same tensors each time.

    Raises:
        ValueError: What the op raises, on the same ranks; also where an input requires grad and gradients are enabled.

    Example:
        >>> x = torch.zeros(2)
        >>> call = sw.prepare(sw.all_gather_v, x)
        >>> for step in range(3):
        ...     x += 1
        ...     gathered, sizes = call.run()
        >>> gathered
        tensor([3., 3.])
    """
    if op not in _OPS:
        names = ", ".join(each.__name__ for each in _OPS)
        raise ValueError(f"prepare: {getattr(op, '__name__', op)!r} is not an op that can be prepared: {names}")
    preparation = _C.Preparation()
    try:
        result = op(*args, **kwargs)
        kept = preparation.finish()
    finally:
        preparation.cancel()  # the thread's next call is a plain one
    first, rest, named = _split(args, kwargs)
    return PreparedCall(kept, result, lambda x: cast(Callable[..., Result], op)(x, *rest, **named), first)


def _split(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The tensors, and the other arguments."""
    if args:
        return args[0], args[1:], kwargs
    name = "t" if "t" in kwargs else "x"
    return kwargs.get(name), (), {key: value for key, value in kwargs.items() if key != name}


def _locals_of(tensors: Any, first: Any) -> list[Tensor | None] | None:
    """This rank's parts of new inputs that take the place of the first ones; None where there is none to replace. A
    ValueError where they are of another kind or lie otherwise."""
    is_list = isinstance(first, (list, tuple))
    if tensors is None or first is None or (is_list and not first):
        return None
    if isinstance(tensors, (list, tuple)) != is_list:
        raise ValueError(f"the call was prepared for a {type(first).__name__}, not for a {type(tensors).__name__}")
    if not is_list:
        return [_local_of(tensors, first, "t")]
    if len(tensors) != len(first):
        raise ValueError(f"there are {len(tensors)} tensors, but the call was prepared for {len(first)}")
    return [_local_of(each, before, f"t[{i}]") for i, (each, before) in enumerate(zip(tensors, first, strict=True))]


def _local_of(each: Any, before: Any, name: str) -> Tensor | None:
    if each is before:
        return _part_of(each)
    if each is None and _part_of(before) is None:
        return None
    if _kind_of(each) != _kind_of(before):
        raise ValueError(f"{name} is a {_kind_of(each)}, but the call was prepared for a {_kind_of(before)}")
    if _layout_of(each) != _layout_of(before):
        raise ValueError(f"{name} lies as {_layout_of(each)!r}, but the call was prepared for {_layout_of(before)!r}")
    return _part_of(each)


def _kind_of(each: Any) -> str:
    is_plain = isinstance(each, Tensor) and not hasattr(each, "_spec")
    return "Tensor" if is_plain else type(each).__name__


def _layout_of(each: Any) -> Layout | None:
    if isinstance(each, MeshTensor):
        return each.layout
    if not hasattr(each, "_spec"):
        return None
    from shardway._dtensor import layout_of

    return layout_of(each._spec)


def _part_of(each: Any) -> Tensor | None:
    """What this rank holds of an input."""
    if each is None:
        return None
    if isinstance(each, MeshTensor):
        return each.local
    if not hasattr(each, "_spec"):
        return cast(Tensor, each)
    from shardway._dtensor_redistribute import plain_local

    if each.requires_grad and torch.is_grad_enabled():
        raise ValueError("a DTensor requires grad, but a prepared call has no gradient: pass it detached")
    return plain_local(each._local_tensor) if each.device_mesh.get_coordinate() is not None else None
