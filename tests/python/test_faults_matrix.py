"""The checker of the fault matrix reports lies: each test hands it what honest ranks saw, with one thing changed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from tests.faults import axes
from tests.faults.axes import FAULTS, GROUPS, MOMENTS, Cell, all_cells, why_not
from tests.faults.catalogue import TRAITS
from tests.faults.checks import Verdict, judge
from tests.faults.crews import run_cells
from tests.faults.expectations import OVER, USABLE, rule_of
from tests.faults.leftovers import Holdings
from tests.faults.observation import OTHER, RIGHT, Outcome, Record, Seen
from tests.faults.prepared import Room
from tests.faults.sample import pairwise, uncovered

CALL = "all_gather_v"
REFUSED = Cell(CALL, "memory", "large", "dtype")
DEAD = Cell(CALL, "memory", "backward", "killed")
LATE = Cell(CALL, "memory", "large", "never")
RIGHT_CELL = Cell(CALL, "gloo", "async", "none")
ON_GLOO = Cell(CALL, "gloo", "backward", "killed")
GIVEN = Cell("all_gather_v given", "gloo", "first", "dtype")
SIZES_OF_A_SENDER = Cell("gather_v given", "gloo", "first", "splits")
SIZES_OF_THE_ROOT = Cell("gather_v given", "gloo", "large", "splits")


def lost(rank: int, why: str, peer: int = 1) -> str:
    return f"{CALL}: rank {peer} could not be reached: {why} (rank {rank})"


def honest(cell: Cell) -> Record:
    """What ranks see in the cell where all is well."""
    rule = rule_of(cell, TRAITS[cell.call])
    texts = {
        REFUSED: lambda rank: f"{CALL}: ranks disagree on dtype: float32 on rank 0, float64 on rank 1",
        DEAD: lambda rank: lost(rank, "its process ended"),
        ON_GLOO: lambda rank: lost(rank, "its process ended, or it closed the connection"),
        GIVEN: lambda rank: lost(rank, "it did not answer within the timeout of 1000 ms"),
        SIZES_OF_THE_ROOT: lambda rank: lost(rank, "a message has another length"),
        LATE: lambda rank: (
            lost(1, "it gave the group up, since this rank did not answer in time", 0)
            if rank == 1
            else lost(rank, "it did not answer within the timeout of 1000 ms")
        ),
    }
    ranks = []
    for rank in range(axes.RANKS):
        expected = rule.of(rank)
        if expected is None:
            ranks.append(Seen(rank, Outcome("gone")))
            continue
        end, again = Outcome("returned", 0.01), Outcome("returned", 0.05)
        seen = Seen(rank, end=end, again=again, exit_code=0)
        if expected.error is None:
            seen.outcome, seen.is_right, seen.destinations = Outcome("returned", 0.02), True, RIGHT
        else:
            late = rule.timeout_s if expected.within_s > rule.timeout_s else 0.0
            seen.outcome = Outcome("raised", late + 0.05, expected.error, texts[cell](rank))
        if rule.group == USABLE:
            seen.probe = Outcome("returned", 0.001)
        else:
            seen.probe = Outcome("raised", 0.001, "DistBackendError", "the group cannot be used any more")
        ranks.append(seen)
    return Record(cell.name, rule.timeout_s, ranks)


def verdict_on(cell: Cell, change: Callable[[Record], None] = lambda record: None) -> Verdict:
    record = honest(cell)
    change(record)
    return judge(cell, TRAITS[cell.call], record)


def changed(rank: int, path: str, value: object) -> Callable[[Record], None]:
    """Sets one attribute of what a rank saw, as in "outcome.seconds"."""

    def change(record: Record) -> None:
        owner: object = record.ranks[rank]
        *way, last = path.split(".")
        for name in way:
            owner = getattr(owner, name)
        setattr(owner, last, value)

    return change


CELLS = (REFUSED, DEAD, LATE, RIGHT_CELL, ON_GLOO, GIVEN, SIZES_OF_A_SENDER, SIZES_OF_THE_ROOT)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_what_honest_ranks_see_is_as_expected(cell):
    verdict = verdict_on(cell)
    assert verdict.is_as_expected, verdict.problems


LIES: dict[str, tuple[Cell, Callable[[Record], None], str]] = {
    "a late refusal": (REFUSED, changed(2, "outcome.seconds", 1.2), "told after 1.20 s"),
    "a late word of a death": (DEAD, changed(0, "outcome.seconds", 1.01), "told after 1.01 s"),
    "a late timeout": (LATE, changed(0, "outcome.seconds", 2.1), "told after 2.10 s"),
    "another text": (REFUSED, changed(2, "outcome.text", "float32 on rank 0, float64 on rank 1!"), "different texts"),
    "a text without a value": (REFUSED, changed(0, "outcome.text", "ranks 0 and rank 1 disagree"), "no '(float|f)32'"),
    "a text without the op": (DEAD, changed(0, "outcome.text", lost(0, "its process ended")[14:]), "no '^all_gather"),
    "another error": (DEAD, changed(0, "outcome.error", "RuntimeError"), "RuntimeError and not DistBackendError"),
    "another rank named": (DEAD, changed(0, "outcome.text", lost(0, "its process ended", 2)), "names rank 2"),
    "nobody named": (LATE, changed(0, "outcome.text", f"{CALL}: timed out"), "names rank None"),
    "a silent success": (REFUSED, changed(0, "outcome", Outcome("returned", 0.01)), "it returned, and not ValueError"),
    "success after a death": (DEAD, changed(0, "outcome", Outcome("returned", 0.01)), "it returned, and not Dist"),
    "a wrong result": (RIGHT_CELL, changed(2, "is_right", False), "a wrong result"),
    "an error where all is right": (
        RIGHT_CELL,
        changed(1, "outcome", Outcome("raised", 0.1, "RuntimeError", "no")),
        "should have returned",
    ),
    "a slow success": (RIGHT_CELL, changed(1, "outcome.seconds", 3.0), "it took 3.00 s"),
    "a hang": (LATE, changed(2, "outcome", Outcome("silent")), "it hangs"),
    "a crash": (REFUSED, changed(0, "outcome", Outcome("gone")), "its process ended"),
    "a survivor of SIGKILL": (DEAD, changed(1, "outcome", Outcome("returned")), "should have ended"),
    "a changed input": (REFUSED, changed(0, "are_inputs_unchanged", False), "input was changed"),
    "a touched guard byte": (DEAD, changed(0, "are_guards_whole", False), "beside its destination"),
    "a destination that was written": (REFUSED, changed(1, "destinations", OTHER), "destination was written"),
    "gradients of a refused backward": (REFUSED, changed(1, "has_gradients", True), "it has gradients"),
    "a group that is over": (
        REFUSED,
        changed(0, "probe", Outcome("raised", 0.0, "DistBackendError", "over")),
        "should go on",
    ),
    "a group that goes on": (DEAD, changed(2, "probe", Outcome("returned")), "should be over"),
    "a next call that takes its time": (DEAD, changed(2, "probe.seconds", 0.6), "took too long"),
    "a next call that is wrong": (REFUSED, changed(2, "probe", Outcome("wrong")), "next call: wrong"),
    "an end that hangs": (DEAD, changed(2, "end", Outcome("silent")), "the end of the group"),
    "an end that takes its time": (DEAD, changed(2, "end.seconds", 1.5), "the end of the group"),
    "no new group": (DEAD, changed(0, "again", Outcome("raised", 5.0, "DistBackendError", "no")), "a new group"),
    "a leaked descriptor": (DEAD, changed(0, "leftovers", ["1 descriptors of socket:[N]"]), "left: 1 descriptors"),
    "a process that does not end": (REFUSED, changed(0, "exit_code", None), "or not at all"),
    "a process that crashes at its end": (REFUSED, changed(0, "exit_code", -11), "ended with -11"),
    "a file": (DEAD, lambda record: record.files.append("shardway-1"), "left in /dev/shm"),
    "a cell that was not tried": (DEAD, lambda record: setattr(record, "trouble", "no store"), "could not be tried"),
    "unequal lengths that nobody sees": (
        GIVEN,
        lambda record: [setattr(seen, "outcome", Outcome("returned")) for seen in record.ranks] and None,
        "no rank raised anything",
    ),
    "a wrong size that a root uses and nobody sees": (
        SIZES_OF_THE_ROOT,
        lambda record: [setattr(seen, "outcome", Outcome("returned")) for seen in record.ranks] and None,
        "no rank raised anything",
    ),
    "a wrong result where a wrong size is nobody's concern": (
        SIZES_OF_A_SENDER,
        changed(0, "is_right", False),
        "a wrong result",
    ),
    "an error where a wrong size is nobody's concern": (
        SIZES_OF_A_SENDER,
        changed(1, "outcome", Outcome("raised", 0.1, "ValueError", "no")),
        "should have returned",
    ),
    "a late word of a death on gloo": (ON_GLOO, changed(0, "outcome.seconds", 1.1), "told after 1.10 s"),
    "a rank on gloo that names a survivor": (
        ON_GLOO,
        changed(2, "outcome.text", lost(2, "its process ended", 0)),
        "names rank 0 and not 1",
    ),
    "a rank on gloo that waits for ever": (GIVEN, changed(0, "outcome.seconds", 2.5), "told after 2.50 s"),
}


@pytest.mark.parametrize("what", LIES)
def test_a_lie_is_reported(what):
    cell, change, words = LIES[what]
    problems = verdict_on(cell, change).problems
    assert any(words in problem for problem in problems), problems


def test_guards_and_destinations_tell_a_changed_byte():
    room = Room((3, 5))
    assert room.is_untouched and room.are_guards_whole
    room.view[1, 1] = 7.0
    assert not room.is_untouched and room.are_guards_whole
    for offset in (-1, room.view.numel()):
        room = Room((3, 5))
        beside = torch.as_strided(room.view, (1,), (1,), room.view.storage_offset() + offset)
        beside.fill_(7.0)
        assert room.is_untouched and not room.are_guards_whole


def test_holdings_tell_a_leaked_descriptor_and_a_child():
    before = Holdings.now()
    assert not Holdings.now().beyond(before)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.read(reader, 1)
        os._exit(0)
    found = Holdings.now().beyond(before)
    os.write(writer, b"x")
    os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)
    assert found == ["2 descriptors of pipe:[N]", "1 child processes"]
    assert not Holdings.now().beyond(before)


def test_a_process_may_keep_one_record_of_calls_and_no_second():
    none = Holdings(Counter(), Counter(), 1, 0)
    one, two = (Holdings(Counter({"/memfd:shardway-calls": n}), Counter(), 1, 0) for n in (1, 2))
    assert one.beyond(none) == []
    assert two.beyond(none) == two.beyond(one) == ["1 descriptors of /memfd:shardway-calls"]


def test_what_is_left_out_has_a_reason_and_the_rest_is_whole():
    reasons: Counter[str] = Counter()
    cells = list(all_cells(TRAITS, reasons))
    assert len(cells) + reasons.total() == len(TRAITS) * len(GROUPS) * len(MOMENTS) * len(FAULTS)
    for axis, found in ((TRAITS, "call"), (GROUPS, "group"), (MOMENTS, "moment"), (FAULTS, "fault")):
        assert {getattr(cell, found) for cell in cells} == set(axis)
    assert why_not(Cell("all_reduce", "memory", "first", "root"), TRAITS["all_reduce"])
    assert why_not(Cell("dist.all_reduce", "gloo", "first", "killed"), TRAITS["dist.all_reduce"])


def test_the_sample_has_every_pair_of_the_whole():
    cells = [cell for cell in all_cells(TRAITS) if TRAITS[cell.call].kind in ("list", "redistribute")]
    chosen = pairwise(cells)
    assert not uncovered(cells, chosen) and len(chosen) < len(cells) / 4
    assert uncovered(cells, chosen[:-1])


def test_cells_run_and_a_rule_of_another_cell_is_not_met():
    cells = [Cell(CALL, "memory", "first", "dtype"), Cell(CALL, "shardway", "first", "killed")]
    records = {record.cell: record for record in run_cells(cells, jobs=2)}
    for cell in cells:
        verdict = judge(cell, TRAITS[CALL], records[cell.name])
        assert verdict.is_as_expected, verdict.problems
        other = Cell(CALL, cell.group, "first", "none")
        assert not judge(other, TRAITS[CALL], records[cell.name]).is_as_expected
    assert rule_of(cells[1], TRAITS[CALL]).group == OVER
