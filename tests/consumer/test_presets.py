"""The presets of CMakePresets.json configure as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
PRESETS = json.loads((ROOT / "CMakePresets.json").read_text())
VISIBLE = {preset["name"] for preset in PRESETS["configurePresets"] if not preset.get("hidden")}


def test_every_preset_configures_and_builds_under_one_name() -> None:
    assert {preset["name"] for preset in PRESETS["buildPresets"]} == VISIBLE
    assert {preset["name"] for preset in PRESETS["testPresets"]} == VISIBLE - {"fuzz"}


@pytest.mark.parametrize("preset", ["dev", "no-torch", "fuzz"])  # release is what is tested; asan and tsan are dev's
def test_a_preset_configures(preset: str, tmp_path: Path) -> None:
    if preset == "fuzz" and shutil.which("clang++-16") is None:
        pytest.skip("there is no clang++-16")
    call = ["cmake", "--preset", preset, "-B", str(tmp_path)]
    done = run_program(call, cwd=ROOT, timeout_s=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("part", ["PROGRAM", "INSTALL"])
def test_what_is_left_out_is_not_missed(part: str, tmp_path: Path) -> None:
    call = ["cmake", "--preset", "release", "-B", str(tmp_path), f"-DSHARDWAY_{part}=OFF", "-DSHARDWAY_TESTS=ON"]
    done = run_program(call, cwd=ROOT, timeout_s=120)
    assert done.returncode == 0, done.stderr
