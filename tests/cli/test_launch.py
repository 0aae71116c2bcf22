"""`shardway launch`: what it is sent goes on to the ranks, what they print comes at once, and nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.programs import is_alive, run_program, started_program

PROGRAM = Path(sys.executable).with_name("shardway")
TIMEOUT_S = 30


def launch(ranks: int, script: str, *before: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Starts `script` on the ranks, and the launcher by `before`."""
    command = [*before, PROGRAM, "launch", "-n", ranks, "sh", "-c", script]
    return started_program(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def launched(ranks: int, script: str, *before: str) -> subprocess.CompletedProcess[str]:
    return run_program([*before, PROGRAM, "launch", "-n", ranks, "sh", "-c", script], timeout_s=TIMEOUT_S)


def pids_of(started: subprocess.Popen[str], ranks: int) -> list[int]:
    """What each rank prints first: its process id, or that of a child."""
    assert started.stdout is not None
    return [int(started.stdout.readline().split()[1]) for _ in range(ranks)]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def test_two_dashes_may_stand_before_the_program_and_are_not_its_argument() -> None:
    script = 'echo "$# $1"'
    for options in (["-n", "2"], ["--ranks=2"], ["--keep-going", "--ranks", "2"]):
        called = [PROGRAM, "launch", *options, "--", "sh", "-c", script, "sh", "--"]
        done = run_program(called, timeout_s=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == ["[0] 1 --", "[1] 1 --"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_goes_on_to_every_rank(sent: signal.Signals) -> None:
    name = sent.name.removeprefix("SIG")
    script = f"trap 'echo got {name}; exit 0' {name}; echo $$; while :; do sleep 0.05; done"
    with launch(3, script) as started:
        pids = pids_of(started, 3)
        started.send_signal(sent)
        output, _ = started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == 0
        assert output.count(f"got {name}") == 3, output
        assert not any(map(is_alive, pids))


def test_under_nohup_neither_the_launcher_nor_a_rank_minds_sighup() -> None:
    script = "echo $$; kill -HUP $$; sleep 0.3; echo still here"
    with launch(2, script, "nohup") as started:
        pids_of(started, 2)
        started.send_signal(signal.SIGHUP)
        output, _ = started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == 0, output
        assert output.count("still here") == 2, output


def test_a_parent_that_ignores_the_end_of_children_does_not_matter() -> None:
    ignoring = ["python3", "-c", "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "]
    ignoring[-1] += "os.execv(sys.argv[1], sys.argv[1:])"
    assert launched(2, "exit $RANK", *ignoring).returncode == 1


def test_a_signal_that_no_rank_minds_ends_them_and_is_the_exit_code() -> None:
    with launch(2, "echo $$; exec sleep 60") as started:
        pids = pids_of(started, 2)
        started.terminate()
        output, _ = started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == 128 + signal.SIGTERM, output
        assert not any(map(is_alive, pids))


def test_a_rank_that_fails_is_told_of_at_once_while_the_others_go_on() -> None:
    script = "[ $RANK = 1 ] && kill -KILL $$; read line; echo went on"
    command = [PROGRAM, "launch", "-n", 2, "--keep-going", "sh", "-c", script]
    with started_program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stderr is not None
        assert started.stderr.readline() == "shardway launch: rank 1 was ended by a signal: Killed\n"
        assert started.poll() is None
        output, errors = started.communicate("go on\n", timeout=TIMEOUT_S)
        assert started.returncode == 128 + signal.SIGKILL
        assert (output, errors) == ("[0] went on\n", "shardway launch: 1 of 2 ranks ended with exit code 0\n")


@pytest.mark.parametrize("option", ["--keep-going", "--may-lose=2"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_ranks_that_are_kept_going(sent: signal.Signals, option: str) -> None:
    """Rank 0 has failed before; rank 1 ends by the signal; rank 2 minds neither it nor being asked to end."""
    script = "[ $RANK = 0 ] && exit 3; [ $RANK = 2 ] && trap '' INT TERM; echo $$; while :; do sleep 0.05; done"
    command = [PROGRAM, "launch", "-n", 3, option, "sh", "-c", script]
    with started_program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stderr is not None
        assert started.stderr.readline() == "shardway launch: rank 0 ended with exit code 3\n"
        pids = pids_of(started, 2)
        started.send_signal(sent)
        _, errors = started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == (3 if option == "--keep-going" else 128 + sent), errors
        assert errors.startswith("shardway launch: rank 1 was ended by a signal"), errors
        assert errors.endswith("; the others are ended\n"), errors
        assert not any(map(is_alive, pids))


def test_what_a_dead_rank_left_running_ends_while_the_others_go_on() -> None:
    script = "[ $RANK = 0 ] && { sleep 60 & echo $!; kill -KILL $$; }; sleep 2"
    command = [PROGRAM, "launch", "-n", 2, "--may-lose", 1, "sh", "-c", script]
    with started_program(command, stdout=subprocess.PIPE) as started:
        (child,) = pids_of(started, 1)
        wait_until(lambda: not is_alive(child), "the child of the dead rank lives on")
        assert started.poll() is None
        started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == 0


def test_a_rank_that_will_not_end_is_ended() -> None:
    with launch(2, "trap '' TERM; echo $$; [ $RANK = 1 ] || exec sleep 60; sleep 0.5; exit 3") as started:
        pids = pids_of(started, 2)
        begin = time.monotonic()
        output, _ = started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == 3, output
        assert time.monotonic() - begin > 4
        assert not any(map(is_alive, pids))


def test_a_rank_that_prints_without_end_keeps_nobody_from_ending() -> None:
    command = [PROGRAM, "launch", "-n", "2", "sh", "-c", "[ $RANK = 0 ] && exec yes; sleep 0.2; exit 6"]
    assert run_program(command, stdout=subprocess.DEVNULL, timeout_s=TIMEOUT_S).returncode == 6


def test_children_of_the_ranks_end_with_them() -> None:
    with launch(2, "sleep 60 & echo $! ; sleep 0.5; [ $RANK = 0 ] && exit 4; wait") as started:
        children = pids_of(started, 2)
        started.communicate(timeout=TIMEOUT_S)
        assert started.returncode == 4
        assert not any(map(is_alive, children))


def test_children_in_sessions_of_their_own_end_before_the_launcher() -> None:
    """One is asked to, as a child of a child that has ended; the other ignores that and is ended."""
    orphan = "(setsid sh -c 'echo $$; exec sleep 60' &)"
    deaf = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' &"
    for script, least_s in ((f"{orphan}; sleep 0.3", 0.0), (f"{deaf} sleep 0.3", 4.0)):
        begin = time.monotonic()
        with launch(2, script) as started:
            children = pids_of(started, 2)
            output, _ = started.communicate(timeout=TIMEOUT_S)
            assert started.returncode == 0, output
            assert not any(map(is_alive, children))
        assert least_s < time.monotonic() - begin < 15


def test_the_ranks_and_their_children_end_with_a_launcher_that_is_killed() -> None:
    with launch(2, "echo $$; setsid sleep 60 & echo $!; wait") as started:
        pids = pids_of(started, 4)
        started.kill()
        started.wait(timeout=TIMEOUT_S)
        wait_until(lambda: not any(map(is_alive, pids)), "something outlives the launcher")


def test_a_line_that_ends_in_a_carriage_return_comes_at_once() -> None:
    command = [PROGRAM, "launch", "-n", 1, "sh", "-c", r"printf '10%%\r20%%\r'; read line; printf '\ndone\r\n'"]
    with started_program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdin is not None and started.stdout is not None
        os.set_blocking(started.stdout.fileno(), False)
        seen = b""

        def has(end: bytes) -> bool:
            nonlocal seen
            seen += started.stdout.buffer.read() or b""  # type: ignore[union-attr]
            return seen.endswith(end)

        wait_until(lambda: has(b"[0] 10%\r[0] 20%\r"), "the bars did not come")
        started.stdin.write("go on\n")
        started.stdin.flush()
        wait_until(lambda: has(b"20%\r\n[0] done\r\n"), f"the end did not come after {seen!r}")


def test_more_ranks_than_a_host_has_room_for_are_refused() -> None:
    done = launched(1025, "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "shardway launch: --ranks 1025 is more than 1024, the most that launch starts\n"
    done = run_program(["sh", "-c", f"ulimit -n 80; exec {PROGRAM} launch -n 40 true"], timeout_s=TIMEOUT_S)
    assert done.returncode == 2
    assert done.stderr == "shardway launch: --ranks 40 needs 112 open files, and the limit is 80 (ulimit -n)\n"


def test_the_launcher_may_open_more_files_than_its_ranks() -> None:
    done = run_program(
        ["sh", "-c", f"ulimit -Sn 40; exec {PROGRAM} launch -n 20 sh -c 'ulimit -Sn'"], timeout_s=TIMEOUT_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(line.split()[1] for line in done.stdout.splitlines()) == ["40"] * 20
