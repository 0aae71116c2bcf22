"""`shardway doctor` in environments that lack something, and what it makes of the Python that it asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import run_program

PROGRAM = Path(sys.executable).with_name("shardway")
LIMIT_S = 170
PATIENCE = ("--patience", 120)  # the machine may be busy
NO_PYTHON = ("--python", "/no/such/python")

Lines = dict[str, dict[str, str]]


def lines_of(printed: str) -> Lines:
    """By subject."""
    return {line["subject"]: line for line in json.loads(printed)["lines"]}


def doctor(*words: object) -> subprocess.CompletedProcess[str]:
    return run_program([PROGRAM, "doctor", *PATIENCE, *words], timeout_s=LIMIT_S)


def fake_python(folder: Path, body: str) -> Path:
    program = folder / "python3"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


def test_two_ranks_meet_in_every_way_and_text_says_what_json_says() -> None:
    answer = doctor("--python", sys.executable, "--json")
    lines = lines_of(answer.stdout)
    for way in ("shared memory", "shared memory in torch", "gloo", 'backend "shardway"'):
        assert lines[way]["health"] in ("ok", "slow"), lines[way]
        assert "two ranks exchanged values" in lines[way]["what"]
    assert lines["torch"]["health"] == "ok", lines["torch"]
    assert answer.returncode == (1 if any(line["health"] == "broken" for line in lines.values()) else 0)
    text = doctor("--python", sys.executable).stdout
    for subject, line in lines.items():
        assert any(f"{line['health']:8}{subject}" in row for row in text.splitlines()), (subject, text)


def test_a_variable_that_is_misspelt_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDWAY_CHEKC", "1")
    answer = doctor(*NO_PYTHON, "--json")
    assert answer.returncode == 1
    environment = lines_of(answer.stdout)["environment"]
    assert environment["health"] == "broken"
    assert environment["advice"] == "did you mean SHARDWAY_CHECK?"
    assert json.loads(answer.stdout)["health"] == "broken"


def test_a_python_that_was_asked_for_must_answer(tmp_path: Path) -> None:
    answer = doctor(*NO_PYTHON, "--json")
    assert lines_of(answer.stdout)["Python"]["health"] == "broken"
    assert answer.returncode == 1
    python = fake_python(tmp_path, 'echo "ImportError: built for torch 2.11" >&2; exit 1')
    line = lines_of(doctor("--python", python, "--json").stdout)["Python"]
    assert line["health"] == "broken"
    assert "ImportError: built for torch 2.11" in line["what"]
    python = fake_python(tmp_path, 'echo \'{"lines": [{"subject": 7}]}\'')
    assert lines_of(doctor("--python", python, "--json").stdout)["Python"]["health"] == "broken"


def test_a_machine_without_python_is_well(tmp_path: Path) -> None:
    """The program and C++ need none."""
    program = tmp_path / "shardway"
    program.symlink_to(PROGRAM.resolve())
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHARDWAY")}
    answer = subprocess.run(
        [program, "doctor", "--json"], env={**kept, "PATH": "/nowhere"}, capture_output=True, text=True, timeout=LIMIT_S
    )
    line = lines_of(answer.stdout)["Python"]
    assert line["health"] == "ok"
    assert "C++ programs need none" in line["what"]


def in_namespace(script: str) -> str:
    """Runs a script as root of a mount namespace of its own; the tests that call this are for those who may."""
    command = ["unshare", "--mount", "sh", "-ec", script]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if not answer.stdout:
        pytest.skip(f"no mount namespace here: {answer.stderr.strip()}")
    return answer.stdout


def test_limits_of_a_container_are_seen(tmp_path: Path) -> None:
    """A control group that pays for one core and has 512 MiB left, and no /dev/shm."""
    groups = tmp_path / "cgroup"
    (groups / "small").mkdir(parents=True)
    for name, value in {"cpu.max": "100000 100000", "memory.max": str(1 << 30), "memory.current": str(1 << 29)}.items():
        (groups / "small" / name).write_text(value + "\n")
    (tmp_path / "self").write_text("0::/small\n")
    told = lines_of(
        in_namespace(
            f"mount --make-rprivate / || exit 9; mount --bind {groups} /sys/fs/cgroup || exit 9;"
            f"mkdir -p {tmp_path}/none && chmod 555 {tmp_path}/none && mount --bind {tmp_path}/none /dev/shm || exit 9;"
            f"mount -o remount,ro,bind /dev/shm || exit 9;"
            f"exec sh -c 'mount --bind {tmp_path}/self /proc/$$/cgroup || exit 9;"
            f"exec {PROGRAM} doctor {' '.join(NO_PYTHON)} --json'"
        )
    )
    assert told["cores"]["health"] == "slow"
    assert "its control group pays for 1 of" in told["cores"]["what"]
    assert told["memory"]["health"] == "slow"
    assert told["memory"]["what"].startswith("512 MiB of")
    assert told["/dev/shm"]["health"] == "slow"
    assert told["/dev/shm"]["what"].startswith("it is missing or cannot be written")
    assert "two ranks exchanged values" in told["shared memory"]["what"]  # it needs no /dev/shm
