"""A benchmark says of every claim what came of it; where its options left the rows out, that it was not measured."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import backend, backend_programs, engines, jax_reshard, large, overhead_ranks, peers, ragged
from bench.backend_contenders import OURS, PEER, STEP
from bench.engine_bits import Bits
from bench.engines import EngineRow
from bench.large import LargeRow
from bench.mpis import Mpi, found_mpis, kind_of
from bench.peers import PeerRow, Place
from bench.report import Claim, Row, print_claims
from bench.shm_claims import Figures, claims
from bench.shm_contenders import OURS as SPANS
from bench.shm_contenders import PULLS
from bench.shm_python import python_claims

FROM_NOTHING: dict[str, Callable[[], list[Claim]]] = {
    "backend": lambda: backend.claims_of([]),
    "backend in C++": lambda: backend_programs.claims_of([]),
    "shm": lambda: claims(Figures([])),
    "shm from Python": lambda: python_claims([]),
    "peers": lambda: peers.claims_of({}),
    "large": lambda: large.claims_of([]),
    "overhead": lambda: overhead_ranks.claims_of([], [2]),
    "engines": lambda: engines.claims_of([], []),
    "reshardings": lambda: jax_reshard.claims_of([]),
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


def _peer_row(contender: str, us: float, run: int) -> PeerRow:
    return PeerRow("all_gather_v", contender, 2, "equal", 64, us, 0.0, 9, "out", 0, beside=0, run=run)


def test_best_setting_of_the_best_peer_counts_and_the_median_of_the_runs() -> None:
    ratios = (3.0, 0.5, 1.5)  # of the runs
    rows = [
        row
        for run, times in enumerate(ratios)
        for row in (
            _peer_row(SPANS, 2.0, run),
            _peer_row(PULLS, 1.0, run),
            _peer_row("Open MPI 5.0.11", 90.0, run),
            _peer_row("Intel MPI 2021.19.0", 80.0, run),
            _peer_row("Intel MPI 2021.19.0, +2080", 2.0 * times, run),
        )
    ]
    found = peers.compare(rows)[Place(2, 0, "all_gather_v", 64)]
    assert (found.times, found.peer, found.peer_name, found.of_pulls) == (1.5, 3.0, "Intel MPI 2021.19.0", 2.0)
    small, _, least, company = peers.claims_of(peers.compare(rows))
    assert (small.met, least.met, company.met) == (False, True, None)
    assert peers.claims_of(peers.compare(rows[5:10]))[2].met is False


def test_large_call_is_compared_with_the_pulls_of_its_own_run_and_policy() -> None:
    def row(contender: str, us: float, output: str, run: int) -> LargeRow:
        return LargeRow("all_gather_v", contender, 2, "equal", 2**20, us, 0.0, 9, output, 0, run=run)

    rows = [
        row(contender, us * (run + 1), output, run)
        for run in range(3)
        for output, times in (("out", (12.0, 10.0)), ("steady", (30.0, 20.0)))
        for contender, us in zip((SPANS, PULLS), times, strict=True)
    ]
    ordinary, shared = large.claims_of(rows)
    assert (ordinary.met, ordinary.figure.split(";")[1]) == (False, " 1 of 2 rows above")
    assert ordinary.figure.startswith("1.50 times at all_gather_v of 1 MiB, steady")
    assert shared.met is None
    assert large.claims_of([r for r in rows if r.output == "out"])[0].met is True


def test_the_best_engine_of_each_run_counts_and_a_row_that_it_wins_is_told() -> None:
    def rows(op: str, us: dict[str, tuple[float, ...]]) -> list[EngineRow]:
        times = [(name, run, of_run[run]) for name, of_run in us.items() for run in range(3)]
        return [EngineRow(op, name, 2, (16,), 64, us, 0.0, 9, dtype="f32", run=run) for name, run, us in times]

    found = rows(
        "all_reduce", {engines.OURS: (2, 2, 2), "vLLM 1": (1, 4, 9), "DeepSpeed 1": (9, 9, 3), "gloo": (1,) * 3}
    )
    found += rows("all_gather", {engines.OURS: (2, 2, 2), engines.BACKEND: (1, 1, 1), "vLLM 1": (1.5,) * 3})
    plain, prepared, fastest, bits = engines.claims_of(found, [])
    assert (plain.met, prepared.met, bits.met) == (False, None, None)
    assert plain.figure.startswith("0.75 times at all_gather of 64 B, f32, 2 ranks; 1 of 2 rows below")
    assert (fastest.met, fastest.figure.split(" at ")[0]) == (True, "1.50 times")
    assert engines.claims_of(found[:12], [])[0].met is True


@pytest.mark.parametrize(("at_sizes", "met"), [(["f32", "bf16"], True), (["bf16"], False)])
def test_the_bits_of_engines_are_no_claim_of_ours(at_sizes: list[str], met: bool) -> None:
    ours = [Bits(name, 3, ["f32"], ["f32", "bf16"], at_sizes) for name in (engines.OURS, engines.BACKEND)]
    assert engines.claims_of([], [*ours, Bits("vLLM 1", 3, ["f32"], [], [])])[-1].met is met


def test_settings_do_not_make_another_mpi() -> None:
    assert kind_of("Open MPI 5.0.11, malloc keeps, +2080") == "Open MPI 5.0.11"
    assert kind_of("shardway, shared") == "shardway, shared"


def test_peer_without_its_launcher_does_not_take_part(tmp_path: Path) -> None:
    assert not [mpi for mpi in found_mpis(tmp_path) if mpi.launcher.startswith(str(tmp_path))]


def test_launcher_gets_its_environment_and_a_folder_of_its_own(tmp_path: Path) -> None:
    program = tmp_path / "ranks"
    program.write_text('#!/bin/sh\necho "$WAY $TMPDIR $*"\n')
    program.chmod(0o755)
    shell = Mpi("MPICH", "0", "sh", program, {"WAY": "shm"}, ("-c", 'shift 2; exec "$@"', "sh"))
    done = subprocess.run(
        shell.command(2, tmp_path / "page", False, "keep"), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["shm", f"{tmp_path}/page.session", f"{tmp_path}/page", "keep"]
    assert os.path.isdir(tmp_path / "page.session")
