"""Whether a commit made calls slower: the same calls of two commits by turns, in one run."""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.backend_contenders import BARRIER
from bench.backend_contenders import OPS as BACKEND_OPS
from bench.commits import ROOT, unpacked
from bench.options import parser_of
from bench.ragged_contenders import OPS as RAGGED_OPS
from bench.rank_programs import Call, RankProgram
from bench.redistribute_claims import SHAPES as REDISTRIBUTE_SHAPES
from bench.redistribute_contenders import OPS as REDISTRIBUTE_OPS
from bench.redistribute_contenders import ops_on
from bench.report import Claim, Progress, bytes_text, geometric_mean, print_claims, us_text, write_json
from bench.shm_rows import KIB, MIB, OPS, SHAPES, SIZES, Case

BEFORE, AFTER = "before", "after"
TURNS = 5
AGAIN = 2  # times that a row under the line is measured once more, after all others
TURN_US = 20e3
MOST_CALLS = 50
LEAST_RATIO = 0.95
BENCHES = ("shm", "backend", "ragged", "redistribute", "group")

HELP = """
Builds the other commit under build/before (the one that is checked out is built by make), and runs the ranks of both
at once: while those of one take a turn, those of the other sleep. A row is one call at one size: 5 turns each, or
--turns, in changing order, and the figure of a commit is the median of the medians of its turns. Rows that come out
under 0.95 are measured again when all others are done, and all their turns count.

The Python of the rows is that of the tree which is checked out; the package that it imports is each commit's own.

Leaves build/bench/before.json. Exits 1 when a row is under 0.95.
"""


@dataclass(frozen=True)
class Row:
    """What is called. `program` is one of C++, or Python's ranks."""

    bench: str
    text: str
    ranks: int
    program: str
    task: str  # with a place for the number of calls


@dataclass(frozen=True)
class Measured:
    bench: str
    text: str
    ranks: int
    before_us: float
    after_us: float
    turns: int

    @property
    def ratio(self) -> float:
        """How many times faster than before."""
        return self.before_us / self.after_us


def rows_of(benches: Sequence[str], ranks: int, quick: bool) -> list[Row]:
    makers = {
        "shm": _shm_rows,
        "backend": _backend_rows,
        "ragged": _ragged_rows,
        "redistribute": _redistribute_rows,
        "group": _group_rows,
    }
    return [row for bench in benches for row in makers[bench](ranks, quick)]


def _shm_rows(ranks: int, quick: bool) -> Iterator[Row]:
    sizes = [64, 4 * KIB, 64 * KIB, 4 * MIB] if quick else SIZES
    shapes = ("equal",) if quick else SHAPES
    kinds = [("shm_ranks", kind, "out") for kind in ("ordinary", "shared")]
    kinds += [("tensor_ranks", kind, output) for kind in ("ordinary", "shared") for output in ("out", "steady")]
    for op, (program, kind, output), shape, size in itertools.product(OPS, kinds, shapes, sizes):
        case = Case(op, output, ranks, shape, size)
        counts = " ".join(str(count) for count in case.sizes())
        text = f"{program} {op} {kind} {output} {shape} {bytes_text(size)}"
        if output == "out" or (shape == "1:3:5" and size >= MIB):
            yield Row("shm", text, ranks, program, f"{op} {output} {kind} {{calls}} {counts}")


def _backend_rows(ranks: int, quick: bool) -> Iterator[Row]:
    powers = (0, 5, 8, 10) if quick else range(13)
    for size in [4 * 4**power for power in powers]:
        counts = " ".join([str(size // 4)] * ranks)
        for op, program in itertools.product(("all_reduce", "broadcast"), ("shm_ranks", "backend_ranks")):
            text = f"{program} {op} {bytes_text(size)}"
            yield Row("backend", text, ranks, program, f"{op} out ordinary {{calls}} {counts}")
        for op in BACKEND_OPS:
            yield Row("backend", f"{op} {bytes_text(size)}", ranks, "python", f"backend {op} {size} {{calls}}")
    yield Row("backend", BARRIER, ranks, "python", f"backend {BARRIER} 0 {{calls}}")


def _ragged_rows(ranks: int, quick: bool) -> Iterator[Row]:
    sizes = [4**k * KIB for k in ((0, 3, 6) if quick else range(9))] + [32 * KIB]
    for size, (index, op) in itertools.product(sorted(sizes), enumerate(RAGGED_OPS)):
        yield Row("ragged", f"{op.text} {bytes_text(size)}", ranks, "python", f"ragged {index} {size} {{calls}}")


def _redistribute_rows(ranks: int, quick: bool) -> Iterator[Row]:
    shapes = REDISTRIBUTE_SHAPES[: 2 if quick else None]
    for (rows, columns), op in itertools.product(shapes, ops_on(ranks)):
        task = f"redistribute {REDISTRIBUTE_OPS.index(op)} {rows}x{columns} {{calls}}"
        yield Row("redistribute", f"{op.name} {rows}x{columns}", ranks, "python", task)


def _group_rows(ranks: int, quick: bool) -> Iterator[Row]:
    yield Row("group", "making a group, and its first call", ranks, "python", "group make 0 {calls}")


@contextlib.contextmanager
def programs(roots: dict[str, Path], rows: Sequence[Row], ranks: int) -> Iterator[dict[tuple[str, str], RankProgram]]:
    """The ranks of both commits, by commit and program."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, contextlib.ExitStack() as stack:
        found = {}
        for version, program in itertools.product(roots, sorted({row.program for row in rows})):
            name = f"{version}.{program}"
            path = Path(folder) / name
            commands = [_command(roots[version], program, path, rank, ranks) for rank in range(ranks)]
            found[version, program] = RankProgram(name, ranks, Path(folder), commands)
            stack.callback(found[version, program].close)
        yield found


def _command(root: Path, program: str, path: Path, rank: int, ranks: int) -> list[str]:
    arguments = [str(path), str(rank), str(ranks)]
    if program != "python":
        return [str(root / "build/release/bench" / program), *arguments]
    packages = f"PYTHONPATH={root / 'build/release/python'}:{ROOT}"
    return ["env", packages, sys.executable, "-m", "bench.before_rank", *arguments]


class Contest:
    def __init__(self, found: dict[tuple[str, str], RankProgram], turns: int = TURNS) -> None:
        self._programs = found
        self._turns_at_once = turns
        self._turns: dict[Row, dict[str, list[float]]] = {}

    def measure(self, row: Row) -> Measured:
        """Turns of both, more of them when it is asked again."""
        turns = self._turns.setdefault(row, {BEFORE: [], AFTER: []})
        calls = max(2, min(MOST_CALLS, int(TURN_US / max(self._turn(row, version, 2) for version in turns))))
        for number in range(self._turns_at_once):
            for version in (BEFORE, AFTER) if number % 2 == 0 else (AFTER, BEFORE):
                turns[version].append(self._turn(row, version, calls))
        before_us, after_us = (statistics.median(turns[version]) for version in (BEFORE, AFTER))
        return Measured(row.bench, row.text, row.ranks, before_us, after_us, len(turns[BEFORE]))

    def _turn(self, row: Row, version: str, calls: int) -> float:
        """The median of its calls; those that another program interrupted count only where there are no others."""
        found = self._programs[version, row.program].turn(row.task.format(calls=calls))
        alone: list[Call] = [call for call in found if not call.is_interrupted] or found
        return statistics.median(call.us for call in alone)


def build(commit: str) -> Path:
    """The tree of a commit with its library and its programs of ranks."""
    tree = unpacked(commit)
    print(f"== building {tree.relative_to(ROOT)}", flush=True)
    quiet = subprocess.DEVNULL
    subprocess.run(["cmake", "--preset", "release", "-DSHARDWAY_BENCH=ON"], cwd=tree, check=True, stdout=quiet)
    for target in ("all", "bench_ranks"):
        subprocess.run(["cmake", "--build", "build/release", "--target", target], cwd=tree, check=True, stdout=quiet)
    return tree


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("before", __doc__, HELP)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--bench", nargs="+", choices=BENCHES, default=BENCHES, help="which rows (default: all)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of ranks (default: 2 4)")
    parser.add_argument("--only", nargs="+", default=[""], help="rows whose text has one of these in it")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"of each row and commit (default: {TURNS})")
    parser.add_argument("--quick", action="store_true", help="few sizes: some minutes, rough figures")
    options = parser.parse_args(arguments)

    roots = {BEFORE: build(options.commit), AFTER: ROOT}
    began = time.monotonic()
    measured: list[Measured] = []
    for ranks in options.ranks:
        rows = rows_of(options.bench, ranks, options.quick)
        rows = [row for row in rows if any(text in row.text for text in options.only)]
        print(f"\n{ranks} ranks on {len(os.sched_getaffinity(0))} cores, {len(rows)} rows: times faster than before")
        with programs(roots, rows, ranks) as found:
            measured += _measure(Contest(found, options.turns), rows)
    print("\nGeometric means")
    for bench in dict.fromkeys(row.bench for row in measured):
        ratios = [row.ratio for row in measured if row.bench == bench]
        print(f"  {bench:13} {geometric_mean(ratios):.3f} of {len(ratios)} rows, least {min(ratios):.3f}")
    claims = _claims(measured)
    fields = {"before_us, after_us": "median of the medians of turns"}
    path = write_json(options.output / "before.json", measured, claims, fields, commit=roots[BEFORE].name)
    print(f"\n{path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _measure(contest: Contest, rows: Sequence[Row]) -> list[Measured]:
    progress = Progress(len(rows))
    found: dict[Row, Measured] = {}
    for row in rows:
        progress.starting(row.text)
        found[row] = contest.measure(row)
        progress.finished(_line(found[row]))
    for _ in range(AGAIN):
        for row in [row for row in rows if found[row].ratio < LEAST_RATIO]:
            found[row] = contest.measure(row)
            print(f"  again {_line(found[row])}", flush=True)
    return list(found.values())


def _line(row: Measured) -> str:
    return f"{row.bench:12} {row.text:58} {us_text(row.before_us):>9} {us_text(row.after_us):>9} {row.ratio:6.2f}"


def _claims(measured: Sequence[Measured]) -> list[Claim]:
    slower = [row for row in measured if row.ratio < LEAST_RATIO]
    named = "; ".join(f"{row.text}, {row.ranks} ranks {row.ratio:.2f}" for row in slower[:10])
    text = f"every row at least {LEAST_RATIO:g} of before"
    return [Claim(text, f"{len(slower)} of {len(measured)} are not{': ' if slower else ''}{named}", not slower)]


if __name__ == "__main__":
    sys.exit(main())
