"""The side that receives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shardway._C import LinkLoader

from .declaration import Declared
from .model_plan import ModelPlan
from .overlap import overlaps
from .transfer import Delivery
from .wire import RECEIVE, SUBSCRIBE

if TYPE_CHECKING:
    from .link import JobLink


class Target:
    """Where this rank wants what another role publishes."""

    def __init__(self, link: JobLink, tensors: Mapping[str, object], cast: bool) -> None:
        self._link = link
        self._declared = Declared(tensors, link.rank, link.size)
        self._declared.problems += overlaps(self._declared.here())
        self._loader = LinkLoader(self._declared.loads)
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

    @property
    def plan(self) -> ModelPlan:
        """As `JobLink.plan`."""
        return self._link.plan

    def receive(self) -> int:
        """Waits for the next version, which is then in the destinations of all ranks of this role; its number.
        Collective over the role.

        A DistBackendError says that the publisher or a rank on the way was lost. The next call waits for the next
        version, of a publisher that may have been started again.
        """
        begun: list[int] = []

        def on_begin(version: int) -> None:
            begun.append(version)
            self._incomplete = f"version {version} is on its way"

        try:
            destinations = self._declared.tensors
            delivery = Delivery(RECEIVE, destinations=destinations, loader=self._loader, on_begin=on_begin)
            self._version = delivery.run(self._link)
        except BaseException as error:
            if begun:
                self._incomplete = f"version {begun[-1]} did not arrive: {error}"
            raise
        self._incomplete = None
        return self._version
