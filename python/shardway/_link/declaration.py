"""What a rank declares: its tensors, described, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from shardway._C import LinkTensors

from .layouts import described
from .load import Load
from .wire import Message


class Declared:
    def __init__(self, tensors: Mapping[str, object], rank: int, size: int) -> None:
        self.entries: dict[str, Message] = {}
        self.parts: dict[str, Tensor | None] = {}
        self.loads: dict[str, Load] = {}
        self.problems: list[str] = []
        self.refused: list[str] = []  # names that have a problem instead of an entry
        if isinstance(tensors, Mapping):
            for name, value in tensors.items():
                self._add(name, value, rank, size)
        else:
            self.problems.append(f"tensors is a {type(tensors).__name__}, not a dict of names")
        self.tensors = LinkTensors(self.parts)

    def _add(self, name: object, value: object, rank: int, size: int) -> None:
        try:
            if not isinstance(name, str):
                raise ValueError("a name must be a str")
            self.entries[name], self.parts[name] = described(value, rank, size)
            if isinstance(value, Load):
                self.loads[name] = value
        except ValueError as error:
            self.problems.append(f"{name}: {error}")
            self.refused.append(str(name))

    def here(self) -> dict[str, Tensor]:
        return {name: part for name, part in self.parts.items() if part is not None}

    def on_gpu(self) -> list[str]:
        """Names of which this rank's part is there."""
        return [name for name, part in self.here().items() if part.is_cuda]

    def said(self, do: str, cast: bool = False) -> Message:
        message: Message = {"do": do, "tensors": self.entries, "problems": self.problems, "cast": cast, "version": 0}
        if self.refused:
            message["refused"] = self.refused
        if names := self.on_gpu():
            message["on_gpu"] = names
        return message
