"""What leaves the libraries: the public API, and what the extension uses; nothing of torch's or of C++'s."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.programs import run_program, started_program

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
EXPORTS = Path(__file__).with_name("exports.txt")
STATIC = BUILD / "tests/static_cxx"


def names(library: Path, *which: str) -> set[str]:
    """The dynamic symbols, without what functions take and what compilers add."""
    done = run_program(["nm", "-D", "-C", "--format=just-symbols", *which, library], timeout_s=60)
    assert done.returncode == 0, done.stderr
    return {re.sub(r"(\[abi:\w+\])?\(.*", "", line) for line in done.stdout.splitlines()}


def test_the_library_shows_the_names_that_are_listed_and_no_other() -> None:
    found = names(BUILD / "lib/libshardway.so", "--defined-only")
    listed = set(EXPORTS.read_text().splitlines())
    assert found == listed, f"new: {sorted(found - listed)}\ngone: {sorted(listed - found)}"


def test_every_name_is_ours() -> None:
    foreign = {name for name in names(BUILD / "lib/libshardway.so", "--defined-only") if "shardway::" not in name}
    assert not foreign


def test_the_extension_shows_what_python_loads() -> None:
    (extension,) = (BUILD / "python/shardway").glob("_C*.so")
    assert names(extension, "--defined-only") == {"PyInit__C"}


def test_the_extension_finds_what_it_uses() -> None:
    (extension,) = (BUILD / "python/shardway").glob("_C*.so")
    wanted = {name for name in names(extension, "--undefined-only") if "shardway::" in name}
    assert wanted and wanted <= names(BUILD / "lib/libshardway.so", "--defined-only")


RANK = """
import os, sys
import torch, torch.distributed as dist
import shardway as sw

rank = int(sys.argv[1])
dist.init_process_group(sys.argv[2], init_method="file://" + sys.argv[3], rank=rank, world_size=2)
gathered, sizes = sw.all_gather_v(torch.full((rank + 1,), float(rank)))
assert gathered.tolist() == [0.0, 1.0, 1.0], gathered
try:
    sw.all_gather_v(torch.ones(2, dtype=torch.float32 if rank == 0 else torch.float64))
except ValueError as error:
    print("refused:", error)
if rank == 1:
    os._exit(0)
try:
    sw.all_reduce(torch.ones(3))
except dist.DistBackendError as error:
    print("lost:", error)
os._exit(0)
"""


def test_it_works_with_a_cpp_library_of_its_own_inside(tmp_path: Path) -> None:
    """As some compilers link it; names of two C++ libraries that meet end in a crash."""
    library = STATIC / "shardway/lib/libshardway.so"
    assert "libstdc++" not in run_program(["readelf", "-d", library], timeout_s=60).stdout
    environment = {**os.environ, "PYTHONPATH": str(STATIC)}
    for backend in ("gloo", "shardway"):
        calls = [[sys.executable, "-c", RANK, str(rank), backend, str(tmp_path / backend)] for rank in range(2)]
        with contextlib.ExitStack() as stack:
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "env": environment}
            ranks = [stack.enter_context(started_program(call, **streams)) for call in calls]
            said = [rank.communicate(timeout=120)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], said
        refused = "refused: all_gather_v: ranks disagree on dtype: float32 on rank 0, float64 on rank 1"
        assert refused in said[0] and refused in said[1], said
        assert "lost: all_reduce: rank 1 could not be reached" in said[0], said
