"""The MPIs that ranks of one host are raced against: those of the system, and newer ones in a folder of peers.

`scripts/setup peers` makes that folder: build/peers/PACKAGE for each line of requirements-peers.txt. A program of ranks
is compiled once for each binary interface: Open MPI 4 and 5 share libmpi.so.40; MPICH and Intel MPI share libmpi.so.12.
Ranks pin themselves (bench/ranks/meeting.h), so every launcher is told to pin nobody.

oneCCL counts as one of them where it is asked for: it runs over Intel MPI, and its reductions take equal sizes alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build"
RANK_PROGRAMS = BUILD / "release" / "bench"
PEERS = BUILD / "peers"
OPEN_MPI, MPICH, INTEL_MPI, ONE_CCL = FAMILIES = ("Open MPI", "MPICH", "Intel MPI", "oneCCL")


@dataclass(frozen=True)
class Mpi:
    """One MPI with one set of settings. `crowded` ones join where ranks share their cores with each other."""

    family: str
    version: str
    launcher: str
    program: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    note: str = ""
    crowded_environment: Mapping[str, str] = field(default_factory=dict)
    crowded_options: Sequence[str] = ()
    session_option: Sequence[str] = ()  # before the path of a folder for its own files, where it takes one

    @property
    def kind(self) -> str:
        return f"{self.family} {self.version}"

    @property
    def name(self) -> str:
        return f"{self.kind}{self.note}"

    @property
    def label(self) -> str:
        """Of its pipes and files."""
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower())

    def command(self, ranks: int, path: Path, crowded: bool, *arguments: str) -> list[str]:
        session = Path(f"{path}.session")  # of its own: two launchers that start at once fail over a common one
        session.mkdir(exist_ok=True)
        variables = {**self.environment, **(self.crowded_environment if crowded else {}), "TMPDIR": str(session)}
        return [
            "env",
            *(f"{name}={value}" for name, value in variables.items()),
            self.launcher,
            *self.options,
            *(self.crowded_options if crowded else ()),
            *((*self.session_option, str(session)) if self.session_option else ()),
            *("-n", str(ranks), str(self.program), str(path), *arguments),
        ]


def is_mpi(contender: str) -> bool:
    return contender.startswith(FAMILIES)


def kind_of(contender: str) -> str:
    """Which MPI a contender is, whatever its settings; another contender is its own kind."""
    return contender.partition(",")[0] if is_mpi(contender) else contender


def are_crowded(ranks: int) -> bool:
    """Whether ranks share cores with each other. Beside other programs, an MPI that yields is slower, not faster."""
    return ranks > len(os.sched_getaffinity(0))


def found_mpis(peers: Path = PEERS) -> list[Mpi]:
    """Those whose launcher and program of ranks are both there."""
    candidates = [*_of_the_system(), *_of_peers(peers.resolve())]
    return [mpi for mpi in candidates if mpi.program.exists() and shutil.which(mpi.launcher)]


def found_oneccl(peers: Path = PEERS) -> list[Mpi]:
    """oneCCL, whose calls are carried out by the thread that makes them; nothing if it is not there."""
    folder = peers.resolve() / "oneccl"
    intel = _intel_mpi(peers.resolve())
    libraries = f"{intel.environment['LD_LIBRARY_PATH']}:{folder / 'lib'}"
    one_ccl = Mpi(
        ONE_CCL,
        _installed_version(folder, "oneccl-*"),
        intel.launcher,
        RANK_PROGRAMS / "oneccl_ranks",
        {
            **intel.environment,
            "LD_LIBRARY_PATH": libraries,
            "CCL_ATL_TRANSPORT": "mpi",
            "CCL_WORKER_OFFLOAD": "0",
            "CCL_LOG_LEVEL": "error",
        },
        crowded_environment=intel.crowded_environment,
    )
    return [one_ccl] if one_ccl.program.exists() and shutil.which(one_ccl.launcher) else []


def versions_of(mpis: Sequence[Mpi]) -> dict[str, str]:
    """What each ran with, for the JSON: the name and all settings."""
    return {mpi.name: " ".join((*(f"{k}={v}" for k, v in mpi.environment.items()), *mpi.options)) for mpi in mpis}


OPEN_MPI_OPTIONS = ("--allow-run-as-root", "--bind-to", "none")
OPEN_MPI_CROWDED = ("--oversubscribe", "--mca", "mpi_yield_when_idle", "1")


def _of_the_system() -> list[Mpi]:
    open_mpi, mpich = "mpirun.openmpi", "mpiexec.mpich"
    return [
        Mpi(
            OPEN_MPI,
            _printed_version([open_mpi, "--version"]),
            open_mpi,
            RANK_PROGRAMS / "openmpi_ranks",
            options=OPEN_MPI_OPTIONS,
            crowded_options=OPEN_MPI_CROWDED,
            session_option=("--mca", "orte_tmpdir_base"),
        ),
        Mpi(MPICH, _printed_version([mpich, "--version"]), mpich, RANK_PROGRAMS / "mpich_ranks"),
    ]


def _printed_version(command: list[str]) -> str:
    if not shutil.which(command[0]):
        return "?"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    return found[0] if found else "?"


def _of_peers(peers: Path) -> list[Mpi]:
    open_mpi, mpich = (peers / package for package in ("openmpi", "mpich"))
    return [
        _intel_mpi(peers),
        Mpi(
            OPEN_MPI,
            _installed_version(open_mpi),
            str(open_mpi / "bin" / "mpirun"),
            RANK_PROGRAMS / "openmpi_ranks",
            {"LD_LIBRARY_PATH": str(open_mpi / "lib")},
            (*OPEN_MPI_OPTIONS, "--mca", "pml", "ob1", "--mca", "btl", "self,sm"),
            crowded_options=("--map-by", ":OVERSUBSCRIBE", "--mca", "mpi_yield_when_idle", "1"),
        ),
        Mpi(
            MPICH,
            _installed_version(mpich),
            str(mpich / "bin" / "mpiexec.hydra"),
            RANK_PROGRAMS / "mpich_abi_ranks",
            {"LD_LIBRARY_PATH": str(mpich / "lib")},
        ),
    ]


def _intel_mpi(peers: Path) -> Mpi:
    intel = peers / "impi-rt"
    return Mpi(
        INTEL_MPI,
        _installed_version(intel),
        str(intel / "bin" / "mpiexec.hydra"),
        RANK_PROGRAMS / "mpich_abi_ranks",
        {
            "LD_LIBRARY_PATH": str(intel / "lib"),
            "I_MPI_ROOT": str(intel),
            "I_MPI_FABRICS": "shm",
            "I_MPI_PIN": "0",
        },
        crowded_environment={"I_MPI_THREAD_YIELD": "3"},
    )


def _installed_version(folder: Path, package: str = "*") -> str:
    """As the package's own metadata say."""
    for found in folder.glob(f"lib/python3*/site-packages/{package}.dist-info"):
        return found.name.removesuffix(".dist-info").partition("-")[2]
    return "?"
