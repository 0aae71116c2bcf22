"""`torchrun -m shardway.bench`: torch's calls beside ours, and plans that lost."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

from tests.support.forked_programs import torchrun

LIMIT_S = 170


def bench(ranks: int, *words: object) -> subprocess.CompletedProcess[str]:
    return torchrun(ranks, "-m", "shardway.bench", *words, timeout_s=LIMIT_S)


def test_torchs_calls_stand_beside_ours(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    answer = bench(2, "--ops", "all_gather,all_reduce", "--least", 4096, "--most", 8192, "--seconds", 1, "--json", path)
    assert answer.returncode == 0, answer.stderr
    document = json.loads(path.read_text())
    assert [(row["op"], row["contender"], row["bytes"]) for row in document["rows"]] == [
        (op, whose, size)
        for op in ("all_gather", "all_reduce")
        for size in (4096, 8192)
        for whose in ("shardway", "torch")
    ]
    assert document["date"] in answer.stdout
    assert document["processor"] in answer.stdout
    assert "noise:" in answer.stdout


def test_plans_that_lost_are_run_beside_the_chosen_one(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    answer = bench(2, "--plans", "--seconds", 1, "--json", path)
    assert answer.returncode == 0, answer.stderr
    rows = json.loads(path.read_text())["rows"]
    cases = {(row["from"], row["to"]): row["regret"] for row in rows}
    assert len(cases) == 8, "four pairs of layouts, two sizes"
    assert sum(row["is_chosen"] for row in rows) == len(cases)
    assert any(not row["is_chosen"] for row in rows)
    mean = math.exp(sum(math.log(regret) for regret in cases.values()) / len(cases))
    assert math.isclose(rows[0]["mean_regret"], mean, rel_tol=1e-9)


def test_mistakes_are_said() -> None:
    assert "nobody to send to" in bench(1).stderr
    assert "'all_gater' is not one of" in bench(1, "--ops", "all_gater").stderr
