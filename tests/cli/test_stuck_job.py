"""A job of 4 ranks that is stuck: what `shardway status` says of it, and what its ranks say at the timeout."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.programs import run_program, started_program

PROGRAM = Path(sys.executable).with_name("shardway")
JOB = Path(__file__).parents[1] / "support" / "stuck_job.py"
GROUP_TIMEOUT_S = 12
LIMIT_S = 60


class Printed:
    """What a program prints, read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def await_lines(self, pattern: str, count: int) -> list[str]:
        deadline = time.monotonic() + LIMIT_S
        while len(found := [line for line in list(self.lines) if re.search(pattern, line)]) < count:
            assert time.monotonic() < deadline, "\n".join(self.lines)
            time.sleep(0.05)
        return found


def status(*words: object) -> subprocess.CompletedProcess[str]:
    return run_program([PROGRAM, "status", *words], timeout_s=LIMIT_S)


@contextmanager
def stuck_job(monkeypatch: pytest.MonkeyPatch, transport: str) -> Iterator[tuple[int, Printed]]:
    """The process of its rank 0, and what it prints."""
    monkeypatch.setenv("SHARDWAY_TRANSPORT", transport)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    command = [PROGRAM, "launch", "-n", 4, sys.executable, JOB, GROUP_TIMEOUT_S]
    with started_program(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as started:
        printed = Printed(started)
        yield int(printed.await_lines("rank 0 is process", 1)[0].split()[-1]), printed


def await_findings(pid: int, count: int) -> str:
    deadline = time.monotonic() + LIMIT_S
    while True:
        text = status("--pid", pid).stdout
        if len(re.findall(r"^rank \d: ", text, re.MULTILINE)) == count:
            return text
        assert time.monotonic() < deadline, text
        time.sleep(0.2)


@pytest.mark.parametrize("transport", ["shm", "c10d"])
def test_status_and_the_timeout_name_all_three_who_hold_the_first_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, transport: str
) -> None:
    with stuck_job(monkeypatch, transport) as (pid, printed):
        text = await_findings(pid, 3)
        rows = {int(row[0]): row[1] for row in re.findall(r"^ +(\d) +\d+ +(.*)$", text, re.MULTILINE)}
        # Who waits sleeps, but for a look around now and then.
        assert re.match(r"(sleeping|running) +in all_gather_v \(\d+\) .*KiB$", rows[0]), text
        assert re.match(r"(sleeping|running) +in all_reduce \(\d+\) .*not the op of the others$", rows[1]), text
        assert re.match(r"stopped +after all_gather_v \(\d+\) .*stopped, 1 call behind$", rows[2]), text
        assert re.match(r"sleeping +after all_gather_v \(\d+\) .*1 call behind$", rows[3]), text
        assert re.search(r"^rank 2: .*kill -CONT \d+ lets it go on$", text, re.MULTILINE), text

        written = status("--pid", pid, "--dump", tmp_path / "rank_")
        assert written.returncode == 0, written
        analysed = run_program(
            [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", tmp_path], timeout_s=LIMIT_S
        )
        assert analysed.returncode == 0, analysed.stderr
        assert "Not all ranks joining collective" in analysed.stdout + analysed.stderr
        assert "missing ranks: {2, 3}" in analysed.stdout + analysed.stderr

        printed.await_lines(r"shardway: +rank 3, pid ", 2)
        for rank in (0, 1):
            lines = "\n".join(line for line in printed.lines if line.startswith(f"[{rank}] shardway: "))
            assert f"(seen by rank {rank})" in lines
            # One of them is told a little earlier, and has left its call when the other looks.
            assert re.search(r"rank 0, pid \d+: (in all_gather_v for|all_gather_v failed) .*\(call \d+, ", lines), lines
            assert re.search(r"rank 1, pid \d+: (in all_reduce for|all_reduce failed) .*; not the op of", lines), lines
            assert re.search(r"rank 2, pid \d+: in no call for .*; stopped, 1 call behind", lines), lines
            assert re.search(r"rank 3, pid \d+: in no call for .*; 1 call behind", lines), lines
