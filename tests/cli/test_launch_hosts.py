"""`shardway launch --hosts`: ranks of several hosts, by an agent that is called as ssh is."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.cli.test_launch import PROGRAM, TIMEOUT_S, pids_of, wait_until
from tests.support.hosts import hosts_or_skip
from tests.support.mpi import agent_for
from tests.support.programs import is_alive, run_program, started_program

# Every host is this one: it leaves out the name, and runs the line.
_HERE = '#!/bin/sh\nshift\nexec sh -c "$*"\n'

_SUM = """
import os, socket
(cable,) = (name for _, name in socket.if_nameindex() if name.startswith("cable"))
os.environ["GLOO_SOCKET_IFNAME"] = cable
import torch, torch.distributed as dist, shardway as sw
dist.init_process_group("shardway")
total = sw.all_reduce(torch.full((3,), 10.0 ** dist.get_rank()))
print(cable, os.environ["LOCAL_RANK"], total.tolist())
dist.destroy_process_group()
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Hosts of 2 ranks and of 1."""
    agent = tmp_path / "agent"
    agent.write_text(_HERE)
    agent.chmod(0o755)
    (tmp_path / "hosts").write_text("node-a:2  # the first\n\nnode-b slots=1\n")
    return ["--hosts", str(tmp_path / "hosts"), "--agent", str(agent)]


def launched(options: list[str], *command: str) -> subprocess.CompletedProcess[str]:
    return run_program([PROGRAM, "launch", *options, *command], timeout_s=TIMEOUT_S)


def launch(options: list[str], script: str) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [PROGRAM, "launch", *options, "sh", "-c", script]
    return started_program(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_ranks_are_numbered_through_all_hosts_and_meet_at_the_first(options: list[str]) -> None:
    done = launched(
        options, "sh", "-c", 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR" "$0"', "it's"
    )
    lines = ["[0] 0/3 0/2 node-a it's", "[1] 1/3 1/2 node-a it's", "[2] 2/3 0/1 node-a it's"]
    assert (sorted(done.stdout.splitlines()), done.returncode) == (lines, 0)
    ports = launched([*options, "-n", "2"], "sh", "-c", "echo $MASTER_PORT").stdout.splitlines()
    assert sorted(line.split()[0] for line in ports) == ["[0]", "[1]"]
    assert len({line.split()[1] for line in ports}) == 1


def test_where_a_rank_fails_all_hosts_end_with_its_exit_code(options: list[str]) -> None:
    done = launched(options, "sh", "-c", "if [ $RANK = 2 ]; then exit 7; fi; exec sleep 60")
    said = "rank 2 ended with exit code 7\nshardway launch: host node-b ended with exit code 7; the others are ended\n"
    assert (done.stderr, done.returncode) == (f"shardway launch: {said}", 7)


def test_with_keep_going_the_other_hosts_run_on(options: list[str]) -> None:
    done = launched([*options, "--keep-going"], "sh", "-c", "[ $RANK != 2 ] || exit 7; sleep 0.5; echo to the end")
    assert sorted(done.stdout.splitlines()) == ["[0] to the end", "[1] to the end"]
    assert done.stderr.endswith("shardway launch: 1 of 2 hosts ended with exit code 0\n")
    assert done.returncode == 7


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_rank_of_any_host_outlives_the_launcher(options: list[str], sent: signal.Signals) -> None:
    with launch(options, "echo $$; exec sleep 60") as started:
        pids = pids_of(started, 3)
        started.send_signal(sent)
        started.wait(timeout=TIMEOUT_S)
        wait_until(lambda: not any(map(is_alive, pids)), "a rank is left")


def test_a_host_whose_agent_is_lost_ends_its_ranks(options: list[str], tmp_path: Path) -> None:
    """As with ssh, the ranks are not below the agent: they see only that their input ends."""
    apart = tmp_path / "agent"
    apart.write_text('#!/bin/sh\nshift\nexec 3<&0\nsetsid sh -c "$*" <&3 3<&- &\nexec sleep 60 <&3 3<&-\n')
    with launch(options, "echo $$; exec sleep 60") as started:
        pids = pids_of(started, 3)
        started.kill()
        started.wait(timeout=TIMEOUT_S)
        wait_until(lambda: not any(map(is_alive, pids)), "a rank is left")


@pytest.mark.parametrize(
    ("file", "more", "said"),
    [
        ("node-a\nnode-a\n", [], "line 2: node-a is there twice"),
        ("node-a:none\n", [], "line 1: column 1: 'none' must be a number of ranks, such as 4"),
        ("node-a four\n", [], "line 1: 'four' must be such as slots=4"),
        ("node-a slots=4 max-slots=8\n", [], "line 1: 'max-slots=8' is too much"),
        ("-oProxyCommand=x\n", [], "line 1: '-oProxyCommand=x' is not the name of a host"),
        ("# nobody\n", [], "names no host"),
        ("node-a:2\n", ["-n", "3"], "--ranks 3 is more than the 2 that the hosts take"),
        ("node-a:2\n", ["--may-lose", "1"], "--may-lose is for the ranks of one host"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(
    options: list[str], tmp_path: Path, file: str, more: list[str], said: str
) -> None:
    (tmp_path / "hosts").write_text(file)
    done = launched([*options, *more], "echo", "started")
    assert (done.stdout, done.returncode) == ("", 2)
    assert said in done.stderr


def test_ranks_on_two_networks_make_a_group(tmp_path: Path) -> None:
    with hosts_or_skip(2) as two:
        agent = agent_for(two, tmp_path)
        (tmp_path / "hosts").write_text(f"{two[0].address}:2\n{two[1].address}:1\n")
        done = launched(["--hosts", str(tmp_path / "hosts"), "--agent", str(agent)], sys.executable, "-c", _SUM)
    sums = "[111.0, 111.0, 111.0]"
    lines = [f"[0] cable0 0 {sums}", f"[1] cable0 1 {sums}", f"[2] cable1 0 {sums}"]
    assert (sorted(done.stdout.splitlines()), done.returncode) == (lines, 0), done.stderr
