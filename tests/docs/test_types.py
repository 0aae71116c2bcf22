"""A typed program that uses every public name passes mypy --strict, and a misspelt word does not."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

import shardway as sw
from tests.support.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "typed_use.py"
WRONG = """
import torch
import shardway as sw
sw.all_gather_v(torch.ones(1), grad="summ")
sw.all_reduce(torch.ones(1), op="add")
sw.Partial("median")
sw.torch
"""
TIMEOUT_S = 240


def mypy(*files: Path) -> str:
    pytest.importorskip("mypy")
    environment = {**os.environ, "MYPYPATH": "python"}
    options = ["--strict", "--config-file=", "--python-version=3.10"]
    command = [sys.executable, "-m", "mypy", *options, *files]
    return run_program(command, timeout_s=TIMEOUT_S, cwd=ROOT, env=environment).stdout


def test_the_program_uses_every_public_name() -> None:
    nodes = ast.walk(ast.parse(PROGRAM.read_text()))
    used = {
        n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "sw"
    }
    assert used == set(sw.__all__)


def test_mypy_takes_the_program_and_finds_misspelt_words(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    found = mypy(PROGRAM, wrong)
    assert "typed_use.py" not in found, found
    lines = {line for line in range(1, 8) if f"wrong.py:{line}: error" in found}
    assert lines == {4, 5, 6, 7}, found
