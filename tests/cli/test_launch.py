"""`shardway launch` and signals: what it is sent goes on to the ranks, and no rank outlives it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "build/release/bin/shardway"
TIMEOUT_S = 30


def launch(ranks: int, script: str) -> subprocess.Popen[str]:
    """Starts `script` on the ranks; they have begun once each has printed a line with its process id."""
    command = [str(PROGRAM), "launch", "-n", str(ranks), "sh", "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def pids_of(started: subprocess.Popen[str], ranks: int) -> list[int]:
    assert started.stdout is not None
    return [int(started.stdout.readline().split()[1]) for _ in range(ranks)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_goes_on_to_every_rank(sent: signal.Signals) -> None:
    name = sent.name.removeprefix("SIG")
    script = f"trap 'echo got {name}; exit 0' {name}; echo $$; while :; do sleep 0.05; done"
    started = launch(3, script)
    pids = pids_of(started, 3)
    started.send_signal(sent)
    output, _ = started.communicate(timeout=TIMEOUT_S)
    assert started.returncode == 0
    assert output.count(f"got {name}") == 3, output
    assert not any(map(is_alive, pids))


def test_a_signal_that_no_rank_minds_ends_them_and_is_the_exit_code() -> None:
    started = launch(2, "echo $$; exec sleep 60")
    pids = pids_of(started, 2)
    started.terminate()
    output, _ = started.communicate(timeout=TIMEOUT_S)
    assert started.returncode == 128 + signal.SIGTERM, output
    assert not any(map(is_alive, pids))


def test_a_rank_that_will_not_end_is_ended() -> None:
    started = launch(2, "trap '' TERM; echo $$; [ $RANK = 1 ] || exec sleep 60; sleep 0.5; exit 3")
    pids = pids_of(started, 2)
    begin = time.monotonic()
    output, _ = started.communicate(timeout=TIMEOUT_S)
    assert started.returncode == 3, output
    assert time.monotonic() - begin > 4
    assert not any(map(is_alive, pids))


def test_a_rank_that_prints_without_end_keeps_nobody_from_ending() -> None:
    command = [str(PROGRAM), "launch", "-n", "2", "sh", "-c", "[ $RANK = 0 ] && exec yes; sleep 0.2; exit 6"]
    assert subprocess.run(command, stdout=subprocess.DEVNULL, timeout=TIMEOUT_S).returncode == 6


def test_children_of_the_ranks_end_with_them() -> None:
    started = launch(2, "sleep 60 & echo $! ; sleep 0.5; [ $RANK = 0 ] && exit 4; wait")
    children = pids_of(started, 2)
    started.communicate(timeout=TIMEOUT_S)
    assert started.returncode == 4
    wait_until(lambda: not any(map(is_alive, children)), "a child of a rank is still there")


def test_the_ranks_end_with_a_launcher_that_is_killed() -> None:
    started = launch(2, "echo $$; exec sleep 60")
    pids = pids_of(started, 2)
    started.kill()
    started.wait(timeout=TIMEOUT_S)
    wait_until(lambda: not any(map(is_alive, pids)), "a rank outlives its launcher")
