"""Python programs run as forks of this process, which has torch loaded: a new interpreter takes a second and a half of
CPU time to load it. The ranks that such a program forks have it as well, and so have the Python programs that it
starts, such as the ranks of torchrun: those are forks, too."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import torch

from .programs import end_all, end_with_parent, has_ended

ROOT = Path(__file__).resolve().parents[2]


def torchrun(ranks: int, *words: object, timeout_s: float) -> subprocess.CompletedProcess[str]:
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
        subprocess.Popen.__init__ = _init_of_fork  # type: ignore[method-assign]
        status = _status_of(_program(command))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


_init_of_program = subprocess.Popen.__init__


def _init_of_fork(self: Any, args: Any, *more: Any, **options: Any) -> None:
    """Popen, of a Python program without execve: what prepares the child becomes the program, and does not return."""
    words = [args] if isinstance(args, str) else [os.fspath(word) for word in args]
    command = words[2:] if words[1:2] == ["-u"] else words[1:]
    if words[0] == sys.executable and command and (command[0] == "-m" or not command[0].startswith("-")):
        sys.stdout.flush()
        sys.stderr.flush()
        options["preexec_fn"] = lambda: _become_started(command, options.get("env"))
    _init_of_program(self, args, *more, **options)


def _become_started(command: list[str], environment: Mapping[str, str] | None) -> NoReturn:
    """In a child whose streams, folder and session are as they shall be. execve would do the rest."""
    status = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if environment is not None:
            os.environ.clear()
            os.environ.update(environment)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
