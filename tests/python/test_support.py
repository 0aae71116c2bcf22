"""What the tests themselves rely on: nothing that a test started is left running."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.forked_programs import run_forked
from tests.support.programs import is_alive, run_program
from tests.support.ranks import run_ranks


def pid_in(path: Path) -> int:
    return int(path.read_text())


def await_ends(pids: list[int]) -> None:
    """What was killed needs a moment to be gone."""
    deadline = time.monotonic() + 10
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "a child is still there"
        time.sleep(0.01)


def test_a_program_past_its_timeout_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    """A child in a session of its own keeps the streams open."""
    begin = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_program(["sh", "-c", "setsid sleep 60 & echo $! >child; wait"], cwd=tmp_path, timeout_s=0.5)
    assert time.monotonic() - begin < 10
    await_ends([pid_in(tmp_path / "child")])


def _rank_with_a_child(rank: int, size: int, folder: Path) -> None:
    pid = os.fork()
    if pid:
        (folder / f"child-{rank}").write_text(str(pid))
    time.sleep(60)


def test_a_rank_past_its_timeout_is_ended_with_its_children(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="no answer within the time limit"):
        run_ranks(2, _rank_with_a_child, tmp_path, timeout_s=1.0)
    await_ends([pid_in(tmp_path / f"child-{rank}") for rank in range(2)])


def test_a_python_program_that_a_forked_program_starts_is_a_fork_with_all_that_popen_gave_it(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        "import os, sys\n"
        "loaded = 'torch' in sys.modules\n"  # nobody imported it here
        "place = os.getcwd(), os.getsid(0) == os.getpid()\n"
        "print(sys.argv[1:], os.environ.get('WORD'), os.environ.get('HOME'), *place, loaded)\n"
        "print('aside', file=sys.stderr)\n"
        "sys.exit(7)\n"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys\n"
        f"call = [sys.executable, '-u', {str(tmp_path / 'child.py')!r}, 'one', 'two']\n"
        f"options = dict(env={{'WORD': 'given'}}, cwd={str(tmp_path / 'folder')!r}, start_new_session=True)\n"
        "done = subprocess.run(call, capture_output=True, text=True, **options)\n"
        "print(done.returncode, done.stdout, done.stderr, sep='|', end='')\n"
    )
    done = run_forked([tmp_path / "parent.py"], timeout_s=60)
    assert done.returncode == 0, done.stderr
    said = f"['one', 'two'] given None {tmp_path}/folder True True\n"
    assert done.stdout == f"7|{said}|aside\n"
