"""vLLM generates with the weights that a trainer sends through a link: `make test-vllm`, which installs vLLM."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import free_ports
from tests.support.programs import started_program

ROOT = Path(__file__).resolve().parents[2]
VLLM = os.environ.get("SHARDWAY_VLLM_PYTHON", "")
TRAINERS, WORKERS = 2, 1
TIMEOUT_S = 260

pytestmark = pytest.mark.skipif(not VLLM, reason="needs vLLM in an environment of its own: make test-vllm")


def _started(programs: ExitStack, python: str, *words: object) -> Any:
    environment = {
        **os.environ,
        "SHARDWAY_LINK_SECRET": "of the test",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    }
    return programs.enter_context(
        started_program([python, "-m", *words], env=environment, cwd=ROOT, stdout=-1, stderr=-1)
    )


def _ended(program: Any) -> str:
    out, err = program.communicate(timeout=TIMEOUT_S)
    assert program.returncode == 0, f"exit code {program.returncode}\n{out[-3000:]}\n{err[-6000:]}"
    return str(out)


def test_vllm_generates_with_what_the_trainer_sends(tmp_path):
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with ExitStack() as programs:
        trainers = [
            _started(programs, sys.executable, "tests.vllm_link.trainer", address, rank, TRAINERS)
            for rank in range(TRAINERS)
        ]
        out = _ended(_started(programs, VLLM, "tests.vllm_link.generator", address, tmp_path / "model", WORKERS))
        for trainer in trainers:
            _ended(trainer)
    (line,) = (line for line in out.splitlines() if line.startswith("ANSWER "))
    answer = json.loads(line.removeprefix("ANSWER "))
    first, second = answer["versions"]
    for version in (first, second):
        assert version["differing"] == [[]] * WORKERS
        assert version["generated"] == version["expected"]
    assert "role trainer rank 0" in answer["trainer_left"]["error"], answer["trainer_left"]["error"]
    assert answer["trainer_left"]["generated"] == second["expected"]  # it serves on
    assert len({json.dumps(words) for words in (answer["before"], first["generated"], second["generated"])}) == 3
