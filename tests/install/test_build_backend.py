"""`pip install .` compiles for the torch that is installed, and refuses in one sentence where it cannot."""

from __future__ import annotations

import importlib
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.support.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(torch.__file__).parents[1]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "python/packaging"))
    return importlib.reload(importlib.import_module("shardway_build"))


def fake_torch(site: Path, version: str = "2.14.1") -> Path:
    folder = site / "torch"
    header = folder / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('nobody needs to load it')")
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    header.write_text("".join(f"#define TORCH_VERSION_{part} {number}\n" for part, number in parts))
    return folder


def hide_torch(monkeypatch: pytest.MonkeyPatch, site: Path) -> None:
    """As pip's isolation does: the environment is `site`, and the build may not import from there."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if Path(entry) != SITE])
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(site))


def test_the_torch_of_the_target_is_found_though_it_is_hidden(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = fake_torch(tmp_path)
    hide_torch(monkeypatch, tmp_path)
    settings = backend.with_torch({"cmake.build-type": "Debug"})
    assert settings[backend.DEFINE] == str(folder)
    assert settings["cmake.build-type"] == "Debug"
    assert "torch-2.14-" in settings["build-dir"]


def test_a_wheel_requires_the_minor_version_that_it_was_compiled_with(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_torch(tmp_path)
    hide_torch(monkeypatch, tmp_path)
    assert backend.Requirements().dynamic_metadata({}, {}) == {"dependencies": ["torch>=2.11,<2.16"]}  # an sdist
    backend.with_torch(None)
    assert backend.Requirements().dynamic_metadata({}, {}) == {"dependencies": ["torch==2.14.*"]}


def test_a_torch_that_is_named_goes_before_the_one_that_is_there(backend: ModuleType, tmp_path: Path) -> None:
    named = fake_torch(tmp_path)
    assert backend.with_torch({backend.DEFINE: str(named)})[backend.DEFINE] == str(named)


def test_without_torch_it_refuses_before_anything_is_downloaded(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_torch(monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match=r"has none: pip install torch .*then pip install --no-build-isolation \.$"):
        backend.get_requires_for_build_wheel()


def test_an_old_torch_is_refused(backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    hide_torch(monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match=r"holds no torch of at least 2\.11: install torch>=2\.11,<2\.16"):
        backend.get_requires_for_build_wheel()


def test_without_a_compiler_it_says_which_package_has_one(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SystemExit, match=r"no C\+\+ compiler: apt-get install g\+\+"):
        backend.get_requires_for_build_wheel()


def test_the_limits_are_those_of_cmake(backend: ModuleType) -> None:
    text = (ROOT / "cmake/torch.cmake").read_text()
    assert (
        "set(oldest_torch 2.11)" in text and "set(newest_torch 2.15)" in text and backend.KNOWN == "torch>=2.11,<2.16"
    )


def refused(folder: Path, *options: str) -> str:
    """What CMake says when it does not configure."""
    call = [
        "cmake",
        "-G",
        "Ninja",
        "-S",
        ROOT,
        "-B",
        folder / "build",
        f"-DPython_EXECUTABLE={sys.executable}",
        *options,
    ]
    done = run_program(call, timeout_s=120)
    assert done.returncode != 0
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0"])
def test_a_torch_that_nobody_has_tried_is_refused_by_cmake(version: str, tmp_path: Path) -> None:
    said = refused(tmp_path, f"-DSHARDWAY_TORCH_DIR={fake_torch(tmp_path, version)}")
    assert f"torch {version} in {tmp_path}/torch is none of those that shardway is built with, 2.11 to 2.15" in said
    assert "pip install torch==2.15.*, or try it with -DSHARDWAY_ANY_TORCH=ON" in said


def test_a_folder_without_torch_is_refused_by_cmake(tmp_path: Path) -> None:
    assert f"{tmp_path} holds no torch of at least 2.11" in refused(tmp_path, f"-DSHARDWAY_TORCH_DIR={tmp_path}")


def test_a_python_without_torch_is_told_how_to_get_one(tmp_path: Path) -> None:
    bare = tmp_path / "venv"
    assert run_program([sys.executable, "-m", "venv", "--without-pip", bare], timeout_s=60).returncode == 0
    said = refused(tmp_path, f"-DPython_EXECUTABLE={bare}/bin/python")
    assert f"{bare}/bin/python has no torch: {bare}/bin/python -m pip install torch==2.15.*" in said


def test_a_python_without_headers_is_told_which_package_has_them(tmp_path: Path) -> None:
    said = refused(tmp_path, f"-DPython_INCLUDE_DIR={tmp_path}/none")
    assert "has no headers to compile an extension with: apt-get install python3-dev" in said


def test_headers_that_are_missing_are_named_with_their_packages(tmp_path: Path) -> None:
    absent = ["-DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON", "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"]
    said = refused(tmp_path, "-DSHARDWAY_TORCH=OFF", *absent)
    assert "CLI11 2.1 is not here, whose headers shardway is compiled with: apt-get install libcli11-dev" in said


def test_an_sdist_brings_the_headers_that_it_is_compiled_with(tmp_path: Path) -> None:
    made = run_program([ROOT / "scripts/sdist", tmp_path], timeout_s=120)
    assert made.returncode == 0, made.stderr
    (archive,) = tmp_path.glob("shardway-*.tar.gz")
    assert run_program(["tar", "-xzf", archive, "-C", tmp_path], timeout_s=60).returncode == 0
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert "Requires-Dist: torch<2.16,>=2.11" in (source / "PKG-INFO").read_text()
    absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("CLI11", "nlohmann_json")]
    call = ["cmake", "-G", "Ninja", "-S", source, "-B", tmp_path / "build", "-DSHARDWAY_TORCH=OFF", *absent]
    done = run_program([*call, "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"], timeout_s=120)
    assert done.returncode == 0, done.stderr
    build = run_program(["cmake", "--build", tmp_path / "build", "--target", "shardway_notation"], timeout_s=300)
    assert build.returncode == 0, build.stdout
