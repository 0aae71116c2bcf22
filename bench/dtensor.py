"""What DTensor gains inside sw.use_for_dtensor(), on gloo and on the backend "shardway"."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

import torch

import shardway as sw
from bench.dtensor_contenders import (
    AT_ONCE,
    BLOCK_GLOO,
    BLOCK_OURS,
    FULL,
    ONE_BY_ONE,
    PAIRS,
    PARAMETER,
    PLAIN_GLOO,
    PLAIN_OURS,
    STEP,
    Meshes,
    four_ways,
    full_tensors,
    many,
    redistribution,
    training_step,
)
from bench.forked_ranks import run_ranks
from bench.options import parser_of
from bench.report import Claim, Progress, Row, print_claims, print_table, us_text, write_json
from bench.timing import BUSY_CORES, Contender, Effort, Meeting, undisturbed

SHAPES = [(64, 64), (1024, 1024)]
SMALL, LARGE = (16, 16), (512, 512)  # f32: 1 KiB and 1 MiB
SIZE_NAMES = {SMALL: "1 KiB", LARGE: "1 MiB"}
TIMES_FASTER, TIMES_AT_ONCE, MOST_HOST_US = 3.0, 5.0, 60.0
HOST_CALLS = 2000
FIELDS = {
    "shape": "of the whole tensor, f32",
    "bytes": "of the whole tensor",
    "us": "median of the samples, from the first rank's start to the last rank's end",
    "spread": "third quartile minus first, as a share of the median",
}

HELP = f"""
The same calls of DTensor four ways: {PLAIN_GLOO}, {BLOCK_GLOO}, {PLAIN_OURS}, {BLOCK_OURS};
and a hundred tensors one by one and in one sw.redistribute. They take turns of some calls in one run;
a call lasts from the first rank's start to the last rank's end; the figure is the median. Ranks are pinned to a core
each and scheduled as SCHED_BATCH (bench/forked_ranks.py says why). Results are compared once per row. Host time is what
a redistribute of 64x64 in shared memory takes inside shardway, one call after the other, its communication included.

Leaves build/bench/dtensor.json. Exits 1 when a claim is missed.
"""

Timings = dict[tuple[str, tuple[int, int]], dict[str, float]]


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("dtensor", __doc__, HELP)
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (default: 2)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time for one row (at least 5 rounds)")
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    print(f"DTensor as it is and in the block, one host, {options.ranks} ranks.")
    began = time.monotonic()
    effort = Effort(seconds=options.seconds)
    rows, notes, host_us = run_ranks(options.ranks, _measure, Meeting(options.ranks), effort, timeout_s=3600.0)[0]

    us: Timings = {}
    for row in rows:
        us.setdefault((row.op, row.shape), {})[row.contender] = row.us
    _print_tables(us)
    for note in notes:
        print(f"Disturbed: {note}")
    claims = _claims(us, host_us)
    path = write_json(options.output / "dtensor.json", rows, claims, FIELDS, host_us=host_us, disturbed=notes)
    print(f"\n{path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _measure(rank: int, ranks: int, meeting: Meeting, effort: Effort) -> tuple[list[Row], list[str], float]:
    meshes = Meshes.make()
    cases: list[tuple[str, tuple[int, int], list[Contender]]] = [
        (name, shape, four_ways(redistribution(before, after, shape), meshes))
        for shape in SHAPES
        for name, (before, after) in PAIRS.items()
    ]
    cases.append((FULL, PARAMETER, four_ways(full_tensors, meshes)))
    cases.append((STEP, PARAMETER, four_ways(training_step, meshes)))
    cases += [(f"100 of {SIZE_NAMES[shape]}", shape, many(shape, meshes)) for shape in (SMALL, LARGE)]

    rows, notes = [], []
    progress = Progress(len(cases))
    for name, shape, contenders in cases:
        if rank == 0:
            progress.starting(name)
        timings, busy = undisturbed(meeting, rank, contenders, effort)
        bytes_ = shape[0] * shape[1] * 4
        rows += [Row(name, who, ranks, shape, bytes_, t.us, t.spread, t.samples) for who, t in timings.items()]
        if rank == 0:
            progress.finished(f"{name:20} " + ", ".join(f"{who} {us_text(t.us)}" for who, t in timings.items()))
            if busy > BUSY_CORES:
                notes.append(f"{name}: others kept {busy:.1f} cores busy")
    return rows, notes, _host_us(meshes)


def _host_us(meshes: Meshes) -> float:
    """Of what runs in place of torch's own redistribute."""
    from shardway._dtensor_engine import _redistribute_local_tensor

    t = torch.ones(SHAPES[0])
    sharded = torch.distributed.tensor.distribute_tensor(t, meshes.ours, [PAIRS["S0→S1"][0]], src_data_rank=None)
    target = sharded.redistribute(meshes.ours, [PAIRS["S0→S1"][1]])._spec
    with sw.use_for_dtensor():
        for _ in range(HOST_CALLS // 10):
            _redistribute_local_tensor(sharded._local_tensor, sharded._spec, target)
        began = time.perf_counter()
        for _ in range(HOST_CALLS):
            _redistribute_local_tensor(sharded._local_tensor, sharded._spec, target)
        return (time.perf_counter() - began) / HOST_CALLS * 1e6


def _print_tables(us: Timings) -> None:
    names = [PLAIN_GLOO, BLOCK_GLOO, PLAIN_OURS, BLOCK_OURS]
    print()
    print_table(
        ["", *names],
        [
            [f"{op} {shape[0]}x{shape[1]}", *(us_text(found[name]) for name in names)]
            for (op, shape), found in us.items()
            if PLAIN_GLOO in found
        ],
    )
    lists = {key: found for key, found in us.items() if PLAIN_GLOO not in found}
    names = list(next(iter(lists.values())))
    print()
    print_table(["", *names], [[op, *(us_text(t[name]) for name in names)] for (op, _), t in lists.items()])


def _claims(us: Timings, host_us: float) -> list[Claim]:
    moves = {key: found for key, found in us.items() if PLAIN_GLOO in found and key[0] != STEP}
    at_once = us["100 of 1 KiB", SMALL]
    claims = [
        _least(1.0, moves, PLAIN_GLOO, BLOCK_GLOO, "redistribute and full_tensor in the block, on gloo: never slower"),
        _least(1.0, moves, PLAIN_OURS, BLOCK_OURS, "the same on shardway: never slower"),
        _least(TIMES_FASTER, moves, PLAIN_GLOO, BLOCK_OURS, f"on shardway: {TIMES_FASTER:g} times DTensor on gloo"),
        Claim(
            f"a redistribute takes less than {MOST_HOST_US:g} µs of the host", us_text(host_us), host_us < MOST_HOST_US
        ),
    ]
    for where in ("gloo", "shardway"):
        times = at_once[f"{ONE_BY_ONE}, {where}"] / at_once[f"{AT_ONCE}, {where}"]
        text = f"100 tensors of 1 KiB at once, on {where}: {TIMES_AT_ONCE:g} times faster than one by one"
        claims.append(Claim(text, f"{times:.1f} times", times >= TIMES_AT_ONCE))
    return claims


def _least(
    wanted: float, cases: Mapping[tuple[str, tuple[int, int]], Mapping[str, float]], slower: str, faster: str, text: str
) -> Claim:
    times = {key: found[slower] / found[faster] for key, found in cases.items()}
    key = min(times, key=lambda k: times[k])
    op, shape = key
    return Claim(text, f"{times[key]:.2f} times at {op} of {shape[0]}x{shape[1]}", times[key] >= wanted)


if __name__ == "__main__":
    sys.exit(main())
