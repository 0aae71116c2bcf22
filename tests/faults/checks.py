"""Compares what a cell showed with what it must show. Every difference is a sentence; none means as expected."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.faults.axes import RANKS, Cell, Traits
from tests.faults.expectations import (
    AT_ONCE_S,
    OVER,
    SOON_S,
    USABLE,
    Expected,
    Rule,
    rule_of,
)
from tests.faults.observation import UNTOUCHED, Outcome, Record, Seen

_REACHED = re.compile(r"rank (\d+) could not be reached")


@dataclass
class Verdict:
    cell: str
    rule: str
    problems: list[str] = field(default_factory=list)
    detection_s: float = 0.0  # the slowest of those who were told by an error
    waits_for_timeout: bool = False  # it is the timeout that ends the call

    @property
    def is_as_expected(self) -> bool:
        return not self.problems


def judge(cell: Cell, traits: Traits, record: Record) -> Verdict:
    rule = rule_of(cell, traits)
    verdict = Verdict(cell.name, rule.title)
    if record.trouble:
        verdict.problems.append(f"the cell could not be tried: {record.trouble}")
        return verdict
    for seen in record.ranks:
        expected = rule.of(seen.rank)
        problems = _process(seen) if expected is None else _rank(seen, expected, rule)
        verdict.problems += [f"rank {seen.rank}: {problem}" for problem in problems]
    verdict.problems += _together(record, rule)
    verdict.problems += [f"{name} is left in /dev/shm" for name in record.files]
    told = [s for s in record.ranks if s.outcome.how == "raised"]
    verdict.detection_s = max((s.outcome.seconds for s in told), default=0.0)
    verdict.waits_for_timeout = any(e is not None and e.within_s > rule.timeout_s for e in map(rule.of, range(RANKS)))
    return verdict


def _process(seen: Seen) -> list[str]:
    return [] if seen.outcome.how == "gone" else [f"its process should have ended, but {seen.outcome}"]


def _rank(seen: Seen, expected: Expected, rule: Rule) -> list[str]:
    problems = _call(seen, expected)
    if not seen.are_inputs_unchanged:
        problems.append("its input was changed")
    if not seen.are_guards_whole:
        problems.append("bytes beside its destination were changed")
    if rule.is_untouched and seen.destinations != UNTOUCHED:
        problems.append("its destination was written, though the call was refused")
    if rule.is_untouched and seen.has_gradients:
        problems.append("it has gradients, though the backward was refused")
    if seen.outcome.how in ("gone", "silent"):
        return problems
    problems += _afterwards(seen)
    return problems


def _call(seen: Seen, expected: Expected) -> list[str]:
    outcome = seen.outcome
    if outcome.how == "gone":
        return ["its process ended"]
    if outcome.how == "silent":
        return [f"it hangs\n{seen.stacks}"]
    problems = []
    if outcome.how == "returned":
        if expected.error is not None and not expected.may_return:
            problems.append(f"it returned, and not {expected.error}")
        elif expected.must_be_right and seen.is_right is False:
            problems.append("it returned a wrong result")
        if expected.error is None and outcome.seconds > expected.within_s:
            problems.append(f"it took {outcome.seconds:.2f} s, more than {expected.within_s:.2f}")
        return problems
    if expected.error is None:
        return [f"it should have returned, but {outcome}"]
    if outcome.error != expected.error:
        return [f"{outcome.error} and not {expected.error}: {outcome.text}"]
    return _told(outcome, expected)


def _told(outcome: Outcome, expected: Expected) -> list[str]:
    """Whether an error came in time and says what it must."""
    problems = []
    if expected.names:
        found = _REACHED.search(outcome.text)
        named = int(found[1]) if found else None
        if named not in expected.names:
            ranks = " or ".join(map(str, expected.names))
            problems.append(f"it names rank {named} and not {ranks}: {outcome}")
    problems += [f"no {word!r} in: {outcome.text}" for word in expected.words if not re.search(word, outcome.text)]
    if outcome.seconds > expected.within_s:
        problems.append(f"told after {outcome.seconds:.2f} s, more than {expected.within_s:.2f}: {outcome.text}")
    return problems


def _afterwards(seen: Seen) -> list[str]:
    problems = []
    if seen.end is None or seen.end.how != "returned" or seen.end.seconds > SOON_S:
        problems.append(f"the end of the group: {seen.end}")
    if seen.again is None or seen.again.how != "returned":
        problems.append(f"a new group: {seen.again}")
    problems += [f"left: {what}" for what in seen.leftovers]
    if seen.exit_code != 0:
        problems.append(f"its process ended with {seen.exit_code}, or not at all")
    return problems


def _together(record: Record, rule: Rule) -> list[str]:
    """What concerns the ranks as a whole: one text, and the group's next call."""
    problems = []
    raised = [s for s in record.ranks if s.outcome.how == "raised"]
    texts = {s.outcome.text for s in raised}
    if rule.has_one_text and len(texts) > 1:
        problems.append("ranks raise different texts: " + " | ".join(f"{s.rank}: {s.outcome.text}" for s in raised))
    if rule.somebody_raises and not raised:
        problems.append("no rank raised anything")
    was_all_right = not raised and all(s.outcome.how == "returned" for s in record.ranks)
    for seen in record.ranks:
        if seen.probe is not None:
            state = USABLE if was_all_right and rule.group == OVER else rule.group
            problems += [f"rank {seen.rank}: {text}" for text in _next_call(seen, state, rule)]
    return problems


def _next_call(seen: Seen, state: str, rule: Rule) -> list[str]:
    probe = seen.probe
    assert probe is not None
    if probe.how in ("gone", "silent", "wrong"):
        return [f"the group's next call: {probe}"]
    if state == USABLE:
        return [] if probe.how == "returned" else [f"the group should go on, but its next call: {probe}"]
    within_s = rule.probe_within_s if seen.outcome.how == "returned" or state != OVER else AT_ONCE_S
    if state == OVER and (probe.how != "raised" or probe.error != "DistBackendError"):
        return [f"the group should be over, but its next call: {probe}"]
    return [f"the group's next call took too long: {probe}"] if probe.seconds > within_s else []
