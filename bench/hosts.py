"""Collectives between hosts: in two levels, as one flat exchange, by gloo's own collectives, by Open MPI's, and
pad-gather-mask."""

from __future__ import annotations

import argparse
import dataclasses
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from bench.options import parser_of
from bench.rank_programs import ProgramFailed, RankProgram
from bench.report import (
    Claim,
    Progress,
    bytes_text,
    geometric_mean,
    print_claims,
    print_table,
    us_text,
    write_json,
)
from bench.shm_contenders import RANK_PROGRAMS
from tests.support.hosts import Host, NoHosts, hosts, sent_bytes, torchrun_on
from tests.support.mpi import command_on_hosts
from tests.support.pad_gather_mask import pad_gather_mask
from tests.support.ranks import run_ranks

KIB, MIB = 2**10, 2**20
OURS, FLAT, GLOO, PADDED, MPI = "two levels", "flat", "gloo's own", "pad-gather-mask", "Open MPI"
NO_ANSWER = "no answer"
PEER_LIMIT_S = 60.0  # of one turn of a program beside ours
CLAIMED_FROM = 256 * KIB  # bytes a rank
BYTES_FROM = 64 * KIB
FLOAT_BYTES = 4

HELP = """
Hosts are network namespaces on this machine, joined by cables of a given bandwidth. Every contender runs in the same
ranks, call by call in turn; a call lasts from the first rank's start to the last rank's end, and figures are medians.
The bytes are what the counters of the hosts' cables say, headers of packets included; beside them stands the least that
must cross: each host's rows once to every other host, one sum per host.

  two levels       sw's collectives: memory inside a host, gloo between hosts
  flat             sw's collectives with SHARDWAY_TRANSPORT=c10d: every rank sends to every rank
  gloo's own       dist.all_gather (equal parts), dist.all_reduce, dist.broadcast
  pad-gather-mask  the distributed.py that people copy
  Open MPI         a C++ program under mpirun: MPI_Allgatherv, MPI_Reduce_scatter, MPI_Allreduce, MPI_Bcast

A program that does not answer within 60 s is ended. Its rows from there on say so, and so does a claim about them.

Leaves build/bench/hosts.json. Exits 1 when a claim is missed or was not measured.
"""

FIELDS = {
    "bytes": "of a rank, on average",
    "us": "median, from the first rank's start to the last rank's end; null: no answer",
    "crossed": "bytes that all hosts sent in one call",
    "least": "bytes that they have to send",
}


@dataclass(frozen=True)
class Row:
    hosts: int
    op: str
    contender: str
    bytes: int
    us: float | None  # None: no answer
    samples: int
    crossed: int
    least: int


class Clock:
    """A page shared by the ranks. Whoever waits sleeps, since ranks have no core each here."""

    def __init__(self, ranks: int) -> None:
        self._page = memoryview(mmap.mmap(-1, 8 * (3 * ranks + 1))).cast("q")
        self._turns, self._starts, self._ends = (self._page[i * ranks :][:ranks] for i in range(3))

    def meet(self, rank: int) -> None:
        turn = self._turns[rank] + 1
        self._turns[rank] = turn
        while min(self._turns) < turn:
            time.sleep(1e-4)

    def says_first(self, rank: int, verdict: bool) -> bool:
        """What rank 0 says, on every rank."""
        if rank == 0:
            self._page[-1] = verdict
        self.meet(rank)
        said = bool(self._page[-1])
        self.meet(rank)
        return said

    def time_us(self, rank: int, call: Callable[[], Any]) -> tuple[float, Any]:
        self.meet(rank)
        self._starts[rank] = time.perf_counter_ns()
        result = call()
        self._ends[rank] = time.perf_counter_ns()
        self.meet(rank)
        took = (max(self._ends) - min(self._starts)) / 1e3
        self.meet(rank)
        return took, result


@dataclass(frozen=True)
class Case:
    """One op at one size on this rank: the calls of the contenders, and what each must give."""

    op: str
    bytes: int
    least: int
    calls: dict[str, Callable[[], Tensor]]
    wanted: Tensor
    mpi_sizes: list[int]  # in rows of 16 floats, as MPI is to take them

    @property
    def mpi_task(self) -> str:
        """One call that warms up, and one that counts (bench/ranks/task.h)."""
        return f"{self.op.partition(',')[0]} out offset=0 1 {' '.join(str(16 * size) for size in self.mpi_sizes)}"


def _rows_of(mean_bytes: int, ranks: int, equal: bool) -> list[int]:
    """Rows of 16 floats: 1:3:5:... around the mean, or the mean."""
    mean = max(mean_bytes // FLOAT_BYTES // 16, 1)
    return [mean] * ranks if equal else [max((2 * r + 1) * mean // ranks, 1) for r in range(ranks)]


def _part(rank: int, rows: int) -> Tensor:
    """Small integers, so that sums in f32 are exact."""
    return ((torch.arange(rows) + 7 * rank) % 251).float().unsqueeze(1) + torch.arange(16.0)


def _sum_of_parts(ranks: int, rows: int) -> Tensor:
    """One after the other: all at once would not fit into memory where every rank does this."""
    total = _part(0, rows)
    for rank in range(1, ranks):
        total += _part(rank, rows)
    return total


def _cases(rank: int, host_of: list[int], mean_bytes: int, flat: dist.ProcessGroup) -> Iterator[Case]:
    ranks, count = len(host_of), len(set(host_of))
    for equal in (False, True):
        sizes = _rows_of(mean_bytes, ranks, equal)
        x = _part(rank, sizes[rank])
        wanted = torch.cat([_part(r, n) for r, n in enumerate(sizes)])
        calls: dict[str, Callable[[], Tensor]] = {
            OURS: lambda x=x: sw.all_gather_v(x)[0],
            FLAT: lambda x=x: sw.all_gather_v(x, group=flat)[0],
            PADDED: lambda x=x: pad_gather_mask(x, 0)[0],
        }
        if equal:

            def own(x: Tensor = x, whole: Tensor = wanted) -> Tensor:
                out = torch.empty_like(whole)
                dist.all_gather(list(out.chunk(ranks)), x)
                return out

            calls[GLOO] = own
        yield Case(
            "all_gather_v, equal parts" if equal else "all_gather_v",
            mean_bytes,
            (count - 1) * sum(sizes) * 16 * FLOAT_BYTES,
            calls,
            wanted,
            sizes,
        )
    sizes = _rows_of(mean_bytes, ranks, equal=False)
    whole = _part(rank, sum(sizes))
    begin = sum(sizes[:rank])
    total = _sum_of_parts(ranks, sum(sizes))[begin : begin + sizes[rank]].clone()
    yield Case(
        "reduce_scatter_v",
        mean_bytes,
        (count - 1) * sum(sizes) * 16 * FLOAT_BYTES,
        {
            OURS: lambda: sw.reduce_scatter_v(whole, sizes),
            FLAT: lambda: sw.reduce_scatter_v(whole, sizes, group=flat),
        },
        total,
        sizes,
    )
    rows = _rows_of(mean_bytes, 1, equal=True)[0]
    same = _part(rank, rows)

    def own_all_reduce() -> Tensor:
        out = same.clone()
        dist.all_reduce(out)
        return out

    yield Case(
        "all_reduce",
        mean_bytes,
        2 * (count - 1) * rows * 16 * FLOAT_BYTES,
        {OURS: lambda: sw.all_reduce(same), FLAT: lambda: sw.all_reduce(same, group=flat), GLOO: own_all_reduce},
        _sum_of_parts(ranks, rows),
        [rows] * ranks,
    )

    def own_broadcast() -> Tensor:
        out = same.clone()
        dist.broadcast(out, 0)
        return out

    yield Case(
        "broadcast",
        mean_bytes,
        (count - 1) * rows * 16 * FLOAT_BYTES,
        {OURS: lambda: sw.broadcast(same, 0), FLAT: lambda: sw.broadcast(same, 0, group=flat), GLOO: own_broadcast},
        _part(0, rows),
        [rows] * ranks,
    )


class Peer:
    """A program of ranks beside ours. Once it fails or does not answer, it is ended and asked no more."""

    def __init__(self, program: RankProgram) -> None:
        self._program: RankProgram | None = program

    def times_us(self, task: str) -> list[float]:
        """Empty without an answer."""
        if self._program is None:
            return []
        try:
            return [call.us for call in self._program.turn(task)]
        except ProgramFailed as why:
            print(why, flush=True)
            self._program.close(leave_s=0.0)
            self._program = None
            return []

    def close(self) -> None:
        if self._program is not None:
            self._program.close()


def _open_mpi(made: tuple[Host, ...], host_of: list[int], folder: Path) -> Callable[[], Peer] | None:
    """How one rank starts those of Open MPI, who then wait asleep for their turns; None where it is missing."""
    program = RANK_PROGRAMS / "openmpi_ranks"
    if shutil.which("mpirun.openmpi") is None or not program.exists():
        print(f"without Open MPI: there is no mpirun.openmpi, or no {program}")
        return None
    each = [host_of.count(host) for host in range(len(made))]
    # Ranks without a core each that spin would keep one another from running.
    yields = ["--mca", "mpi_yield_when_idle", "1"] if (os.cpu_count() or 1) < len(host_of) else []
    command = command_on_hosts("openmpi", made, each, folder, *yields, program, folder / "openmpi", memory=True)
    return lambda: Peer(RankProgram("openmpi", len(host_of), folder, [command], PEER_LIMIT_S))


def _measure(
    rank: int,
    size: int,
    clock: Clock,
    host_of: list[int],
    mean_sizes: list[int],
    rounds: int,
    limit_s: float,
    start_mpi: Callable[[], Peer] | None,
) -> list[tuple[Row, int]]:
    """Rows with the bytes that this rank's host sent, counted by the first rank of each host alone."""
    torch.set_num_threads(1)
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"
    flat = dist.new_group(list(range(size)))
    sw.all_gather_v(torch.ones(1), group=flat)
    del os.environ["SHARDWAY_TRANSPORT"]
    counts = host_of.index(host_of[rank]) == rank
    found: list[tuple[Row, int]] = []
    progress = Progress(5 * len(mean_sizes)) if rank == 0 else None
    mpi = start_mpi() if start_mpi and rank == 0 else None
    start = last = time.monotonic()
    for mean_bytes in mean_sizes:
        now = time.monotonic()
        if clock.says_first(rank, now - start + 4 * (now - last) > limit_s):  # sizes grow by four
            if rank == 0:
                print(f"{bytes_text(mean_bytes)} a rank and more would take too long, and are left out")
            break
        last = now
        for case in _cases(rank, host_of, mean_bytes, flat):
            names = [*case.calls, *([MPI] if start_mpi else [])]
            samples: dict[str, list[float]] = {name: [] for name in names}
            crossed = dict.fromkeys(names, 0)
            for turn in range(rounds + 1):
                for name, call in case.calls.items():
                    before = sent_bytes()
                    took, result = clock.time_us(rank, call)
                    clock.meet(rank)
                    if turn == 0:
                        assert torch.equal(result, case.wanted), f"{case.op}, {name}: wrong result on rank {rank}"
                        continue
                    samples[name].append(took)
                    crossed[name] = sent_bytes() - before if counts else 0
                    clock.meet(rank)
                if start_mpi:  # the ranks here sleep meanwhile
                    before = sent_bytes()
                    clock.meet(rank)
                    if mpi and turn > 0:
                        samples[MPI] += mpi.times_us(case.mpi_task)
                    clock.meet(rank)
                    crossed[MPI] = (sent_bytes() - before) // 2 if counts else 0
                    clock.meet(rank)
            for name, times in samples.items():
                us = statistics.median(times) if len(times) == rounds else None  # or it is Open MPI's, which rank 0 has
                row = Row(len(set(host_of)), case.op, name, mean_bytes, us, len(times), 0, case.least)
                found.append((row, crossed[name]))
            if progress:
                line = ", ".join(f"{row.contender} {_time_text(row)}" for row, _ in found[-len(names) :])
                progress.finished(f"{case.op}, {bytes_text(mean_bytes)} a rank: {line}")
    if mpi:
        mpi.close()
    return found


def _time_text(row: Row) -> str:
    return NO_ANSWER if row.us is None else us_text(row.us)


def _claims(rows: list[Row]) -> list[Claim]:
    by_call: dict[tuple[int, str, int], dict[str, Row]] = {}
    for row in rows:
        by_call.setdefault((row.hosts, row.op, row.bytes), {})[row.contender] = row
    claims = []

    def faster(than: str, wanted: float, ops: tuple[str, ...]) -> None:
        calls = [
            (call[than].us, call[OURS].us)
            for (_, op, size), call in by_call.items()
            if size >= CLAIMED_FROM and than in call and op in ops
        ]
        ratios = [theirs / ours for theirs, ours in calls if theirs is not None and ours is not None]
        in_the_mean = f"{', '.join(ops)}: from {bytes_text(CLAIMED_FROM)} a rank {wanted:g} times faster than {than}"
        no_row = f"{', '.join(ops)}: no row below 0.9 of {than}"
        if len(ratios) < len(calls):
            unknown = f"not measured: {than} gave no answer in {len(calls) - len(ratios)} of {len(calls)} rows"
            claims.extend((Claim(f"{in_the_mean} in the mean", unknown, None), Claim(no_row, unknown, None)))
        elif ratios:
            mean, least = geometric_mean(ratios), min(ratios)
            claims.append(Claim(f"{in_the_mean} in the mean", f"{mean:.2f}, least {least:.2f}", mean >= wanted))
            claims.append(Claim(no_row, f"{least:.2f}", least >= 0.9))

    gathers = ("all_gather_v", "all_gather_v, equal parts")
    faster(FLAT, 3.0, (*gathers, "reduce_scatter_v", "all_reduce", "broadcast"))
    faster(PADDED, 5.0, gathers)
    faster(GLOO, 1.4, ("all_gather_v, equal parts",))
    faster(GLOO, 1.4, ("all_reduce",))
    faster(MPI, 1.0, (*gathers, "reduce_scatter_v", "all_reduce", "broadcast"))
    ratios = [
        (call[OURS].crossed / call[OURS].least, op, size)
        for (_, op, size), call in by_call.items()
        if size >= BYTES_FROM
    ]
    if ratios:
        most, op, size = max(ratios)
        text = f"from {bytes_text(BYTES_FROM)} a rank at most 1.1 times the least that must cross"
        claims.append(Claim(text, f"{most:.3f} ({op}, {bytes_text(size)})", most <= 1.1))
    return claims


def _times_least(row: Row) -> str:
    return NO_ANSWER if row.us is None else f"{row.crossed / row.least:.2f}"


def _print_bytes(rows: list[Row]) -> None:
    print("\nBytes that crossed, as times the least")
    lines = [
        [f"{row.op}, {bytes_text(row.bytes)} a rank", f"{row.hosts}", row.contender, _times_least(row)]
        for row in rows
        if row.bytes >= BYTES_FROM and row.contender in (OURS, FLAT, MPI)
    ]
    print_table(["call", "hosts", "contender", "times"], lines)


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("hosts", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="two sizes, on 2 hosts alone: rough figures in a minute")
    parser.add_argument("--hosts", nargs="+", default=[], help="hosts x ranks (default: 2x4 4x2)")
    parser.add_argument("--gbit", type=float, default=1.0, help="of a cable, each way (default: 1)")
    parser.add_argument("--rounds", type=int, default=5, help="calls of each contender that count (default: 5)")
    parser.add_argument("--minutes", type=float, default=60.0, help="leave out sizes that do not fit (default: 60)")
    options = parser.parse_args(arguments)
    shapes = options.hosts or (["2x4"] if options.quick else ["2x4", "4x2"])
    mean_sizes = [64 * KIB, MIB] if options.quick else [4**k * KIB for k in range(8)]

    rows: list[Row] = []
    lost: list[Claim] = []
    for shape in shapes:
        print(f"{shape.replace('x', ' hosts of ')} ranks, cables of {options.gbit:g} Gbit/s")
        try:
            rows += _rows_on(shape, mean_sizes, options, 60 * options.minutes / len(shapes))
        except NoHosts as why:
            print(f"no hosts can be made here: {why}", file=sys.stderr)
            return 1
        except pytest.fail.Exception as why:  # the other shape is measured all the same
            print(why, file=sys.stderr)
            lost.append(
                Claim(f"{shape}: every claim below holds there too", "not measured: ranks of ours failed", None)
            )
    _print_bytes(rows)
    claims = [*lost, *_claims(rows)]
    print(f"\n{write_json(options.output / 'hosts.json', rows, claims, FIELDS, gbit=options.gbit)}")
    return print_claims(claims)


def _rows_on(shape: str, mean_sizes: list[int], options: argparse.Namespace, limit_s: float) -> list[Row]:
    """What the contenders took on hosts x ranks."""
    count, each = (int(number) for number in shape.split("x"))
    host_of = [host for host in range(count) for _ in range(each)]
    with hosts(count, int(options.gbit * 1e9)) as made, tempfile.TemporaryDirectory() as folder:
        start_mpi = _open_mpi(made, host_of, Path(folder))
        measured = (Clock(len(host_of)), host_of, mean_sizes, options.rounds, limit_s, start_mpi)
        enter = torchrun_on(made, host_of)
        found = run_ranks(len(host_of), _measure, *measured, enter=enter, timeout_s=3600.0)
    rows = []
    for of_ranks in zip(*found, strict=True):
        row = of_ranks[0][0]
        crossed = 0 if row.us is None else sum(of_rank[1] for of_rank in of_ranks)
        rows.append(dataclasses.replace(row, crossed=crossed))
    return rows


if __name__ == "__main__":
    sys.exit(main())
