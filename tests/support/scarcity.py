"""Takes things away from this process: descriptors, memory, threads, system calls."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_CLONE_NEWNS, _MS_RDONLY, _MS_REC, _MS_PRIVATE = 0x20000, 1, 0x4000, 1 << 18
_CGROUPS = Path("/sys/fs/cgroup/memory")

# Of x86-64 and of 64-bit Arm.
_NUMBERS = {
    "seccomp": (317, 277),
    "memfd_create": (319, 279),
    "pidfd_open": (434, 434),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "clone": (56, 220),
    "clone3": (435, 435),
    "eventfd2": (290, 19),
    "socket": (41, 198),
    "accept4": (288, 242),
    "fallocate": (285, 47),
    "futex_waitv": (449, 449),
    "madvise": (28, 233),
    "getrandom": (318, 278),
    "sched_getaffinity": (204, 123),
}

_libc = ctypes.CDLL(None, use_errno=True)


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def refuse_calls(names: Sequence[str], error: int = errno.ENOSYS) -> None:
    """From now on these system calls fail so in every thread of this process and in its children."""
    load, is_equal, give = 0x20, 0x15, 0x06
    refuse, allow = 0x50000 | error, 0x7FFF0000
    lines = [_Instruction(load, 0, 0, 0)]
    for name in names:
        lines += [_Instruction(is_equal, 0, 1, _number(name)), _Instruction(give, 0, 0, refuse)]
    lines.append(_Instruction(give, 0, 0, allow))
    program = _Program(len(lines), (_Instruction * len(lines))(*lines))
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    mode, flags = _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC
    _check(_libc.syscall(_number("seccomp"), mode, flags, ctypes.byref(program)), "seccomp")


def refuse_threads() -> None:
    """As where a process may have no more of them: root has no such limit, so the system calls are refused."""
    refuse_calls(["clone", "clone3"], errno.EAGAIN)


def take_descriptors(most: int) -> None:
    """As `ulimit -Sn`: numbers below this alone, and those that are open stay."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def give_descriptors_back() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def limit_address_space(more: int) -> None:
    """So many bytes may be mapped beyond what is."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more))


def limit_files(most: int) -> None:
    """No file, and so no shared memory, can become larger. Python ignores the signal that goes with it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def replace_dev_shm(options: str, read_only: bool = False) -> None:
    """For this process and its children alone. Raises PermissionError where that is not allowed."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "mount")
    flags = _MS_RDONLY if read_only else 0
    _check(_libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", flags, options.encode()), "mount")


def limit_memory(most: int) -> Path:
    """Puts this process into a control group of its own, which is given; it has to be removed when the process has
    ended. Raises OSError where none can be made."""
    folder = _CGROUPS / f"shardway-test-{os.getpid()}"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(most))
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    return folder


@contextmanager
def limited_descriptors(left: int) -> Iterator[None]:
    """So many more can be opened, and no other."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + left, before[1]))
    taken: list[int] = []
    try:
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            for _ in range(left):
                os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def limited_files(most: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _number(name: str) -> int:
    return _NUMBERS[name][0 if os.uname().machine == "x86_64" else 1]


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def why_no_control_group() -> str | None:
    """Why none can be made here; None where one can."""
    if not (_CGROUPS / "memory.limit_in_bytes").exists():
        return "there is no hierarchy of control groups for memory of the first version"
    return None if os.access(_CGROUPS, os.W_OK) else "this user may make no control group"


def remove_control_group(folder: str) -> None:
    """Of processes that have ended, or are about to."""
    deadline = time.monotonic() + 5
    while Path(folder, "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.rmdir(folder)
