"""Python programs run as forks of this process, which has torch loaded: a new interpreter takes a second and a half of
CPU time to load it. The ranks that such a program forks have it as well."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import torch

from .programs import end_all, end_with_parent, has_ended

ROOT = Path(__file__).resolve().parents[2]


def torchrun(ranks: int, *words: object, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """torchrun itself is a fork; the ranks that it starts are programs of their own."""
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *words]
    return run_forked(command, timeout_s=timeout_s)


def run_forked(
    words: Sequence[object], *, timeout_s: float, cwd: Path = ROOT, first: Callable[[], None] = lambda: None
) -> subprocess.CompletedProcess[str]:
    """As `run_program([sys.executable, *words])`: a file with its arguments, or -m and a module with its own. The
    program's process calls `first` before that."""
    command = [str(word) for word in words]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        pid = os.fork()
        if pid == 0:
            _become(command, cwd, out, err, first)
        try:
            status = _await(pid, command, timeout_s)
        finally:
            end_all(pid)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


def _await(pid: int, command: list[str], timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while not has_ended(pid):
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(command, timeout_s)
        time.sleep(0.005)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _become(command: list[str], cwd: Path, out: IO[str], err: IO[str], first: Callable[[], None]) -> NoReturn:
    """The rest of this process is the program."""
    status = 1
    try:
        os.setsid()
        end_with_parent()
        os.chdir(cwd)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        torch.set_num_threads(1)
        first()
        status = _status_of(_program(command))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _program(command: list[str]) -> Callable[[], Any]:
    if command[0] == "-m":
        sys.argv, sys.path[:0] = command[1:], [os.getcwd()]
        return lambda: runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    sys.argv, sys.path[:0] = command, [str(Path(command[0]).resolve().parent)]
    return lambda: runpy.run_path(command[0], run_name="__main__")


def _status_of(program: Callable[[], Any]) -> int:
    """What the interpreter would exit with."""
    try:
        program()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
