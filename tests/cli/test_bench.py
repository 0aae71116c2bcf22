"""`shardway bench`: what it measures, and the files that it writes."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.programs import run_program, started_program

PROGRAM = Path(sys.executable).with_name("shardway")
LIMIT_S = 120
INTERRUPTED = 128 + signal.SIGINT


def test_table_csv_json_and_plot_have_the_same_rows(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("csv", "json", "svg")}
    what = ("--ops", "all_reduce,all_to_all", "--sizes", "1KiB:4KiB", "--parts", "even,rising")
    words = ("-n", 3, *what, "--seconds", 1)
    outputs = ("--csv", files["csv"], "--json", files["json"], "--plot", files["svg"])
    answer = run_program([PROGRAM, "bench", *words, *outputs], timeout_s=LIMIT_S)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == "", "no progress where standard error is no terminal"
    document = json.loads(files["json"].read_text())
    assert document["ranks"] == 3
    assert document["complete"] is True
    rows = document["rows"]
    calls = [("all_reduce", "even"), ("all_to_all", "even"), ("all_to_all", "rising")]
    assert [(row["op"], row["parts"], row["bytes"]) for row in rows] == [
        (*call, size) for call in calls for size in (1024, 2048, 4096)
    ]
    for row in rows:
        assert row["count"] == row["bytes"] // 4
        assert abs(row["algbw_gb_per_s"] - row["bytes"] / row["us"] / 1e3) <= 1e-9
        factor = 4 / 3 if row["op"] == "all_reduce" else 2 / 3  # nccl-tests: 2 (n - 1) / n, and (n - 1) / n
        assert abs(row["busbw_gb_per_s"] - factor * row["algbw_gb_per_s"]) <= 1e-9
    with files["csv"].open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [(row["op"], row["parts"], int(row["bytes"])) for row in written] == [
        (row["op"], row["parts"], row["bytes"]) for row in rows
    ]
    for text in (answer.stdout, files["csv"].read_text(), files["json"].read_text(), files["svg"].read_text()):
        for said in ("date", "processor", "shardway"):
            assert document[said] in text, f"{said} is in every output"
    assert answer.stdout.count("float") == len(rows)
    assert files["svg"].read_text().count("<circle") == len(rows)
    assert "noise:" in answer.stdout


def interrupted_after(seconds: float, output: Path) -> tuple[int, str]:
    words = ("-n", 2, "--ops", "permute", "--sizes", "4MiB:16MiB", "--seconds", 600, "--whole-time", "--json", output)
    with started_program([PROGRAM, "bench", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        time.sleep(seconds)
        program.send_signal(signal.SIGINT)
        printed, _ = program.communicate(timeout=LIMIT_S)
        return program.returncode, printed


def test_an_interruption_keeps_what_was_measured(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    for seconds in (0.05, 2, 10, 30):  # a busy machine needs longer for the first calls
        code, printed = interrupted_after(seconds, output)
        if code == INTERRUPTED:
            document = json.loads(output.read_text())
            assert document["complete"] is False
            assert document["rows"]
            assert "interrupted" in printed
            return
        if code == -signal.SIGINT:  # the program had not begun to listen
            continue
        assert code == 1, printed
        assert "interrupted before" in printed
        assert not output.exists()
    raise AssertionError("no run was interrupted while it measured")
