"""Hosts on one machine: network namespaces, each with a cable (a veth pair) to one switch (a bridge).

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest
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
        _enter(self.namespace)

    def sent_bytes(self) -> int:
        """What it has sent through its cable, headers of packets included."""
        counters = subprocess.run(
            ("cat", "/proc/self/net/dev"), preexec_fn=self.enter, check=True, capture_output=True, text=True
        )
        return _sent_in(counters.stdout)

    def cut(self) -> None:
        """Pulls the cable."""
        _run(self.namespace, "ip", "link", "set", self.interface, "down")


class NoHosts(Exception):
    """Why hosts cannot be made here."""


@contextlib.contextmanager
def hosts(count: int, bits_per_second: int | None = None) -> Iterator[tuple[Host, ...]]:
    """Raises NoHosts where the system does not let us. Each cable carries at most this many bits, each way."""
    if shutil.which("ip") is None:
        raise NoHosts("there is no program ip (Debian: iproute2)")
    with contextlib.ExitStack() as files:
        try:
            switch, *namespaces = (_fresh_namespace() for _ in range(count + 1))
            for namespace in (switch, *namespaces):
                files.callback(os.close, namespace)
            made = tuple(Host(fd, f"cable{i}", f"10.113.7.{i + 1}") for i, fd in enumerate(namespaces))
            _run(switch, "ip", "link", "add", "switch", "type", "bridge")
            _run(switch, "ip", "link", "set", "switch", "up")
            for host in made:
                _connect(host, switch, bits_per_second)
        except subprocess.CalledProcessError as error:
            raise NoHosts(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
        except OSError as error:
            raise NoHosts(f"no network namespace: {error}") from error
        yield made


@contextlib.contextmanager
def hosts_or_skip(count: int, bits_per_second: int | None = None) -> Iterator[tuple[Host, ...]]:
    """The same for a test, which is skipped where there can be none."""
    with contextlib.ExitStack() as made:
        try:
            found = made.enter_context(hosts(count, bits_per_second))
        except NoHosts as why:
            pytest.skip(str(why))
        yield found


def _connect(host: Host, switch: int, bits_per_second: int | None) -> None:
    port = f"port-{host.interface}"
    _run(switch, "ip", "link", "add", port, "type", "veth", "peer", "name", host.interface)
    _run(switch, "ip", "link", "set", host.interface, "netns", f"/proc/{os.getpid()}/fd/{host.namespace}")
    _run(switch, "ip", "link", "set", port, "master", "switch")
    _run(switch, "ip", "link", "set", port, "up")
    _run(host.namespace, "ip", "address", "add", f"{host.address}/24", "dev", host.interface)
    _run(host.namespace, "ip", "link", "set", host.interface, "up")
    _run(host.namespace, "ip", "link", "set", "lo", "up")
    if bits_per_second is None:
        return
    for namespace, device in ((host.namespace, host.interface), (switch, port)):
        limit = ["rate", f"{bits_per_second}bit", "burst", "512kb", "latency", "50ms"]
        _run(namespace, "tc", "qdisc", "add", "dev", device, "root", "tbf", *limit)


def torchrun_on(
    hosts: Sequence[Host], host_of: Sequence[int], backend: str = "gloo", timeout_s: float = 60.0
) -> Callable[[int, int], None]:
    """How a rank enters its host and the default group, with torchrun's environment and gloo on the cable."""

    def enter(rank: int, size: int) -> None:
        mates = [other for other in range(size) if host_of[other] == host_of[rank]]
        host = hosts[host_of[rank]]
        host.enter()
        os.environ |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(mates.index(rank)),
            "LOCAL_WORLD_SIZE": str(len(mates)),
            "MASTER_ADDR": hosts[host_of[0]].address,
            "MASTER_PORT": "29500",
            "GLOO_SOCKET_IFNAME": host.interface,
        }
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))

    return enter


def sent_bytes() -> int:
    """What the host of the calling rank has sent through its cable, headers of packets included."""
    with open("/proc/thread-self/net/dev") as counters:
        return _sent_in(counters.read())


def _sent_in(counters: str) -> int:
    (line,) = (line for line in counters.splitlines() if line.lstrip().startswith("cable"))
    return int(line.split(":")[1].split()[8])


def _enter(namespace: int) -> None:
    _check(_libc.setns(namespace, _CLONE_NEWNET), "setns")


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


def _run(namespace: int, *words: str) -> None:
    subprocess.run(words, preexec_fn=lambda: _enter(namespace), check=True, capture_output=True, text=True)
