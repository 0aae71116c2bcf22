"""A C++ program of four processes gives the same answer whoever starts it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
PROGRAM = str(Path(sys.executable).with_name("shardway"))
TIMEOUT_S = 120
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "--no-python"]
LAUNCHERS = {
    "shardway launch": [PROGRAM, "launch", "-n", "4"],
    "torchrun": TORCHRUN,
    "Open MPI": ["mpirun.openmpi", "-n", "4", "--allow-run-as-root", "--oversubscribe"],
    "MPICH": ["mpirun.mpich", "-n", "4"],
}


@functools.lru_cache
def launched(launcher: str, example: str) -> list[str]:
    """What the ranks print, without the numbers that our launcher puts before it."""
    command = LAUNCHERS[launcher]
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    if not (BUILD / "examples" / example).exists():
        pytest.skip(f"there is no program {example}, which make test builds")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = run_program([*command, BUILD / "examples" / example], timeout_s=TIMEOUT_S, env=environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return [re.sub(r"^\[\d\] ", "", line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_contrastive_example_finds_its_ranks(launcher: str) -> None:
    answer = launched(launcher, "contrastive")
    assert answer == launched("shardway launch", "contrastive")
    ranks, loss, verdict = answer
    assert ranks == "4 ranks, pairs per rank [12, 7, 4, 1]"
    assert re.fullmatch(r"loss: one process (\d\.\d+), added over the ranks \1", loss)
    assert verdict == "ok: the distributed gradient is the one-process gradient"


@pytest.mark.parametrize("launcher", [name for name in LAUNCHERS if name != "torchrun"])  # slow to start
def test_a_program_without_torch_finds_its_ranks(launcher: str) -> None:
    expected = [f"gathered 10000 numbers, its {1000 * n} sums are {4 * n}" for n in (1, 2, 3, 4)]
    assert sorted(launched(launcher, "shm_processes")) == expected


def test_a_python_program_finds_its_ranks_under_shardway_launch() -> None:
    program = [sys.executable, str(ROOT / "examples/contrastive.py")]
    call = [PROGRAM, "launch", "-n", "2", *program]
    done = run_program(call, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert "[0] 2 ranks, pairs per rank [12" in done.stdout
    assert "[0] ok: the distributed gradient is the one-process gradient" in done.stdout
