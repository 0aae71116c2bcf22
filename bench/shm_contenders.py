"""Who takes part in bench/shm.py: shardway on buffers and on tensors, several MPIs, and a plain copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.mpis import RANK_PROGRAMS, Mpi

OURS, OURS_SHARED = "shardway", "shardway, shared"
TENSORS, TENSORS_SHARED = "shardway tensors", "shardway tensors, shared"
COPIES = ("memcpy", "copy loop")
PULLS = "bare pulls"
SHIFT = 2080  # bytes: half a page and half a line, so that input and output do not alias within a page

OUT, STEADY, FIRST = "out", "steady", "first"
POLICIES = (OUT, STEADY, FIRST)


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


def _one_process_a_rank(program: str, *arguments: str) -> Callable[[int, Path], list[list[str]]]:
    binary = str(RANK_PROGRAMS / program)
    return lambda ranks, path: [[binary, str(path), str(rank), str(ranks), *arguments] for rank in range(ranks)]


KEEP = "_keep"  # with a malloc that gives nothing back to the system
PROGRAMS = [
    Program("tensors", _one_process_a_rank("tensor_ranks")),
    Program("buffers", _one_process_a_rank("shm_ranks")),
    Program("backend", _one_process_a_rank("backend_ranks")),
    Program("copy", _one_process_a_rank("copy_ranks")),
    Program("pull", _one_process_a_rank("pull_ranks")),
    *(
        Program(name + KEEP, _one_process_a_rank(program, "keep"))
        for name, program in (("buffers", "shm_ranks"), ("pull", "pull_ranks"))
    ),
]


def mpi_programs(mpis: Sequence[Mpi], crowded: bool) -> list[Program]:
    """Each twice: as it is, and with a malloc that gives nothing back to the system."""

    def starts(mpi: Mpi, *arguments: str) -> Callable[[int, Path], list[list[str]]]:
        return lambda ranks, path: [mpi.command(ranks, path, crowded, *arguments)]

    return [
        Program(mpi.label + suffix, starts(mpi, *arguments))
        for mpi in mpis
        for suffix, arguments in (("", ()), (KEEP, ("keep",)))
    ]


def mpi_contenders(mpis: Sequence[Mpi]) -> list[Contender]:
    return [
        Contender(
            f"{mpi.name}{note}{f', +{offset}' if offset else ''}", mpi.label + suffix, f"offset={offset}", policies
        )
        for mpi in mpis
        for suffix, note in (("", ""), (KEEP, ", malloc keeps"))
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
]
