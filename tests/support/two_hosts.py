"""Two hosts on one machine: network namespaces joined by a cable, a veth pair.

The namespaces have no names: each ends with the last file and process that holds it, so that nothing stays behind,
whatever happens to the test.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch.distributed as dist

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Host:
    namespace: int  # a file descriptor
    interface: str
    address: str

    def enter(self) -> None:
        """Moves this thread, and what it starts, to the host."""
        _check(_libc.setns(self.namespace, _CLONE_NEWNET), "setns")


class NoHosts(Exception):
    """Why two hosts cannot be made here."""


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Raises NoHosts where the system does not let us."""
    if shutil.which("ip") is None:
        raise NoHosts("there is no program ip (Debian: iproute2)")
    with contextlib.ExitStack() as files:
        try:
            namespaces = [_fresh_namespace() for _ in range(2)]
            for namespace in namespaces:
                files.callback(os.close, namespace)
            here, there = (Host(fd, f"shardway{i}", f"10.113.7.{i + 1}") for i, fd in enumerate(namespaces))
            _connect(here, there)
        except subprocess.CalledProcessError as error:
            raise NoHosts(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
        except OSError as error:
            raise NoHosts(f"no network namespace: {error}") from error
        yield here, there


def _connect(here: Host, there: Host) -> None:
    _ip(here, "link", "add", here.interface, "type", "veth", "peer", "name", there.interface)
    _ip(here, "link", "set", there.interface, "netns", f"/proc/{os.getpid()}/fd/{there.namespace}")
    for host in (here, there):
        _ip(host, "address", "add", f"{host.address}/24", "dev", host.interface)
        _ip(host, "link", "set", host.interface, "up")
        _ip(host, "link", "set", "lo", "up")


def torchrun_on(hosts: tuple[Host, Host], ranks_of_first: int) -> Callable[[int, int], None]:
    """How a rank enters its host and the default group, with torchrun's environment and gloo on the cable."""

    def enter(rank: int, size: int) -> None:
        first = rank < ranks_of_first
        host = hosts[0 if first else 1]
        host.enter()
        os.environ |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(rank if first else rank - ranks_of_first),
            "LOCAL_WORLD_SIZE": str(ranks_of_first if first else size - ranks_of_first),
            "MASTER_ADDR": hosts[0].address,
            "MASTER_PORT": "29500",
            "GLOO_SOCKET_IFNAME": host.interface,
        }
        dist.init_process_group("gloo")

    return enter


def _check(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def _fresh_namespace() -> int:
    """Made by a thread, for a namespace of the network is a thread's own."""
    found: list[int | OSError] = []

    def leave() -> None:
        try:
            _check(_libc.unshare(_CLONE_NEWNET), "unshare")
            found.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise found[0]
    return found[0]


def _ip(host: Host, *words: str) -> None:
    subprocess.run(["ip", *words], preexec_fn=host.enter, check=True, capture_output=True, text=True)
