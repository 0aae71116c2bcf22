"""Every call × every fault × every moment × every kind of group: what each rank sees, and after how long.

    make faults                                                    the whole, within an hour
    make faults FAULTS="--sample pairwise"                         a part in which every two values meet, minutes
    python -m tests.faults --only killed,gloo                      cells that have all of these words
    python -m tests.faults --only fault:backward,moment:large      the same, with the axis of a word
    python -m tests.faults --cell "all_gather_v/memory/large/killed"   one cell, with what every rank did
    python -m tests.faults --list                                  the axes, and the cells that would run

A cell is call/group/moment/fault. Three ranks run it, and rank 1 is the faulty one. tests/faults/expectations.py has
the rules. Each cell is checked for what every rank raised and when; for inputs, destinations and the bytes beside them;
for the group's next call, its end and a new group; and for what is left: files, descriptors, mappings, threads,
processes. Exit code 1 if one cell is not as expected, 2 for a mistake in the call.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

import torch

# Loaded once here and not in every rank: autograd and DTensor load these at first use.
import torch._dynamo
import torch._inductor.lowering
import torch.fx.experimental.symbolic_shapes

from tests.faults import report
from tests.faults.axes import FAULTS, GROUPS, KINDS, MOMENTS, Cell, all_cells, why_not
from tests.faults.catalogue import TRAITS
from tests.faults.checks import judge
from tests.faults.crews import run_cells
from tests.faults.leftovers import names_in_shared_memory
from tests.faults.sample import pairwise

DEFAULT_JSON = Path("build/faults/matrix.json")


def main() -> int:
    torch.set_num_threads(1)  # ranks are forked from this process: it must have no threads
    parser = _parser()
    options = parser.parse_args()
    reasons: Counter[str] = Counter()
    cells = _chosen(parser, options, reasons)
    if options.list:
        _list(cells, reasons)
        return 0
    return _run(cells, reasons, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="WORDS", help="cells with all of these words, divided by commas")
    parser.add_argument(
        "--cell", action="append", default=[], metavar="NAME", help="one cell; may be given several times"
    )
    parser.add_argument("--sample", choices=("pairwise",), help="a part in which every two values of two axes meet")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="each cell so often")
    parser.add_argument("--minutes", type=float, default=60.0, help="give up after these (default: 60)")
    parser.add_argument("--jobs", type=int, default=3, help="cells at once (default: 3; most of them wait)")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON, metavar="FILE", help=f"default: {DEFAULT_JSON}")
    parser.add_argument("--list", action="store_true", help="list the axes and the cells")
    return parser


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace, reasons: Counter[str]) -> list[Cell]:
    if options.cell:
        for name in options.cell:
            _check_name(parser, name)
        return [Cell.of(name) for name in options.cell for _ in range(options.times)]
    words = [word for word in options.only.split(",") if word]
    cells = [cell for cell in all_cells(TRAITS, reasons) if set(words) <= _words(cell)]
    if not cells:
        parser.error(f"no cell has the words {', '.join(words)}; --list shows them")
    if options.sample:
        cells = pairwise(cells)
    cells = cells * options.times
    random.Random(0).shuffle(cells)  # so that cells that wait and cells that work run side by side
    return cells


def _words(cell: Cell) -> set[str]:
    """By which --only finds the cell: values of axes, and with their axis where another has the same."""
    kind = TRAITS[cell.call].kind
    axes = {"call": cell.call, "group": cell.group, "moment": cell.moment, "fault": cell.fault, "kind": kind}
    return {*axes.values(), *(f"{axis}:{value}" for axis, value in axes.items()), *cell.call.split()}


def _check_name(parser: argparse.ArgumentParser, name: str) -> None:
    try:
        cell = Cell.of(name)
    except ValueError as error:
        parser.error(str(error))
    for word, axis in ((cell.call, TRAITS), (cell.group, GROUPS), (cell.moment, MOMENTS), (cell.fault, FAULTS)):
        if word not in axis:
            parser.error(f"{word!r} in {name!r} is none of {', '.join(axis)}")
    reason = why_not(cell, TRAITS[cell.call])
    if reason:
        parser.error(f"{name!r} is left out: {reason}")


def _list(cells: list[Cell], reasons: Counter[str]) -> None:
    for title, axis in (("kinds", KINDS), ("moments", MOMENTS), ("faults", FAULTS)):
        print(f"{title}:")
        print("\n".join(f"  {name:12} {what}" for name, what in axis.items()))
    print("groups:")
    print("\n".join(f"  {name:12} {what}" for name, (_, _, what) in GROUPS.items()))
    print("calls:\n" + "\n".join(f"  {name:28} {KINDS[traits.kind]}" for name, traits in TRAITS.items()))
    print("cells:\n" + "\n".join(f"  {name}" for name in sorted(cell.name for cell in cells)))
    print(f"{len(cells)} cells; {report.left_out(reasons)}")


def _run(cells: list[Cell], reasons: Counter[str], options: argparse.Namespace) -> int:
    start = time.monotonic()
    before = names_in_shared_memory()
    results: list[report.Result] = []
    ran_out = False
    print(f"{len(cells)} cells of three ranks, {options.jobs} at once", flush=True)
    for record in run_cells(cells, options.jobs):
        cell = Cell.of(record.cell)
        results.append((record, judge(cell, TRAITS[cell.call], record)))
        _show_progress(results, len(cells), time.monotonic() - start)
        if time.monotonic() - start > 60 * options.minutes:
            ran_out = len(results) < len(cells)
            break
    wall_s = time.monotonic() - start
    results.sort(key=lambda result: result[1].cell)
    report.write_json(options.json, results, reasons, wall_s)
    if options.cell:
        print("\n".join(f"{r.cell}\n" + "\n".join(f"  rank {s.rank}: {s}" for s in r.ranks) for r, _ in results))
    print(report.findings(results))
    print(f"\n{report.table(results)}")
    if not options.cell:
        print(f"\n{report.left_out(reasons)}")
    new = sorted(names_in_shared_memory() - before)
    bad = sum(not verdict.is_as_expected for _, verdict in results)
    print(f"\n{report.claims(results)}")
    print(
        f"{len(results)} cells, {len(results) - bad} as expected, {bad} not; {wall_s / 60:.1f} minutes; {options.json}"
    )
    if ran_out:
        print(f"out of time: {len(cells) - len(results)} cells were not tried")
    if new:
        print(f"left in /dev/shm: {', '.join(new)}")
    return 1 if bad or ran_out or new else 0


def _show_progress(results: list[report.Result], total: int, elapsed_s: float) -> None:
    done, bad = len(results), sum(not verdict.is_as_expected for _, verdict in results)
    if sys.stdout.isatty():
        left = elapsed_s / done * (total - done)
        print(f"\r{done}/{total} cells, {bad} not as expected, {left / 60:.1f} minutes left ", end="", flush=True)
    elif done % 100 == 0:
        print(f"{done}/{total} cells, {bad} not as expected, {elapsed_s / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    sys.exit(main())
