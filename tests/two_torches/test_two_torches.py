"""A link between a job on this torch and a job on another one: `make test-two-torches`, which builds for both."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.hosts import Host, hosts_or_skip
from tests.support.jobs import free_ports
from tests.support.programs import started_program

JOB = Path(__file__).with_name("job.py")
OTHER = os.environ.get("SHARDWAY_OTHER_PYTHON", "")
TIMEOUT_S = 120

pytestmark = pytest.mark.skipif(not OTHER, reason="needs a build for another torch: make test-two-torches")


def _started(programs: ExitStack, python: str, words: Sequence[object], host: Host | None) -> Any:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # On one host all goes through shared memory: gloo would find no such interface.
    environment["GLOO_SOCKET_IFNAME"] = host.interface if host is not None else "none"
    if python == OTHER:
        environment.pop("PYTHONPATH", None)  # its shardway is the one that is installed there
    place = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{host.namespace}"] if host is not None else []
    return programs.enter_context(started_program([*place, python, JOB, *words], env=environment, stdout=-1, stderr=-1))


def _ran(
    trainer: str, generator: str, what: tuple[str, str], sizes: tuple[int, int] = (1, 1), hosts: Sequence[Host] = ()
) -> dict[str, list[Any]]:
    """What came of each rank of both jobs; None of one that ended without a word."""
    address = f"tcp://{hosts[0].address}:29700" if hosts else f"tcp://127.0.0.1:{free_ports(1)[0]}"
    jobs = {"trainer": (trainer, sizes[0], what[0]), "generator": (generator, sizes[1], what[1])}
    came: dict[str, list[Any]] = {role: [] for role in jobs}
    with ExitStack() as programs:
        started = [
            (role, python, _started(programs, python, [address, role, rank, size, does], host))
            for (role, (python, size, does)), host in zip(jobs.items(), hosts or (None, None), strict=True)
            for rank in range(size)
        ]
        for role, python, program in started:
            out, err = program.communicate(timeout=TIMEOUT_S)
            assert program.returncode == 0, f"role {role}: exit code {program.returncode}\n{out}\n{err}"
            answer = json.loads(out) if out else {"came": None, "torch": ""}
            assert not out or (python == OTHER) == (answer["torch"] != torch.__version__), answer
            came[role].append(answer["came"])
    return came


@pytest.fixture(params=["trainer", "generator"])
def pair(request) -> tuple[str, str]:
    """The Pythons of the trainer and the generator; the one named is on the other torch."""
    return (OTHER, sys.executable) if request.param == "trainer" else (sys.executable, OTHER)


def test_every_dtype_arrives_through_shared_memory(pair):
    came = _ran(*pair, ("send", "receive"), (2, 3))
    assert came == {"trainer": [[1, 2, 3]] * 2, "generator": [[1, 2, 3]] * 3}


def test_every_dtype_arrives_by_gloo_between_hosts(pair):
    with hosts_or_skip(2) as hosts:
        came = _ran(*pair, ("send", "receive"), (2, 2), hosts)
    assert came == {"trainer": [[1, 2, 3]] * 2, "generator": [[1, 2, 3]] * 2}


def test_what_differs_is_refused_on_both_sides(pair):
    came = _ran(*pair, ("publish_other_shape", "subscribe_other_shape"))
    for (said,) in came.values():
        assert "w: the shapes differ: published float32[2,3]" in said and "subscribed float32[2,4]" in said


def test_a_death_is_told_to_the_other_torch(pair):
    came = _ran(*pair, ("send_in_vain", "die_after_one"))
    assert came["generator"] == [None] and "role generator rank 0" in came["trainer"][0]
