"""One version on its way: by the ranks alone if nothing has changed since the last one, else by the hub's word."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from shardway._C import LinkLoader, LinkTensors

from .wire import DONE, FAILED, Message

if TYPE_CHECKING:
    from .joint import JointGroup
    from .link import JobLink

_LONGEST_REASON = 1000
_REPORTS_S = 10.0  # another rank may have waited for the whole timeout before it reports
_LEAST_ANSWER_S = 0.5  # for the hub's word on a wait that has taken the whole timeout
_NO_TENSORS = LinkTensors({})
_NO_LOADS = LinkLoader({})


def _nothing(version: int) -> None:
    pass


@dataclass
class Delivery:
    """This rank's side of a version."""

    call: str  # in whose name errors are raised, and what the hub is asked
    parts: LinkTensors = _NO_TENSORS
    destinations: LinkTensors = _NO_TENSORS
    problems: Sequence[str] = ()
    loader: LinkLoader = _NO_LOADS
    sets: int = 1  # of parts that alternate
    on_begin: Callable[[int], None] = _nothing  # from now on destinations are written

    def run(self, link: JobLink) -> int:
        """The version that all ranks of the role have now."""
        started_s = time.monotonic()
        failed = ""
        joint = link.quick_group()
        if joint is not None:
            failed = self._failure_without_hub(link, joint)
            if joint.is_quick and not failed:
                return link.note_version(link.version + 1)
        deadline_s = max(started_s + link.timeout.total_seconds(), time.monotonic() + _LEAST_ANSWER_S)
        question = {"do": self.call, "problems": list(self.problems), "version": link.version, "failed": failed}
        go = link.ask(question, deadline_s=deadline_s if failed else None)
        self._run_by_hub(link, go)
        return link.note_version(int(go["version"]))

    def _failure_without_hub(self, link: JobLink, joint: JointGroup) -> str:
        """The generation of a group that has failed: somebody was lost or is late, and the hub knows whom."""
        is_willing = not self.problems and not link.has_news()
        try:
            joint.try_version(link.version + 1, self.parts, self.sets, is_willing, self.on_begin)
        except Exception:
            link.leave_joint_group()
            return joint.generation
        except BaseException:
            link.close()
            raise
        return ""

    def _run_by_hub(self, link: JobLink, go: Message) -> None:
        self.on_begin(int(go["version"]))
        try:
            joint = link.joint_group(go)
            joint.move(self.parts, self.destinations, self.loader, self.sets)
        except Exception as error:
            link.leave_joint_group()
            reason = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
            link.ask({"do": FAILED, "why": reason}, wait_s=_REPORTS_S, call=self.call)
            raise
        except BaseException:
            link.close()
            raise
        try:
            self.loader.raise_failure()
        except Exception as failure:
            self._report_load(link, failure)
            raise
        if link.ask({"do": DONE}, wait_s=_REPORTS_S, call=self.call).get("everywhere"):
            joint.settle()

    def _report_load(self, link: JobLink, failure: Exception) -> None:
        """The version has come, but a function did not take it: the others are told, and this rank raises its own
        error."""
        reason = f"the Load of {self.loader.failed_name} raised {type(failure).__name__}: {failure}"
        with contextlib.suppress(dist.DistBackendError):
            link.ask({"do": FAILED, "why": reason[:_LONGEST_REASON]}, wait_s=_REPORTS_S, call=self.call)
