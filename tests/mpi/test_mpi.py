"""C++ programs that mpirun starts, of Open MPI and MPICH, on one host and on several network namespaces."""

from __future__ import annotations

import collections
import functools
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardway as sw
from tests.support.hosts import Host, hosts_or_skip
from tests.support.mpi import MPIS, on_hosts, on_one_host, skip_unless_whole, skip_without
from tests.support.programs import run_program

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/mpi"  # always the same paths: the compiler cache knows them
BUILD_LIMIT_S = 600
MIB = 1 << 20


@functools.lru_cache
def built(mpi: str) -> Path:
    """The folder of the programs, compiled with this MPI as their users would compile them."""
    skip_without(mpi)
    shutil.rmtree(FOLDER / mpi, ignore_errors=True)
    compiler = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    places = [f"-DCMAKE_PREFIX_PATH={sw.cmake_prefix_path}", f"-DMPI_CXX_COMPILER=mpicxx.{mpi}"]
    configure = ["cmake", "-G", "Ninja", "-S", Path(__file__).parent, "-B", FOLDER / mpi, *compiler, *places]
    for call in (configure, ["cmake", "--build", FOLDER / mpi]):
        done = run_program(call, stderr=subprocess.STDOUT, timeout_s=BUILD_LIMIT_S)
        assert done.returncode == 0, done.stdout
    return FOLDER / mpi


@pytest.fixture(params=MPIS)
def mpi(request: pytest.FixtureRequest) -> str:
    built(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def three_hosts() -> Iterator[tuple[Host, ...]]:
    with hosts_or_skip(3) as made:
        yield made


@functools.lru_cache
def alone(mpi: str, ranks: int, program: str, *words: str) -> list[str]:
    return on_one_host(mpi, ranks, built(mpi) / program, *words)


def answers(lines: list[str]) -> dict[int, list[str]]:
    """What each rank says, by rank; the lines are sorted."""
    by_rank = collections.defaultdict(list)
    for line in lines:
        by_rank[int(line[1 : line.index("]")])].append(line.partition("] ")[2])
    return by_rank


def gathered(ranks: int) -> str:
    rows = [100 * rank + i for rank in range(ranks) for i in range(3 * rank)]
    return "all_gather_v: " + "".join(f"{row} " for row in rows)


def exchanged(rank: int, ranks: int) -> str:
    """What comes to a rank if rank r sends r + 2 s numbers to rank s, counted from 1000 r."""
    came = []
    for sender in range(ranks):
        begin = 1000 * sender + sum(sender + 2 * other for other in range(rank))
        came += range(begin, begin + sender + 2 * rank)
    return "all_to_all_v: " + "".join(f"{number} " for number in came)


def check_spans(lines: list[str], ranks: int) -> None:
    """Against a reference of our own; what is too long to be printed is the same as on one host."""
    said = answers(lines)
    assert set(said) == set(range(ranks)), lines
    begin = 0
    for rank in range(ranks):
        assert gathered(ranks) in said[rank]
        assert exchanged(rank, ranks) in said[rank]
        places = range(begin, begin + 3 * rank)
        begin += 3 * rank
        sums = [ranks * ranks * i + sum(range(ranks)) for i in places]
        assert "reduce_scatter_v: " + "".join(f"{number} " for number in sums) in said[rank]
        assert any(line.startswith("ranks called different collectives: all_gather_v") for line in said[rank])
        assert any(f"barrier on rank {ranks - 1}" in line for line in said[rank]), said[rank]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_spans_on_one_host(mpi: str, ranks: int) -> None:
    if ranks > 1:
        check_spans(alone(mpi, ranks, "spans", "calls"), ranks)
    else:
        assert gathered(1) in answers(on_one_host(mpi, 1, built(mpi) / "spans", "calls"))[0]


@pytest.mark.parametrize("counts", [(2, 2), (2, 1), (1, 1, 1)])
@pytest.mark.parametrize("program", ["spans", "cut_spans"])
def test_spans_on_several_hosts_are_those_of_one(
    mpi: str, three_hosts: tuple[Host, ...], counts: tuple[int, ...], program: str, tmp_path: Path
) -> None:
    if counts != (2, 1):
        skip_unless_whole("another map of hosts")
    lines = on_hosts(mpi, three_hosts[: len(counts)], counts, tmp_path, built(mpi) / program, "calls")
    check_spans(lines, sum(counts))
    assert lines == alone(mpi, sum(counts), "spans", "calls")


def test_messages_of_the_program_do_not_meet_ours(mpi: str, three_hosts: tuple[Host, ...], tmp_path: Path) -> None:
    lines = on_hosts(mpi, three_hosts[:2], (1, 1), tmp_path, built(mpi) / "spans", "mpi too")
    check_spans(lines, 2)
    assert {"[0] token 1", "[1] token 0"} <= set(lines)


@pytest.mark.parametrize("program, words", [("spans", ["environment"]), ("tensors", ["multiple", "environment"])])
def test_join_finds_mpi_by_itself(
    mpi: str, three_hosts: tuple[Host, ...], program: str, words: list[str], tmp_path: Path
) -> None:
    lines = on_hosts(mpi, three_hosts[:2], (2, 1), tmp_path, built(mpi) / program, *words)
    assert lines == alone(mpi, 3, program, *words)
    assert len(answers(lines)) == 3


@pytest.mark.parametrize("level", ["single", "multiple"])
def test_tensors_on_two_hosts_are_those_of_one(
    mpi: str, three_hosts: tuple[Host, ...], level: str, tmp_path: Path
) -> None:
    if level == "single":
        skip_unless_whole("another level of threads")
    lines = on_hosts(mpi, three_hosts[:2], (2, 2), tmp_path, built(mpi) / "tensors", level)
    assert lines == alone(mpi, 4, "tensors", level)
    refusal = "all_gather_v: ranks disagree on dtype: float32 on rank 0, float64 on rank 3"
    for rank, said in answers(lines).items():
        assert refusal in said, said
        assert any(line.startswith("all_gather_v: [18, 2] ") for line in said)
        assert "after it: [3] digest 24" in said, rank  # 4 ones, by weights 1, 2 and 3


def test_each_byte_crosses_once(mpi: str, three_hosts: tuple[Host, ...], tmp_path: Path) -> None:
    """1 MiB a rank. The least that a host sends: its rows; its sums for the other; half of the sums and half of the
    result; the tensor, from the root's host."""
    lines = on_hosts(mpi, three_hosts[:2], (2, 2), tmp_path, built(mpi) / "spans", "bytes")
    sent = collections.defaultdict(dict)
    for line in lines:
        rank, op, count = re.fullmatch(r"\[(\d)\] (\w+) sent (\d+)", line).groups()  # type: ignore[union-attr]
        sent[op][int(rank)] = int(count)
    least = {"all_gather_v": 2 * MIB, "reduce_scatter_v": 2 * MIB, "all_reduce": MIB, "broadcast": MIB}
    for op, bytes_sent in least.items():
        assert bytes_sent < sent[op][0] < 1.1 * bytes_sent, (op, sent[op])


@pytest.mark.parametrize(
    "mistake, answer",
    [
        ("uninitialised", "invalid_argument: join: MPI is not initialised: the program calls MPI_Init"),
        ("freed", "invalid_argument: join: the communicator is MPI_COMM_NULL"),
        ("stale", "invalid_argument: join: the communicator is none of this MPI, or was freed"),
        ("thread", "invalid_argument: join: MPI was initialised for its main thread alone, and this is another"),
    ],
)
def test_a_mistake_is_said_in_one_sentence_on_every_rank(mpi: str, mistake: str, answer: str) -> None:
    if (mpi, mistake) == ("openmpi", "stale"):
        pytest.skip("Open MPI's communicators are pointers: one that was freed is not told from others")
    lines = on_one_host(mpi, 2, built(mpi) / "spans", mistake)
    assert len(lines) == 2 and all(line.partition("] ")[2].startswith(answer) for line in lines), lines


def test_the_group_ends_with_mpi(mpi: str, three_hosts: tuple[Host, ...], tmp_path: Path) -> None:
    lines = on_hosts(mpi, three_hosts[:2], (1, 1), tmp_path, built(mpi) / "spans", "finalised")
    assert [line for line in lines if "MPI_Finalize was called, which ends the group" in line], lines
    assert sum("invalid_argument: join: MPI_Finalize was called before" in line for line in lines) == 2


def test_a_rank_that_does_not_come_is_named(mpi: str, three_hosts: tuple[Host, ...], tmp_path: Path) -> None:
    lines = on_hosts(mpi, three_hosts[:2], (2, 1), tmp_path, built(mpi) / "spans", "lost")
    said = answers(lines)
    assert all(said[rank][0].startswith("runtime_error: rank 2 could not be reached: ") for rank in (0, 1)), lines


def test_the_program_of_the_docs_runs(three_hosts: tuple[Host, ...], tmp_path: Path) -> None:
    """It is compiled with the MPI that the build has found."""
    program = ROOT / "build/release/examples/mpi_hosts"
    if not program.exists():
        pytest.skip("the build has found no MPI")
    source = (ROOT / "examples/mpi_hosts.cpp").read_text()
    assert source[source.index("int main") :] in (ROOT / "docs/cpp.md").read_text()
    linked = run_program(["ldd", program], timeout_s=60).stdout
    found = "mpich" if "libmpich" in linked else "openmpi"
    call = ["sh", "-c", f"{program} | sed 's/^rank \\([0-9]\\)/[\\1]/'"]
    lines = on_hosts(found, three_hosts[:2], (2, 1), tmp_path, *call)
    assert lines == [f"[{rank}] has 6 rows, their sum is 16" for rank in range(3)]


def test_a_program_without_the_component_is_told_what_to_link(
    mpi: str, three_hosts: tuple[Host, ...], tmp_path: Path
) -> None:
    call = ["sh", "-c", f"{built(mpi) / 'unlinked'} | sed 's/^/[0] /'"]
    lines = on_hosts(mpi, three_hosts[:2], (1, 1), tmp_path, *call)
    assert len(lines) == 2 and all("link shardway::mpi, which uses MPI between hosts" in line for line in lines), lines
