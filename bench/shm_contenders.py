"""Who takes part in bench/shm.py: shardway on buffers and on tensors, two MPIs, and a plain copy."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

OURS, OURS_SHARED = "shardway", "shardway, shared"
TENSORS, TENSORS_SHARED = "shardway tensors", "shardway tensors, shared"
COPIES = ("memcpy", "copy loop")
PULLS = "bare pulls"
OPEN_MPI, MPICH = "Open MPI", "MPICH"
SHIFT = 2080  # bytes: half a page and half a line, so that input and output do not alias within a page

OUT, STEADY, FIRST = "out", "steady", "first"
POLICIES = (OUT, STEADY, FIRST)
RANK_PROGRAMS = Path(__file__).resolve().parent.parent / "build" / "release" / "bench"


@dataclass(frozen=True)
class Contender:
    name: str
    program: str
    variant: str
    policies: tuple[str, ...] = POLICIES
    output: str | None = None  # its own policy, whatever that of the case

    @property
    def kind(self) -> str:
        """Who it is, whatever the settings."""
        return self.name.partition(",")[0]


@dataclass(frozen=True)
class Program:
    """How to start the ranks: their number and the path of their pipes in, commands out."""

    name: str
    commands: Callable[[int, Path], list[list[str]]]


def with_out(contender: str) -> str:
    """The same contender with the caller's outputs, where others have fresh ones."""
    return f"{contender}, out="


def _one_process_a_rank(program: str) -> Callable[[int, Path], list[list[str]]]:
    binary = str(RANK_PROGRAMS / program)
    return lambda ranks, path: [[binary, str(path), str(rank), str(ranks)] for rank in range(ranks)]


def _open_mpi(*arguments: str) -> Callable[[int, Path], list[list[str]]]:
    def commands(ranks: int, path: Path) -> list[list[str]]:
        session = f"{path}.session"  # of its own: two that start at once fail over a common one
        options = ["--allow-run-as-root", "--bind-to", "none", "--mca", "orte_tmpdir_base", session, "-n", str(ranks)]
        if ranks > len(os.sched_getaffinity(0)):
            options.append("--oversubscribe")
        return [["mpirun.openmpi", *options, str(RANK_PROGRAMS / "openmpi_ranks"), str(path), *arguments]]

    return commands


def _mpich(*arguments: str) -> Callable[[int, Path], list[list[str]]]:
    binary = str(RANK_PROGRAMS / "mpich_ranks")
    return lambda ranks, path: [["mpiexec.mpich", "-n", str(ranks), binary, str(path), *arguments]]


PROGRAMS = [
    Program("tensors", _one_process_a_rank("tensor_ranks")),
    Program("buffers", _one_process_a_rank("shm_ranks")),
    Program("backend", _one_process_a_rank("backend_ranks")),
    Program("copy", _one_process_a_rank("copy_ranks")),
    Program("pull", _one_process_a_rank("pull_ranks")),
    Program("openmpi", _open_mpi()),
    Program("openmpi_keep", _open_mpi("keep")),
    Program("mpich", _mpich()),
    Program("mpich_keep", _mpich("keep")),
]

MPI_CONTENDERS = [
    Contender(f"{mpi}{note}{f', +{offset}' if offset else ''}", program + suffix, f"offset={offset}", policies)
    for mpi, program in ((OPEN_MPI, "openmpi"), (MPICH, "mpich"))
    for suffix, note in (("", ""), ("_keep", ", malloc keeps"))
    for offset, policies in ((0, POLICIES), (SHIFT, (OUT,)))
]

CONTENDERS = [
    Contender(OURS, "buffers", "ordinary", (OUT,)),
    Contender(OURS_SHARED, "buffers", "shared", (OUT,)),
    Contender(TENSORS, "tensors", "ordinary"),
    Contender(TENSORS_SHARED, "tensors", "shared"),
    Contender(with_out(TENSORS), "tensors", "ordinary", (STEADY,), output=OUT),
    Contender(with_out(TENSORS_SHARED), "tensors", "shared", (STEADY,), output=OUT),
    *(Contender(name, "copy", name.replace(" ", "_"), (OUT,)) for name in COPIES),
    Contender(PULLS, "pull", "any", (OUT,)),
    *MPI_CONTENDERS,
]


def is_mpi(contender: str) -> bool:
    return contender.startswith((OPEN_MPI, MPICH))
