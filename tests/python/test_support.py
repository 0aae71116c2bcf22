"""What the tests themselves rely on: nothing that a test started is left running."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.programs import is_alive, run_program
from tests.support.ranks import run_ranks


def pid_in(path: Path) -> int:
    return int(path.read_text())


def test_a_program_past_its_timeout_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """A child in a session of its own keeps the streams open."""
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["sh", "-c", "setsid sleep 60 & echo $! >child; wait"], cwd=tmp_path, timeout_s=0.5)
    assert time.monotonic() - begin < 10
    assert not is_alive(pid_in(tmp_path / "child"))


def _rank_with_a_child(rank: int, size: int, folder: Path) -> None:
    pid = os.fork()
    if pid:
        (folder / f"child-{rank}").write_text(str(pid))
    time.sleep(60)


def test_a_rank_past_its_timeout_is_ended_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="no answer within the time limit"):
        run_ranks(2, _rank_with_a_child, tmp_path, timeout_s=1.0)
    deadline = time.monotonic() + 10  # what was killed needs a moment to be gone
    while any(is_alive(pid_in(tmp_path / f"child-{rank}")) for rank in range(2)):
        assert time.monotonic() < deadline, "a child is still there"
        time.sleep(0.01)
