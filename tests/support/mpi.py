"""Programs under mpirun, of Open MPI and MPICH: on this host, and on hosts of tests/support/hosts.py."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.hosts import Host
from tests.support.programs import run_program

MPIS = ("openmpi", "mpich")
TIMEOUT_S = 60
WHOLE = "SHARDWAY_MPI_WHOLE"  # in the environment: run what takes long, or what MPICH at times hangs in

# Debian's MPICH would find the memory of a machine across network namespaces.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "UCX_TLS": "tcp,self", "UCX_WARN_UNUSED_ENV_VARS": "n"}

# Called as ssh is: options, the host, a command. It enters the host's network, with a name, IPC and mounts of its own:
# UCX finds the interfaces in /sys.
_AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
case $host in
{cases}
*) echo "no host $host" >&2; exit 1 ;;
esac
exec nsenter --net=$namespace unshare --uts --ipc --mount sh -c "hostname $name; mount -t sysfs none /sys; $*"
"""


def skip_without(mpi: str) -> None:
    for program in (f"mpirun.{mpi}", f"mpicxx.{mpi}"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} (Debian: {mpi}-bin, lib{mpi}-dev)")


def skip_unless_whole(reason: str) -> None:
    if not os.environ.get(WHOLE):
        pytest.skip(f"{reason}: make test-mpi runs it")


def on_one_host(mpi: str, ranks: int, *program: object) -> list[str]:
    """What the ranks print, each line behind its rank's number, sorted."""
    options = {"openmpi": ["--allow-run-as-root", "--oversubscribe"], "mpich": []}[mpi]
    return _lines([f"mpirun.{mpi}", *options, "-n", ranks, *program], {"OMP_NUM_THREADS": "1"})


def on_hosts(mpi: str, hosts: Sequence[Host], ranks: Sequence[int], folder: Path, *program: object) -> list[str]:
    """The same with so many ranks on each host; ranks of a host follow one another."""
    if mpi == "mpich":
        skip_unless_whole("MPI_Finalize of Debian's MPICH at times hangs over UCX's TCP")
    return _lines(command_on_hosts(mpi, hosts, ranks, folder, *program), ENVIRONMENT)


def command_on_hosts(
    mpi: str, hosts: Sequence[Host], ranks: Sequence[int], folder: Path, *program: object, memory: bool = False
) -> list[str]:
    """How to start such ranks, in ENVIRONMENT. With `memory`, Open MPI's own ranks of a host share memory."""
    agent = agent_for(hosts, folder)
    slots = ",".join(f"{host.address}:{count}" for host, count in zip(hosts, ranks, strict=True))
    network = f"{hosts[0].address.rpartition('.')[0]}.0/24"
    options: dict[str, list[object]] = {
        "openmpi": [
            *("--allow-run-as-root", "--bind-to", "none", "--host", slots, "--mca", "plm_rsh_agent", agent),
            *("--mca", "btl", "vader,tcp,self" if memory else "tcp,self", "--mca", "btl_tcp_if_include", network),
            *("--mca", "oob_tcp_if_include", network, "--mca", "pml", "ob1"),
            *("-x", "OMP_NUM_THREADS"),
        ],
        "mpich": ["-launcher", "ssh", "-launcher-exec", agent, "-hosts", slots, "-localhost", hosts[0].address],
    }
    call = [f"mpirun.{mpi}", *options[mpi], "-n", sum(ranks), *program]
    return [str(agent), hosts[0].address, shlex.join(str(word) for word in call)]


def agent_for(hosts: Sequence[Host], folder: Path) -> Path:
    """A program that is called as ssh is, and enters one of these hosts."""
    path = folder / "agent"
    cases = "\n".join(
        f"{host.address}) namespace=/proc/{os.getpid()}/fd/{host.namespace} name=host{number} ;;"
        for number, host in enumerate(hosts)
    )
    path.write_text(_AGENT.format(cases=cases))
    path.chmod(0o755)
    return path


def _lines(call: Sequence[object], more: dict[str, str]) -> list[str]:
    environment = {**os.environ, **more}
    done = run_program(call, stderr=subprocess.STDOUT, timeout_s=TIMEOUT_S, env=environment)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    return sorted(line for line in done.stdout.splitlines() if re.match(r"\[\d+\] ", line))
