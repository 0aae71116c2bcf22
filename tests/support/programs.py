"""Programs that tests start: whatever comes of a test, nothing that it started is left running."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_END_LIMIT_S = 10.0
# What nohup, or a shell that starts a job in the background, has a program ignore.
_IGNORED_BY_OTHERS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def run_program(command: Sequence[object], *, timeout_s: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with text, both streams captured; past the timeout all that it started is ended too."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with started_program(command, **streams) as process:
        out, err = process.communicate(timeout=timeout_s)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextmanager
def started_program(command: Sequence[object], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, signals as a program finds them usually; ended at the end of the block, with
    all that it started."""
    process = subprocess.Popen(
        [str(word) for word in command],
        text=True,
        start_new_session=True,
        preexec_fn=_mind_signals,
        **options,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            end_all(process.pid)
            process.wait()  # it knows that somebody else has waited
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _mind_signals() -> None:
    for number in _IGNORED_BY_OTHERS:
        signal.signal(number, signal.SIG_DFL)


def end_with_parent() -> None:
    """Called in a child of fork: it does not outlive the process that forked it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Whether a child of this process has ended; it is still to be waited for, so its number is nobody else's."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_all(pid: int) -> None:
    """Kills a child of this process that was not waited for, all below it, and what is left of its process group; then
    waits for it."""
    deadline = time.monotonic() + _END_LIMIT_S
    while not has_ended(pid) and (found := _tree(pid)) and time.monotonic() < deadline:
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.005)
    with suppress(ProcessLookupError):  # it led none
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def is_alive(pid: int) -> bool:
    return _parent_of(pid) is not None


def _parent_of(pid: int) -> int | None:
    """None: it has ended."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(parent)


def _tree(pid: int) -> list[int]:
    """The process and all below it that have not ended."""
    parents = {int(name): _parent_of(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    found = [pid] if parents.get(pid) is not None else []
    below = {pid}
    while below:
        below = {one for one, parent in parents.items() if parent in below and one not in found}
        found += below
    return found
