"""A benchmark says of every claim what came of it; where its options left the rows out, that it was not measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench import backend, backend_programs, ragged
from bench.backend_contenders import OURS, PEER, STEP
from bench.report import Claim, Row, print_claims
from bench.shm_claims import Figures, claims
from bench.shm_python import python_claims

FROM_NOTHING: dict[str, Callable[[], list[Claim]]] = {
    "backend": lambda: backend.claims_of([]),
    "backend in C++": lambda: backend_programs.claims_of([]),
    "shm": lambda: claims(Figures([])),
    "shm from Python": lambda: python_claims([]),
    "ragged": lambda: ragged.claims_of(ragged.Findings([], [], [], [])),
}


@pytest.mark.parametrize("made", FROM_NOTHING.values(), ids=FROM_NOTHING.keys())
def test_claim_without_rows_is_not_measured(made: Callable[[], list[Claim]]) -> None:
    found = made()
    assert found
    assert {(claim.met, claim.figure) for claim in found} == {(None, "not measured")}


def test_claim_of_another_number_of_ranks_is_not_measured_and_the_others_are() -> None:
    rows = [
        Row(op, name, 4, (1,), 4, us, 0.0, 9)
        for op, ours_us in (("all_reduce", 10.0), (STEP, 200.0))
        for name, us in ((OURS, ours_us), (PEER, 100.0))
    ]
    smallest, mean, everywhere, step = backend.claims_of(rows)
    assert smallest.met is None
    assert (mean.met, mean.figure) == (True, "10.0 times")
    assert everywhere.met is True
    assert (step.met, step.figure) == (False, "0.50 times")


def test_claim_that_was_not_measured_is_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_claims([Claim("faster", "2 times", True), *backend_programs.claims_of([])]) == 1
    assert capsys.readouterr().out.count("not measured") == 2
