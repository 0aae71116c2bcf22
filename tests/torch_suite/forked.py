"""One test of the suite: its ranks are forked from this process, which has everything loaded."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from tests.support.hosts import Host
from tests.torch_suite.cpu_for_gpu import stand_in
from tests.torch_suite.gates import FILE, open_monitored_barrier, wants_gpus
from tests.torch_suite.names import HOST_OF, WORLD, announce

CPU = torch.device("cpu")
TIMEOUT_S = 90.0
_FAILED = 10  # the suite's own exit code for it


@dataclass
class Outcome:
    name: str
    verdict: str  # passed, skipped or failed
    words: str = ""
    seconds: float = 0.0
    without_gpus: bool = False  # it asked for GPUs, and had another device in their place
    gate: str = ""  # the first that lets it through


class Running:
    """The ranks of a test under way."""

    def __init__(
        self,
        module: Any,
        suite: Any,
        name: str,
        gate: str,
        log: str,
        hosts: Sequence[Host] = (),
        device: torch.device = CPU,
    ) -> None:
        self.name = name
        self._gate = gate
        self._without_gpus = wants_gpus(module, suite, name)
        self._start = time.monotonic()
        self._folder = tempfile.TemporaryDirectory()
        for part in ("barrier", "test_dir", "init_dir"):
            os.mkdir(f"{self._folder.name}/{part}")
        self._codes: dict[int, int] = {}  # by pid
        self._pipes: list[Connection] = []
        for rank in range(WORLD):
            ours, theirs = multiprocessing.Pipe()
            pid = os.fork()
            if pid == 0:
                ours.close()
                host = hosts[HOST_OF[rank]] if hosts else None
                _be_rank(module, suite, rank, name, self._folder.name, theirs, log, host, device)
            theirs.close()
            self._pipes.append(ours)
            self._codes[pid] = -1
        self._left = set(self._codes)

    def poll(self) -> Outcome | None:
        """What came of it, once that is known."""
        for pid in list(self._left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._left.discard(pid)
                self._codes[pid] = os.waitstatus_to_exitcode(status)
        has_failed = any(code == _FAILED or code < -1 for code in self._codes.values())
        is_late = time.monotonic() - self._start > TIMEOUT_S
        if self._left and not has_failed and not is_late:
            return None
        words = "" if not is_late else f"no answer within {TIMEOUT_S:.0f} s"
        if has_failed:
            time.sleep(0.2)  # the others' words
        return self._end(words)

    def _end(self, words: str) -> Outcome:
        for pid in self._left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for rank, pipe in enumerate(self._pipes):
            try:
                while pipe.poll():
                    words += f"rank {rank}:\n{pipe.recv()}"
            except (EOFError, ConnectionError):
                pass
            pipe.close()
        self._folder.cleanup()
        codes = set(self._codes.values())
        verdict = "failed"
        if codes == {0}:
            verdict = "passed"
        elif len(codes) == 1 and min(codes) >= 72:
            verdict = "skipped"
        words = words or (f"exit codes {sorted(codes)}" if verdict != "passed" else "")
        return Outcome(self.name, verdict, words, time.monotonic() - self._start, self._without_gpus, self._gate)


def _be_rank(
    module: Any,
    suite: Any,
    rank: int,
    name: str,
    folder: str,
    pipe: Connection,
    log: str,
    host: Host | None,
    device: torch.device,
) -> None:
    code = 1
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        announce("mpi")  # for which a world of 3 is not too small
        if host is not None:
            host.enter()
            os.environ["GLOO_SOCKET_IFNAME"] = host.interface
        os.environ.update(TEMP_DIR=folder, MASTER_ADDR="127.0.0.1", INIT_METHOD=f"file://{folder}/init_dir/shared")
        sys.modules[FILE] = module  # of the two; pickle looks there
        open_monitored_barrier()
        if wants_gpus(module, suite, name):
            stand_in(module, device)
        suite._run(rank, name, f"{folder}/store", pipe)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException:
        traceback.print_exc()
        pipe.send(traceback.format_exc())
        code = _FAILED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
