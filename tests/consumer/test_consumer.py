"""A project of somebody else finds shardway in an installed prefix, in one that was moved, in a wheel, in a build tree
and as sources that it fetches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import shardway as sw
from tests.support.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
FOLDER = ROOT / "build/consumer"  # always the same paths: the compiler cache knows them
VIEWS = f"-DSHARDWAY_VIEWS={BUILD / 'rooms'}"  # what the tested build has compiled is in the cache, too
TIMEOUT_S = 400
TORCH = Path(torch.__file__).parent


def run(*command: object, environment: dict[str, str] | None = None, expect: int = 0) -> str:
    environment = {**os.environ, **(environment or {})}
    done = run_program(command, stderr=subprocess.STDOUT, timeout_s=TIMEOUT_S, env=environment)
    assert done.returncode == expect, f"{command}\nexit code {done.returncode}\n{done.stdout}"
    return done.stdout


def configure(name: str, prefix: str, *options: str, expect: int = 0) -> str:
    """Configures the consumer in a folder of that name, as its user would."""
    shutil.rmtree(FOLDER / name, ignore_errors=True)
    compiler = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    call = ["cmake", "-G", "Ninja", "-S", ROOT / "tests/consumer", "-B", FOLDER / name, *compiler]
    return run(*call, f"-DCMAKE_PREFIX_PATH={prefix}", *options, expect=expect)


def answers(name: str, target: str) -> set[str]:
    """What two ranks of the built consumer print."""
    run("cmake", "--build", FOLDER / name)
    return set(run(BUILD / "bin/shardway", "launch", "-n", "2", FOLDER / name / target).splitlines())


def gathers(name: str) -> None:
    line = f"{sw.__version__}: 3 rows, the last is 2; 1 step"
    assert answers(name, "gather") == {f"[{rank}] {line}" for rank in range(2)}


@pytest.fixture(scope="module")
def prefix() -> Path:
    for folder in ("prefix", "moved"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
    run("cmake", "--install", BUILD, "--prefix", FOLDER / "prefix")
    return FOLDER / "prefix"


@pytest.fixture(scope="module")
def site() -> Path:
    """What a wheel holds, as pip lays it down."""
    shutil.rmtree(FOLDER / "site", ignore_errors=True)
    run("cmake", "--install", BUILD, "--prefix", FOLDER / "site", "--component", "wheel")
    return FOLDER / "site"


def runs_without_torch(name: str) -> None:
    line = f"{sw.__version__}: 3 numbers, the last is 2; 1 step, a page"
    assert answers(name, "without_torch") == {f"[{rank}] {line}" for rank in range(2)}
    assert "libtorch" not in run("ldd", FOLDER / name / "without_torch")


def asks_for_no_torch(name: str) -> None:
    lines = (FOLDER / name / "CMakeCache.txt").read_text().lower().splitlines()
    assert not [line for line in lines if "torch" in line and not line.startswith("//")]


def test_a_consumer_without_torch_builds_and_asks_for_no_torch(prefix: Path) -> None:
    configure("roomsonly", str(prefix), "-DSHARDWAY_FROM=rooms")
    asks_for_no_torch("roomsonly")
    runs_without_torch("roomsonly")


def test_what_make_demo_builds_serves_a_consumer_without_torch() -> None:
    run("cmake", "--build", BUILD, "--target", "shardway_package")  # what make demo builds
    configure("built", sw.cmake_prefix_path, "-DSHARDWAY_FROM=rooms")
    runs_without_torch("built")


def test_a_build_without_torch_installs_what_a_consumer_links() -> None:
    build = FOLDER / "no-torch"
    shutil.rmtree(build, ignore_errors=True)
    run("cmake", "--preset", "no-torch", "-B", build, "-DSHARDWAY_TESTS=OFF", VIEWS)
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--prefix", FOLDER / "no-torch-prefix")
    missing = configure("lean", str(FOLDER / "no-torch-prefix"), expect=1)
    assert "shardway::shardway" in missing  # there is no such target: it needs torch
    configure("lean", str(FOLDER / "no-torch-prefix"), "-DSHARDWAY_FROM=rooms")
    runs_without_torch("lean")


def test_a_consumer_fetches_the_sources_of_what_needs_no_torch() -> None:
    sources = ["-DSHARDWAY_FROM=sources", f"-DSHARDWAY_SOURCES={ROOT}", "-DCMAKE_BUILD_TYPE=Release"]
    configure("fetched", "", *sources, VIEWS)
    cache = (FOLDER / "fetched/CMakeCache.txt").read_text()
    assert "SHARDWAY_TORCH:BOOL=OFF" in cache and "CLI11" not in cache
    runs_without_torch("fetched")
    run("cmake", "--install", FOLDER / "fetched", "--prefix", FOLDER / "fetched-prefix")
    assert not list((FOLDER / "fetched-prefix").glob("**/*"))  # it is the consumer's to install


def test_a_consumer_builds_from_an_installed_prefix(prefix: Path) -> None:
    configure("installed", str(prefix), f"-DSHARDWAY_TORCH_DIR={TORCH}")
    gathers("installed")


@pytest.mark.parametrize("given", ["SHARDWAY_TORCH_DIR", "CMAKE_PREFIX_PATH", "cmake_prefix_path of torch"])
def test_torch_is_found_where_it_is_said_to_be(prefix: Path, given: str) -> None:
    places = {
        "SHARDWAY_TORCH_DIR": (str(prefix), f"-DSHARDWAY_TORCH_DIR={TORCH}"),
        "CMAKE_PREFIX_PATH": (f"{prefix};{TORCH}",),
        "cmake_prefix_path of torch": (f"{prefix};{torch.utils.cmake_prefix_path}",),
    }
    configure("places", *places[given])


def test_another_torch_is_refused_by_name(prefix: Path) -> None:
    """As after an upgrade: the folder is a torch, but not the one of the build."""
    other = FOLDER / "other-torch"
    header = other / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    header.write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 10\n#define TORCH_VERSION_PATCH 3\n")
    said = " ".join(configure("refused", str(prefix), f"-DSHARDWAY_TORCH_DIR={other}", expect=1).split())
    minor = ".".join(torch.__version__.split(".")[:2])
    assert f"it was built for torch {minor}, and found 2.10.3 in {other}: name torch's folder" in said


def test_a_component_that_is_not_there_is_named(prefix: Path) -> None:
    project = FOLDER / "component"
    project.mkdir(parents=True, exist_ok=True)
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(asks LANGUAGES CXX)\n"
        "find_package(shardway CONFIG REQUIRED COMPONENTS plan gpu)\n"
    )
    call = ["cmake", "-G", "Ninja", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    assert "it has no component gpu" in " ".join(run(*call, expect=1).split())


@pytest.mark.parametrize("wanted, is_found", [("0.1", True), ("0.1.0", True), ("0.2", False), ("1", False)])
def test_versions_follow_semantic_versioning(prefix: Path, wanted: str, is_found: bool) -> None:
    script = FOLDER / "version.cmake"
    script.write_text(
        f"set(PACKAGE_FIND_VERSION {wanted})\n"
        + "".join(
            f"set(PACKAGE_FIND_VERSION_{part} {number})\n"
            for part, number in zip(("MAJOR", "MINOR", "PATCH"), [*wanted.split("."), "0", "0"], strict=False)
        )
        + f"set(CMAKE_SIZEOF_VOID_P 8)\ninclude({prefix}/lib/cmake/shardway/shardwayConfigVersion.cmake)\n"
        + 'message("${PACKAGE_VERSION} ${PACKAGE_VERSION_COMPATIBLE}")\n'
    )
    version, is_compatible = run("cmake", "-P", script).split()
    assert version == sw.__version__
    assert (is_compatible == "TRUE") == is_found


def test_a_consumer_builds_from_a_prefix_that_was_moved(prefix: Path) -> None:
    moved = prefix.rename(FOLDER / "moved")
    try:
        written = "".join(path.read_text() for path in moved.glob("lib/cmake/shardway/*.cmake"))
        assert str(FOLDER) not in written
        configure("relocated", str(moved), f"-DSHARDWAY_TORCH_DIR={TORCH}")
        gathers("relocated")
        assert run(moved / "bin/shardway", "--version") == f"shardway {sw.__version__}\n"
    finally:
        moved.rename(prefix)


def test_a_consumer_builds_from_a_wheel(site: Path) -> None:
    ask = "import shardway; print(shardway.cmake_prefix_path)"
    found = run(sys.executable, "-c", ask, environment={"PYTHONPATH": str(site)}).strip()
    assert found == str(site / "shardway")
    (site / "torch").symlink_to(TORCH)  # where pip would have laid it: nobody names it
    configure("wheel", found)
    gathers("wheel")


def test_the_build_tree_is_a_prefix_too() -> None:
    configure("build-tree", sw.cmake_prefix_path)


def test_the_first_program_of_the_docs_builds_and_prints_what_they_say() -> None:
    page = (ROOT / "docs/cpp.md").read_text()
    program, project, session = re.findall(r"^```\w*\n(.*?)^```$", page, re.M | re.S)[:3]
    folder = FOLDER / "first"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.cpp").write_text(program)
    (folder / "CMakeLists.txt").write_text(project)
    assert "cmake --build build" in session and "shardway launch -n 2 build/program" in session
    compiler = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    run("cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={sw.cmake_prefix_path}", *compiler)
    run("cmake", "--build", folder / "build")
    printed = run(BUILD / "bin/shardway", "launch", "-n", "2", folder / "build/program").splitlines()
    assert sorted(printed) == [line for line in session.splitlines() if line.startswith("[")]


def test_every_version_is_that_of_the_header() -> None:
    header = (ROOT / "include/shardway/version.h").read_text()
    (text,) = re.findall(r'define SHARDWAY_VERSION "(.+)"', header)
    parts = [re.findall(rf"define SHARDWAY_VERSION_{part} (\d+)", header)[0] for part in ("MAJOR", "MINOR", "PATCH")]
    assert text == ".".join(parts) == sw.__version__
    assert run(BUILD / "bin/shardway", "--version") == f"shardway {text}\n"
    assert f"## [{text}]" in (ROOT / "CHANGELOG.md").read_text()
