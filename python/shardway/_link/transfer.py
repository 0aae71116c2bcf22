"""One version on its way: move it, report, and hear whether it has arrived everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from .roles import DONE, FAILED
from .wire import Message

if TYPE_CHECKING:
    from .link import JobLink

_LONGEST_REASON = 1000
_REPORTS_S = 10.0  # another rank may have waited for the whole timeout before it reports


def run_transfer(link: JobLink, call: str, go: Message, parts: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """What came for this rank, when all ranks of its role have theirs. `call` is in whose name errors are raised."""
    try:
        came = link.joint_group(go).move(parts, link.role)
    except Exception as error:
        link.drop_joint_group()
        reason = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
        link.ask({"do": FAILED, "why": reason}, wait_s=_REPORTS_S, call=call)
        raise
    except BaseException:
        link.close()
        raise
    link.ask({"do": DONE}, wait_s=_REPORTS_S, call=call)
    return came
