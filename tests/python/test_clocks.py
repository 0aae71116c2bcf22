"""How far apart the clocks of hosts are, as `sw.trace` finds it."""

from __future__ import annotations

import json

import pytest
import torch

import shardway as sw
from shardway import _clocks, _trace
from shardway._clocks import ClockOffset, Question, offset_from, offsets_of_hosts
from tests.support.ranks import ranks, run_ranks
from tests.support.traces import clear, shared_path, slices, whole_document

SECOND_NS = 10**9


def test_the_quickest_answer_tells_the_offset_and_how_exact_it_is() -> None:
    slow = Question(1_000, 50_000_000, 9_000)
    quick = Question(20_000, 70_500, 21_000)
    assert offset_from([slow, quick, slow]) == ClockOffset(70_500 - 20_500, 500)


@pytest.mark.parametrize("ahead_ns", [0, 7, -3 * SECOND_NS, 86_400 * SECOND_NS])
@pytest.mark.parametrize("there_ns", [0, 1, 900, 4_001])
def test_the_truth_is_within_the_error_however_the_way_there_and_back_differ(ahead_ns: int, there_ns: int) -> None:
    asked, back_ns = 12_345, 1_000
    found = offset_from([Question(asked, asked + there_ns + ahead_ns, asked + there_ns + back_ns)])
    assert abs(found.ahead_ns - ahead_ns) <= found.within_ns <= (there_ns + back_ns + 1) // 2


def own_clock_ahead_by(patch: pytest.MonkeyPatch, seconds: int) -> None:
    real = _clocks.now_ns
    for module in (_clocks, _trace):
        patch.setattr(module, "now_ns", lambda: real() + seconds * SECOND_NS)


@ranks(4)
def test_every_rank_hears_of_every_clock(rank: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        own_clock_ahead_by(patch, [0, 0, 50, -20][rank])
        found = offsets_of_hosts(torch.distributed.group.WORLD, [0, 2, 3])
    assert found[0] == (0, 0)
    for offset, seconds in zip(found[1:], [50, -20], strict=True):
        assert abs(offset.ahead_ns - seconds * SECOND_NS) <= offset.within_ns < 20 * SECOND_NS


@ranks(3)
def test_ranks_of_another_host_are_on_the_first_ones_clock(rank: int, size: int) -> None:
    path = shared_path(rank)
    sw.all_reduce(torch.ones(2))  # so the group is there
    apart_s = 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_trace, "_own_host", lambda: "near" if rank < 2 else "far")
        own_clock_ahead_by(patch, 0 if rank < 2 else apart_s)
        begun = sw.trace(path)
    sw.all_reduce(torch.ones(2))
    begun.stop()
    near, far = (whole_document(file) for file in (path, path.with_name("trace.host1.json")))
    assert near["otherData"]["ranks"] == [0, 1]
    assert far["otherData"]["ranks"] == [2]
    assert (near["otherData"]["clock_ahead_ns"], near["otherData"]["clock_within_ns"]) == (0, 0)
    error_ns = far["otherData"]["clock_within_ns"]
    assert abs(far["otherData"]["clock_ahead_ns"] - apart_s * SECOND_NS) <= error_ns
    # The calls were stamped by the true clock, which here is one: so the far one's stand early by the difference.
    calls = [slices(document, "call")[0] for document in (near, far)]
    shift_us = calls[1]["ts"] - calls[0]["ts"]
    assert abs(shift_us + apart_s * 1e6) <= error_ns / 1e3 + calls[0]["dur"] + calls[1]["dur"]
    clear(path, rank)


def test_the_error_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    def body(rank: int, size: int) -> str:
        path = shared_path(rank)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_trace, "_own_host", lambda: str(rank))
            own_clock_ahead_by(patch, -5 * rank)
            sw.trace(path).stop()
        documents = [whole_document(path.with_name(name)) for name in ("trace.json", "trace.host1.json")]
        clear(path, rank)
        return json.dumps([document["otherData"]["ranks"] for document in documents])

    assert set(run_ranks(2, body)) == {"[[0], [1]]"}
    said = [line for line in capfd.readouterr().err.splitlines() if "clock" in line]
    assert len(said) == 1
    assert said[0].startswith("shardway: trace: the clock of rank 1's host is ")
    assert " s behind that of rank 0's, to within " in said[0]
