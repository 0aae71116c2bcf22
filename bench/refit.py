"""A model moves from the ranks of a trainer to those of a generator: over a link, and in the ways that people use."""

from __future__ import annotations

import argparse
import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from bench import refit_contenders as ways
from bench.forked_ranks import on_gloo, run_ranks
from bench.options import parser_of
from bench.refit_claims import claims_of, not_measured
from bench.refit_contenders import Way
from bench.refit_files import TMPFS, folder_in_memory, through_files
from bench.refit_gloo import Groups, gathered, in_buckets, messages
from bench.refit_models import DENSE, EXPERTS, MIB, SMALL, Sides, model_of
from bench.refit_rows import FIELDS, RefitRow
from bench.report import Progress, bytes_text, print_claims, print_table, us_text, write_json
from bench.timing import Meeting, Timing

HELP = f"""
Models, scaled to fit: Llama-3-8B, sharded by rows on the trainers (FSDP), and Qwen3-30B-A3B, whose experts lie whole on
one trainer each (expert parallelism). The generators are tensor parallel and have q, k and v in one matrix, gate and up
in one, and experts in stacks. And 500 tensors of 1 KiB. Contenders:

  {ways.FIRST}
      connect, publish and subscribe, compare, plan, and move one version
  {ways.OURS}
      send and receive on a link that has moved versions before; sources in ordinary memory
  {ways.SHARED}
      the same, with sources made by sw.empty
  {ways.HOLDS}
      how long send(wait=False) takes
  {ways.GATHERED}
      whole on the first trainer, then to all generators, a tensor after the other
  {ways.BUCKETS}
      the same with tensors packed into buckets of 512 MiB
  {ways.MESSAGES}
      isend and irecv of what each generator needs, a tensor after the other
  {ways.CHECKPOINT}
      torch.distributed.checkpoint: the trainers save to {TMPFS}, the generators load
  {ways.SAFETENSORS}
      the same with safetensors, where it is installed: a file per trainer, slices of which are read
  {ways.COPY}
      all generators copy what they are to have: the floor
  {ways.TRAINER_COPY}
      all trainers copy what they have

The small tensors go by ours, in buckets and by copies alone. Sources are rewritten before each call. Contenders take
turns. A call lasts from the first rank's start to the last rank's end; figures are medians. Results are checked. Bytes
are what ranks receive from others by the calls that are made, beside the least that must be.
{ways.LEFT_OUT}
Leaves build/bench/refit.json and refit.png. Exits 1 when a claim is missed.
"""

WARM_UPS = 2
SHORT_US, LONG_US = 2e4, 1e6  # a short call is repeated in a turn; a long one needs no second warm-up
REPEATS = 10


@dataclass(frozen=True)
class Task:
    kind: str
    mib: int
    rounds: int
    trainers: int
    generators: int
    seconds: float
    links_alone: bool = False


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("refit", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="models of 1 MiB, two rounds: rough figures in seconds")
    parser.add_argument("--ranks", nargs="+", default=["2+2"], help="trainers + generators, such as 4+4 (default: 2+2)")
    parser.add_argument("--mib", type=int, default=300, help="of each model (default: 300)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: 7)")
    parser.add_argument("--models", nargs="+", default=[DENSE, EXPERTS, SMALL], choices=[DENSE, EXPERTS, SMALL])
    parser.add_argument("--seconds", type=float, default=120.0, help="for the rounds of one model (default: 120)")
    parser.add_argument("--links", action="store_true", help="links and plain copies alone: no gloo, no files")
    parser.add_argument("--json", action="store_true", help="print the JSON file as well")
    options = parser.parse_args(arguments)
    mib, rounds = (1, 2) if options.quick else (options.mib, options.rounds)
    torch.set_num_threads(1)
    began = time.monotonic()
    rows: list[RefitRow] = []
    for text in options.ranks:
        trainers, generators = _jobs(parser, text)
        for kind in options.models:
            task = Task(kind, mib, rounds, trainers, generators, options.seconds, options.links)
            rows += _measured(task)
    claims = claims_of(rows)
    path = write_json(options.output / "refit.json", rows, claims, FIELDS, not_measured=not_measured(rows))
    print(f"\n{path}\n{_plotted(rows, options.output / 'refit.png')}\n{time.monotonic() - began:.0f} s")
    if options.json:
        print(path.read_text())
    status = print_claims(claims)
    for line in not_measured(rows):
        print(f"  not measured  {line}")
    return status


def _jobs(parser: argparse.ArgumentParser, text: str) -> tuple[int, int]:
    trainers, plus, generators = text.partition("+")
    if not (plus and trainers.isdecimal() and generators.isdecimal() and int(trainers) > 0 < int(generators)):
        parser.error(f"--ranks: {text} is not trainers + generators, such as 2+2")
    return int(trainers), int(generators)


def _measured(task: Task) -> list[RefitRow]:
    ranks = task.trainers + task.generators
    model = model_of(task.kind, task.mib, task.trainers, task.generators)
    size = f"{model.bytes / MIB:.1f} MiB in {len(model.shapes)} tensors"
    print(f"\n{model.name}: {size}, {task.trainers} trainers and {task.generators} generators", flush=True)
    first = ways.places(1 + task.rounds)
    with folder_in_memory() as folder:
        found = run_ranks(
            ranks, _measure, task, Meeting(ranks), ways.places(3), first, folder, timeout_s=1800.0, enter=_later
        )
    _print(found[0])
    return list(found[0])


_meet_on_gloo = functools.partial(on_gloo)


def _later(rank: int, size: int, *, store: Path, timeout_s: float) -> None:
    """A link numbers ranks by role. What is published is made before there is a group that numbers them otherwise."""
    global _meet_on_gloo
    _meet_on_gloo = functools.partial(on_gloo, rank, size, store=store, timeout_s=timeout_s)


def _measure(
    rank: int, ranks: int, task: Task, meeting: Meeting, addresses: list[str], first: list[str], folder: Path | None
) -> list[RefitRow]:
    sides = Sides(model_of(task.kind, task.mib, task.trainers, task.generators), task.trainers, task.generators, rank)
    contenders = [*ways.copies(sides), *ways.ours(sides, addresses, first)]
    if not task.links_alone:
        contenders += _others(task, sides, folder)
    return _timed(rank, task, meeting, sides, contenders)


def _others(task: Task, sides: Sides, folder: Path | None) -> list[Way]:
    _meet_on_gloo()
    groups = Groups(task.trainers, task.generators)
    if task.kind == SMALL:
        return [in_buckets(sides, groups)]
    files = through_files(sides, groups, folder) if folder else []
    return [in_buckets(sides, groups), gathered(sides, groups), messages(sides), *files]


def _timed(rank: int, task: Task, meeting: Meeting, sides: Sides, contenders: list[Way]) -> list[RefitRow]:
    progress = Progress(len(contenders)) if rank == 0 else None
    samples: dict[str, list[float]] = {way.name: [] for way in contenders}
    repeats = {way.name: _warmed_up(rank, meeting, sides, way) for way in contenders}
    began = time.perf_counter()
    for done in range(task.rounds):
        if meeting.agree(rank, done >= 2 and time.perf_counter() - began > task.seconds):
            break
        for way in contenders[done % len(contenders) :] + contenders[: done % len(contenders)]:
            turn = [_call_us(rank, meeting, sides, way) for _ in range(repeats[way.name])]
            samples[way.name] += turn[1:] or turn  # the first of many finds the caches as another contender left them
    rows = []
    for way in contenders:
        timing = Timing.of(samples[way.name])
        rows.append(
            RefitRow(
                task.kind, way.name, task.trainers, task.generators, sides.model.bytes, len(sides.model.shapes),
                timing.us, timing.spread, timing.samples, way.sent, sides.received_bytes, os.cpu_count() or 1,
            )
        )  # fmt: skip
        if progress is not None:
            progress.finished(f"{way.name}: {us_text(timing.us)}")
    return rows


def _warmed_up(rank: int, meeting: Meeting, sides: Sides, way: Way) -> int:
    """How often a turn makes the call; the destinations are poisoned before the first and checked after it."""
    if way.delivers:
        sides.poison()
    us = _call_us(rank, meeting, sides, way)
    if way.delivers and sides.generator is not None:
        sides.check(way.name)
    if way.name == ways.FIRST:
        return 1
    if us < LONG_US:
        us = min(_call_us(rank, meeting, sides, way) for _ in range(WARM_UPS))
    return REPEATS if us < SHORT_US else 1


def _call_us(rank: int, meeting: Meeting, sides: Sides, way: Way) -> float:
    sides.rewrite()
    us, _ = meeting.time_us(rank, way.call)
    way.after()
    meeting.meet(rank)
    return us


def _print(rows: list[RefitRow]) -> None:
    copy = next(row.us for row in rows if row.contender == ways.COPY)
    print()
    lines = [
        [row.contender, us_text(row.us), f"{row.us / copy:.2f}", f"{row.spread:.0%}", _sent_text(row)] for row in rows
    ]
    print_table(["", "median", "times the copy", "spread", "bytes, as times the least"], lines)


def _sent_text(row: RefitRow) -> str:
    return f"{row.sent / row.least:.2f} of {bytes_text(round(row.least / MIB, 1) * MIB)}" if row.sent else "-"


def _plotted(rows: list[RefitRow], path: Path) -> str:
    try:
        from bench.refit_plot import draw
    except ImportError as error:
        return f"no plot: {error}"
    return str(draw(rows, path))


if __name__ == "__main__":
    raise SystemExit(main())
