"""The side that receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from .declaration import Declared
from .overlap import overlaps
from .roles import RECEIVE, SUBSCRIBE
from .transfer import run_transfer

if TYPE_CHECKING:
    from .link import JobLink


class Target:
    """Where this rank wants what another role publishes."""

    def __init__(self, link: JobLink, tensors: Mapping[str, object], cast: bool) -> None:
        self._link = link
        self._declared = Declared(tensors, link.rank, link.size)
        self._declared.problems += overlaps(self._declared.here())
        self._version = 0
        self._incomplete: str | None = "nothing has been received"
        link.declare(self._declared.said(SUBSCRIBE, bool(cast)))

    @property
    def version(self) -> int:
        """Of the last complete one here; 0 before the first."""
        return self._version

    @property
    def incomplete(self) -> str | None:
        """Why the destinations may not be used, until the next version has come; None if they may."""
        return self._incomplete

    def receive(self) -> int:
        """Waits for the next version, which is then in the destinations of all ranks of this role; its number.
        Collective over the role.

        A DistBackendError says that the publisher or a rank on the way was lost. The next call waits for the next
        version, of a publisher that may have been started again.
        """
        go = self._link.ask({"do": RECEIVE})
        version = go["version"]
        self._incomplete = f"version {version} is on its way"
        try:
            came = run_transfer(self._link, RECEIVE, go, {})
        except BaseException as error:
            self._incomplete = f"version {version} did not arrive: {error}"
            raise
        with torch.no_grad():
            for name, tensor in came.items():
                destination = self._declared.parts[name]
                assert destination is not None
                destination.copy_(tensor)
        self._version, self._incomplete = version, None
        self._link.note_version(version)
        return int(version)
