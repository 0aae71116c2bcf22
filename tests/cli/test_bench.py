"""`shardway bench`: what it measures, and the files that it writes."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.programs import run_program, started_program

PROGRAM = Path(sys.executable).with_name("shardway")
LIMIT_S = 120
INTERRUPTED = 128 + signal.SIGINT


def test_table_csv_json_and_plot_have_the_same_rows(tmp_path: Path) -> None:
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("csv", "json", "svg")}
    what = ("--ops", "all_reduce,all_to_all", "--sizes", "1KiB:4KiB", "--parts", "even,rising")
    words = ("-n", 3, *what, "--seconds", 1, "--mpi", "none")
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
    assert {row["library"] for row in rows} == {row["library"] for row in written} == {"shardway"}
    assert "not compared with an MPI: --mpi none says so\n" in answer.stdout
    assert "not compared with gloo" in answer.stdout


def interrupted_after(seconds: float, output: Path) -> tuple[int, str]:
    what = ("--ops", "permute", "--sizes", "4MiB:16MiB", "--mpi", "none")
    words = ("-n", 2, *what, "--seconds", 600, "--whole-time", "--json", output)
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


FEW = ("--sizes", "1KiB:2KiB", "--seconds", 1)


def folder_of_programs(folder: Path, **texts: str) -> Path:
    """A folder with shell scripts of these names."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o700)
    return folder


@pytest.mark.parametrize(("mpi", "library"), [("openmpi", "Open MPI"), ("mpich", "MPICH")])
def test_an_mpi_stands_beside_in_every_output(tmp_path: Path, mpi: str, library: str) -> None:
    programs = {name: shutil.which(f"{name}.{mpi}") for name in ("mpirun", "mpicc")}
    if not all(programs.values()):
        pytest.skip(f"{library} is not installed")
    scripts = {name: f'exec {path} "$@"' for name, path in programs.items()}
    place = folder_of_programs(tmp_path / "mpi", **scripts)
    files = {kind: tmp_path / f"bench.{kind}" for kind in ("csv", "json", "svg")}
    outputs = ("--csv", files["csv"], "--json", files["json"], "--plot", files["svg"])
    words = ("-n", 2, *FEW, "--parts", "even,rising", "--mpi", place, *outputs)
    answer = run_program([PROGRAM, "bench", *words], timeout_s=LIMIT_S)
    assert answer.returncode == 0, answer.stderr
    document = json.loads(files["json"].read_text())
    rows = document["rows"]
    (name,) = {row["library"] for row in rows} - {"shardway"}
    assert name.startswith(f"{library} "), "its name and version"
    assert not any("the MPI of" in line for line in document["not_compared"])
    ours, theirs = rows[::2], rows[1::2]
    for own, other in zip(ours, theirs, strict=True):
        assert (own["library"], other["library"]) == ("shardway", name)
        assert all(own[key] == other[key] for key in ("op", "parts", "bytes"))
        assert other["us"] > 0
    assert len(ours) == (5 + 3) * 2, "five ops, three of which have parts, of two sizes"
    with files["csv"].open(newline="") as file:
        assert [row["library"] for row in csv.DictReader(file)] == [row["library"] for row in rows]
    assert answer.stdout.count(f"  {name}\n") == len(theirs)
    assert files["svg"].read_text().count("<circle") == len(rows)
    assert f"all_reduce, {name}" in files["svg"].read_text()


BAD_MPIS = {
    "it cannot compile": ({"mpicc": "echo no headers >&2; exit 1", "mpirun": "exit 0"}, "no headers"),
    "it cannot start": ({"mpicc": "exit 0", "mpirun": "echo ----- >&2; echo no slots >&2; exit 1"}, "no slots"),
    "it says no times": (
        {"mpicc": "exit 0", "mpirun": '[ "$1" = --version ] || { echo My MPI 1.0; echo hello; }'},
        "its ranks say something else than times: hello",
    ),
}


@pytest.mark.parametrize("case", BAD_MPIS)
def test_an_mpi_that_fails_is_named_and_our_rows_stay(tmp_path: Path, case: str) -> None:
    programs, why = BAD_MPIS[case]
    place = folder_of_programs(tmp_path / "mpi", **programs)
    answer = run_program([PROGRAM, "bench", "-n", 2, *FEW, "--ops", "permute", "--mpi", place], timeout_s=LIMIT_S)
    assert answer.returncode == 0, answer.stderr
    (line,) = [line for line in answer.stdout.splitlines() if "the MPI of" in line]
    assert line.startswith(f"not compared with the MPI of {place}/mpirun: ")
    assert line.endswith(why)
    assert answer.stdout.count("  shardway\n") == 2


def test_a_machine_without_mpi_is_told_so(tmp_path: Path) -> None:
    words = [PROGRAM, "bench", "-n", 2, *FEW, "--ops", "permute"]
    answer = run_program(words, timeout_s=LIMIT_S, env={**os.environ, "PATH": str(tmp_path)})
    assert answer.returncode == 0, answer.stderr
    assert "not compared with an MPI: there are no mpirun and mpicc on PATH; --mpi DIR says where\n" in answer.stdout
    refused = run_program([*words, "--mpi", tmp_path], timeout_s=LIMIT_S)
    assert refused.returncode == 2
    assert f"--mpi {tmp_path}: there are no mpirun and mpicc in it, nor in its bin" in refused.stderr


# Prints times that never agree until it is told to stop, and leaves a file once it has begun.
SLOW_MPI = """[ "$1" = --version ] && exit 0
echo My MPI 1.0
while [ ! -e "$5" ]; do echo 0 2.5; echo 0 5.0; : > "$(dirname "$0")/begun"; sleep 0.1; done"""


def test_an_interruption_while_an_mpi_is_measured_keeps_both(tmp_path: Path) -> None:
    place = folder_of_programs(tmp_path / "mpi", mpicc="exit 0", mpirun=SLOW_MPI)
    output = tmp_path / "bench.json"
    what = ("--ops", "permute", "--sizes", "1KiB", "--mpi", place, "--json", output)
    words = [PROGRAM, "bench", "-n", 2, *what, "--seconds", 60]
    with started_program(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        end = time.monotonic() + LIMIT_S
        while not (place / "begun").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        program.send_signal(signal.SIGINT)
        printed, _ = program.communicate(timeout=LIMIT_S)
    assert program.returncode == INTERRUPTED, printed
    document = json.loads(output.read_text())
    assert document["complete"] is False
    assert document["rows"][0]["library"] == "shardway"
