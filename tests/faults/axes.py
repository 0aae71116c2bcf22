"""The four axes of the matrix, and which of their combinations make sense.

A cell is one call, on one kind of group, at one moment, with one fault. Three ranks run it; rank 1 is the faulty one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

RANKS = 3
FAULTY = 1

# name: (backend, environment, what it is)
GROUPS: dict[str, tuple[str, dict[str, str], str]] = {
    "memory": ("gloo", {"SHARDWAY_TRANSPORT": "shm"}, "a gloo group whose ranks share memory"),
    "gloo": ("gloo", {"SHARDWAY_TRANSPORT": "c10d"}, "the same without shared memory: messages of gloo"),
    "checked": ("gloo", {"SHARDWAY_TRANSPORT": "c10d", "SHARDWAY_CHECK": "1"}, "messages of gloo, every call compared"),
    "shardway": ("shardway", {}, 'the backend "shardway"'),
}

# What happens to the process of the faulty rank, or to its call.
PROCESS_FAULTS = {
    "none": "nothing: a control, in which all must be right",
    "killed": "SIGKILL",
    "stopped": "SIGSTOP for longer than the timeout, then SIGCONT",
    "resumed": "SIGSTOP and SIGCONT within the timeout",
    "exception": "its argument is invalid, or its backward raises",
    "never": "it calls when the others have given up",
}
# What its call says otherwise than the others'.
DISAGREEMENTS = {
    "op": "it makes another call",
    "dtype": "its tensor has another dtype",
    "shape": "its tensor has another shape",
    "dim": "it names another dim",
    "root": "it names another root",
    "reduce": "it names another reduction",
    "splits": "it gives other sizes",
    "layouts": "it gives another target layout",
    "backward": "it is in a backward and the others in a forward, or the other way round",
}
FAULTS = PROCESS_FAULTS | DISAGREEMENTS

MOMENTS = {
    "first": "the group's first call",
    "large": "in the middle of a call of 16 MiB and more",
    "backward": "in the backward of a call",
    "async": "in a call of 16 MiB and more that is waited for later",
    "teardown": "between an asynchronous call and the end of the group",
}

KINDS = {
    "collective": "a collective of shardway",
    "list": "a collective of a list of tensors",
    "redistribute": "a redistribution",
    "backend": "a call of torch.distributed",
}


@dataclass(frozen=True)
class Traits:
    """What a call has, as far as faults are concerned."""

    kind: str
    differs_in: frozenset[str]  # the disagreements that its arguments allow
    has_gradient: bool = True
    has_async: bool = True
    is_given: bool = False  # the sizes are: nothing is exchanged beforehand, but in shared memory and where checked
    has_root: bool = False
    is_message: bool = False
    takes_arguments: bool = True
    is_backward_local: bool = False  # it communicates nothing
    is_backward_forward: bool = False  # it is a call like its forward: torch's autograd makes it
    keeps_group: bool = (
        False  # torch does: a DeviceMesh of a group that was destroyed holds it, with no call of ours made
    )


@dataclass(frozen=True)
class Cell:
    call: str
    group: str
    moment: str
    fault: str

    @property
    def name(self) -> str:
        return f"{self.call}/{self.group}/{self.moment}/{self.fault}"

    @staticmethod
    def of(name: str) -> Cell:
        parts = name.split("/")
        if len(parts) != 4:
            raise ValueError(f"{name!r} is no cell: call/group/moment/fault, as in --list")
        return Cell(*parts)

    @property
    def seed(self) -> int:
        return sum(ord(letter) * (7 * at + 1) for at, letter in enumerate(self.name))


def root_of(cell: Cell) -> int:
    """A root that fails is another thing than a root that waits for who failed, and its sizes are the ones that
    count: both are tried."""
    is_told_apart = cell.fault in PROCESS_FAULTS or cell.fault == "splits"
    return FAULTY if is_told_apart and cell.moment in ("large", "async") else 0


def why_not(cell: Cell, traits: Traits) -> str | None:
    """The reason for which a combination is left out; None where it makes sense."""
    rules = (
        (
            traits.kind == "backend" and cell.group != "shardway",
            "torch.distributed's calls on gloo are torch's own",
        ),
        (
            cell.group == "checked" and not (traits.is_given or cell.moment == "backward"),
            "is compared on gloo anyway: the group is like gloo",
        ),
        (cell.moment == "backward" and not traits.has_gradient, "the call has no gradient"),
        (cell.moment == "backward" and traits.is_backward_local, "the backward communicates nothing"),
        (cell.moment in ("async", "teardown") and not traits.has_async, "the call has no asynchronous form"),
        (
            cell.moment == "teardown" and cell.fault in DISAGREEMENTS and cell.fault != "op",
            "the end of a group has no arguments",
        ),
        (
            cell.moment == "backward" and cell.fault in DISAGREEMENTS and cell.fault not in ("op", "backward"),
            "the arguments of a backward are those of its forward",
        ),
        (
            cell.moment == "teardown" and cell.fault == "op" and traits.keeps_group,
            "torch keeps the group of a DeviceMesh, so nobody leaves it",
        ),
        (cell.moment == "first" and cell.fault == "backward", "a backward has a forward before it"),
        (
            cell.fault in DISAGREEMENTS
            and cell.fault not in ("op", "backward")
            and cell.fault not in traits.differs_in,
            "the call has no such argument, or ranks may differ in it",
        ),
        (
            cell.fault == "backward" and traits.kind != "backend" and not traits.has_gradient,
            "the call has no gradient",
        ),
        (
            cell.fault == "exception" and cell.moment != "backward" and not traits.takes_arguments,
            "the call takes no argument that could be invalid",
        ),
        (traits.is_message and cell.fault in ("op", "backward"), "a message is no collective: other calls go past it"),
    )
    return next((reason for applies, reason in rules if applies), None)


def all_cells(calls: dict[str, Traits], left_out: Counter[str] | None = None) -> Iterator[Cell]:
    """Every combination that makes sense; the others are counted by reason."""
    for call, traits in calls.items():
        for group in GROUPS:
            for moment in MOMENTS:
                for fault in FAULTS:
                    cell = Cell(call, group, moment, fault)
                    reason = why_not(cell, traits)
                    if reason is None:
                        yield cell
                    elif left_out is not None:
                        left_out[reason] += 1
