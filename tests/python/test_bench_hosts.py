"""The benchmark between hosts goes on without a contender that hangs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import bench.hosts
from bench.hosts import MPI, OURS, Peer
from bench.rank_programs import RankProgram
from tests.support.hosts import Host, hosts_or_skip
from tests.support.programs import is_alive

# A launcher that waits for its child, and the child: neither reads a task, nor ends when it is asked to.
HANGS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def test_peer_that_hangs_is_ended_and_the_others_are_measured_on_every_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with hosts_or_skip(1):
        pass
    numbers = tmp_path / "numbers"

    def plant(made: tuple[Host, ...], host_of: list[int], folder: Path) -> Callable[[], Peer]:
        command = [sys.executable, "-c", HANGS, str(numbers)]
        return lambda: Peer(RankProgram("planted", len(host_of), folder, [command], limit_s=1.0))

    monkeypatch.setattr(bench.hosts, "_open_mpi", plant)
    options = ["--quick", "--rounds", "1", "--hosts", "2x1", "3x1", "--output", str(tmp_path)]
    assert bench.hosts.main(options) == 1
    found = json.loads((tmp_path / "hosts.json").read_text())
    for count in (2, 3):
        rows = [row for row in found["rows"] if row["hosts"] == count]
        assert len({(row["op"], row["bytes"]) for row in rows}) == 10
        assert {row["us"] for row in rows if row["contender"] == MPI} == {None}
        assert all(row["us"] > 0 and row["crossed"] > 0 for row in rows if row["contender"] != MPI)
        assert sum(row["contender"] == OURS for row in rows) == 10
    of_peer = [claim for claim in found["claims"] if MPI in claim["text"]]
    assert [claim["met"] for claim in of_peer] == [None, None]
    assert all("gave no answer in 10 of 10 rows" in claim["figure"] for claim in of_peer)
    assert capfd.readouterr().out.count("Open MPI no answer") == 20
    started = [int(line) for line in numbers.read_text().splitlines()]
    assert len(started) == 4
    deadline = time.monotonic() + 20
    while any(map(is_alive, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, started))
