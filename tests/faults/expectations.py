"""What each cell must show. The rules are those of docs/architecture.md ("What a fault leaves behind") and
docs/backend.md.

- **All is right**: no fault, or a rank that was stopped and resumed within the timeout. Values are right, and the group
  goes on.
- **Refused**: ranks disagree, or one has an invalid argument, and the call is compared. Every rank raises the same
  ValueError within a second, nothing is written, and the group goes on. Compared is every call in shared memory, on the
  backend "shardway" and under SHARDWAY_CHECK=1, and on gloo every forward whose sizes are not given.
- **Dead**: every survivor raises a DistBackendError that names the dead rank within a second, or has its right result;
  then its next call raises. The group is over.
- **Late**: a rank is stopped for longer than the timeout, or does not call. The others raise a DistBackendError that
  names it, within the timeout and a second. It hears that it was given up. The group is over.
- **Not compared**: a disagreement on gloo with sizes given, or between a forward and a backward. No rank waits longer
  than the timeout and a second. Where lengths differ, somebody raises. Values are nobody's promise.
- **Nobody's concern**: on gloo, a rank that sends to a root gives a wrong size for a third rank. Nobody uses it: the
  sender needs its own size, the root has its own list. All is right.
- **Gone**: a rank destroys the group while the others call. They raise a DistBackendError that names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.faults.axes import DISAGREEMENTS, FAULTY, RANKS, Cell, Traits, root_of

SOON_S = 1.0  # for whatever must not wait for a timeout, and beyond a timeout
AT_ONCE_S = 0.5  # for a call on a group that is known to be over
PAUSE_S = 0.3  # of a rank that is stopped and resumed in time

SHORT_TIMEOUT_S = 1.0  # where the timeout is what ends the call
LONG_TIMEOUT_S = 5.0  # where nothing may wait for it

OTHERS = tuple(rank for rank in range(RANKS) if rank != FAULTY)
USABLE, OVER, OPEN = "usable", "over", "open"


@dataclass(frozen=True)
class Expected:
    """Of one rank's call: it raises this error, or it returns, where it may."""

    error: str | None = None  # the type; None: it must return
    may_return: bool = False
    must_be_right: bool = True  # if it returns
    names: tuple[int, ...] = ()  # the ranks of which one "could not be reached"
    words: tuple[str, ...] = ()  # regular expressions that the text has
    within_s: float = SOON_S


@dataclass(frozen=True)
class Rule:
    title: str
    others: Expected
    faulty: Expected | None  # None: its process ends
    timeout_s: float  # of the group
    group: str  # afterwards
    has_one_text: bool = False  # on every rank
    is_untouched: bool = False  # the destination
    probe_within_s: float = SOON_S
    somebody_raises: bool = False
    exceptions: tuple[tuple[int, Expected], ...] = ()  # ranks with an expectation of their own

    def of(self, rank: int) -> Expected | None:
        own = dict(self.exceptions)
        return own.get(rank, self.faulty if rank == FAULTY else self.others)


def is_on_gloo(cell: Cell) -> bool:
    """Its calls are messages of gloo. So are those by which ranks that share memory join, in a group's first call."""
    return cell.group in ("gloo", "checked") or (cell.group == "memory" and cell.moment == "first")


def is_compared(cell: Cell, traits: Traits) -> bool:
    """Whether the ranks tell one another what they call before data moves."""
    if cell.group != "gloo" or _is_told_by_layouts(cell, traits):
        return True
    return not traits.is_given and cell.moment != "backward" and cell.fault != "backward"


def _is_told_by_layouts(cell: Cell, traits: Traits) -> bool:
    """A forward and a backward that are the same call of the library, and differ in their layouts."""
    return traits.is_backward_forward and cell.moment == cell.fault == "backward"


def name_in_errors(cell: Cell) -> str:
    """What an error of the call begins with, as a regular expression."""
    name = cell.call.removeprefix("dist.").removeprefix("list ").removesuffix(" given")
    special = {"send and recv": "(send|recv)", "all_to_all_single": "all_to_all"}
    return f"^{special.get(name, name.split()[0])}: "


def rule_of(cell: Cell, traits: Traits) -> Rule:
    if traits.is_message and cell.fault in ("dtype", "shape", "exception") and cell.moment != "teardown":
        return _message_refused(cell)
    if traits.is_message and cell.moment == "teardown":
        return _messages_given_up(cell)
    if cell.fault in ("none", "resumed"):
        return _all_right(cell)
    if cell.fault == "killed":
        return _dead(cell, traits)
    if cell.fault in ("stopped", "never"):
        return _late(cell, traits)
    if cell.fault == "exception" and cell.moment == "backward":
        return _raised_before_it_came(cell, traits)
    if cell.moment == "teardown" and cell.fault == "op":
        return _gone(cell, traits)
    if is_compared(cell, traits):
        return _refused(cell, traits)
    return _nobodys_concern() if _is_of_no_use(cell, traits) else _not_compared(cell)


def _all_right(cell: Cell) -> Rule:
    right = Expected(within_s=SOON_S + (PAUSE_S if cell.fault == "resumed" else 0.0))
    return Rule("all is right", right, right, LONG_TIMEOUT_S, USABLE)


_SAID = {  # what the text must say beside "rank 1"
    "dtype": ("(float|f)32", "(float|f)64"),
    "dim": ("dim",),
    "root": ("root|src|dst",),
    "reduce": ("sum|P", "max"),
    "op": ("different collectives",),
    "backward": ("different collectives", "backward of"),
    "layouts": ("the target|tensor 1",),
}


def _refused(cell: Cell, traits: Traits) -> Rule:
    said = ("disagree on the tensor",) if _is_told_by_layouts(cell, traits) else _SAID.get(cell.fault, ())
    words = ("rank 1", *said)
    if cell.fault in DISAGREEMENTS:
        words = (*words, "rank [02]")
    refused = Expected("ValueError", words=words)
    return Rule("refused", refused, refused, LONG_TIMEOUT_S, USABLE, has_one_text=True, is_untouched=True)


def _has_all_it_needs(cell: Cell, traits: Traits) -> bool:
    """Whether a rank may get its right result although the faulty one is struck: that was struck in the middle; or it
    is not needed, as by the leaves of a rooted call without a comparison, and by messages."""
    is_in_the_middle = cell.moment in ("large", "async", "teardown") and cell.fault != "never"
    is_spared = cell.group == "gloo" and traits.has_root and not is_compared(cell, traits)
    return is_in_the_middle or is_spared or traits.is_message


def _dead(cell: Cell, traits: Traits) -> Rule:
    told = Expected(
        "DistBackendError",
        may_return=_has_all_it_needs(cell, traits),
        names=(FAULTY,),
        words=(name_in_errors(cell), "its process ended"),
    )
    return Rule("dead", told, None, LONG_TIMEOUT_S, OVER)


def _late(cell: Cell, traits: Traits) -> Rule:
    waits = SHORT_TIMEOUT_S + SOON_S
    is_silent = traits.is_message  # a message has a reason of its own
    # It has no lifelines yet, or it was stopped with its sockets full: it finds closed connections.
    is_strange = is_on_gloo(cell) and (cell.moment == "first" or cell.fault == "stopped")
    told = Expected(
        "DistBackendError",
        may_return=_has_all_it_needs(cell, traits),
        names=(FAULTY,),
        words=(name_in_errors(cell), *(() if is_silent else ("did not answer within the timeout of 1000 ms",))),
        within_s=waits,
    )
    given_up = Expected(
        "DistBackendError",
        may_return=told.may_return or traits.is_message,
        names=OTHERS,
        words=(name_in_errors(cell), *(() if is_silent or is_strange else ("gave the group up",))),
        within_s=waits if is_on_gloo(cell) else SOON_S,
    )
    return Rule(
        "late",
        told,
        given_up,
        SHORT_TIMEOUT_S,
        OVER,
        probe_within_s=waits if is_on_gloo(cell) else SOON_S,
    )


def _raised_before_it_came(cell: Cell, traits: Traits) -> Rule:
    own = Expected("RuntimeError", words=("a hook of this rank failed",))
    return replace(_late(cell, traits), title="raised before it came", faulty=own)


def _gone(cell: Cell, traits: Traits) -> Rule:
    told = Expected("DistBackendError", names=(FAULTY,), words=(name_in_errors(cell), "it left the group"))
    if is_on_gloo(cell):
        told = replace(told, may_return=_has_all_it_needs(cell, traits))
    return Rule("gone", told, Expected(), LONG_TIMEOUT_S, OVER)


def _not_compared(cell: Cell) -> Rule:
    waits = SHORT_TIMEOUT_S + SOON_S
    anything = Expected(
        "DistBackendError", may_return=True, must_be_right=False, names=tuple(range(RANKS)), within_s=waits
    )
    own = Expected("ValueError", words=("rank 1",)) if cell.fault == "exception" else anything
    return Rule(
        "not compared",
        anything,
        own,
        SHORT_TIMEOUT_S,
        OPEN,
        probe_within_s=waits,
        somebody_raises=cell.fault in ("dtype", "shape", "splits", "op", "exception", "backward"),
    )


def _is_of_no_use(cell: Cell, traits: Traits) -> bool:
    """Whether what the faulty rank says otherwise is used by no rank."""
    return cell.fault == "splits" and traits.has_root and root_of(cell) != FAULTY


def _nobodys_concern() -> Rule:
    return Rule("nobody's concern", Expected(), Expected(), LONG_TIMEOUT_S, USABLE)


def _message_refused(cell: Cell) -> Rule:
    """A message of another size or dtype is a ValueError at its receiver alone. The faulty rank's own buffer does not
    fit what it gets either. A message that is not sent is missed by its receiver."""
    receiver = (FAULTY + 1) % RANKS
    if cell.fault == "exception":
        missed = Expected("DistBackendError", names=(FAULTY,), within_s=SHORT_TIMEOUT_S + SOON_S)
        own = Expected("ValueError", words=("send",))
        return Rule("message missed", Expected(), own, SHORT_TIMEOUT_S, OVER, exceptions=((receiver, missed),))
    refused = Expected("ValueError", words=("sent", "but the tensor takes"))
    return Rule(
        "message refused",
        Expected(),
        refused,
        LONG_TIMEOUT_S,
        USABLE,
        is_untouched=False,
        exceptions=((receiver, refused),),
    )


def _messages_given_up(cell: Cell) -> Rule:
    """Who destroys the group while its receive is pending gives the message up, unless it has come."""
    given_up = Expected(
        "DistBackendError",
        may_return=True,
        words=("this rank left the group|could not be reached",),
        within_s=SHORT_TIMEOUT_S + SOON_S + PAUSE_S,
    )
    own = Expected("ValueError", words=("send",)) if cell.fault == "exception" else given_up
    return Rule("message given up", given_up, None if cell.fault == "killed" else own, SHORT_TIMEOUT_S, OPEN)
