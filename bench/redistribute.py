"""How fast a tensor goes from one sharding to another: shardway in shared memory and on gloo, DTensor on gloo."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import torch

import shardway as sw
from bench import redistribute_plot
from bench.forked_ranks import run_ranks
from bench.options import parser_of
from bench.peak_memory import available_bytes, peak_above_start_bytes
from bench.redistribute_claims import MIB, SHAPES, Peak, claims_of
from bench.redistribute_contenders import (
    COPY,
    ON_GLOO,
    OURS,
    PEER,
    SHARED,
    Case,
    Groups,
    Op,
    contenders,
    ops_on,
)
from bench.report import Progress, Row, bytes_text, print_claims, print_table, us_text, write_json
from bench.timing import BUSY_CORES, OUTPUTS_ALIVE, Contender, Effort, Meeting, Timing, undisturbed

MEMORY_FROM_BYTES = 16 * MIB
SWAPPED = ("S0,S1→S1,S0", (2, 2), (sw.Shard(0), sw.Shard(1)), (sw.Shard(1), sw.Shard(0)))
TURNED = ("S0,S0,S0→S1,S1,S1", (2, 2, 2), (sw.Shard(0),) * 3, (sw.Shard(1),) * 3)
FIELDS = {
    "shape": "of the whole tensor, f32",
    "bytes": "of the result on rank 0",
    "us": "median of the samples, from the first rank's start to the last rank's end",
    "spread": "third quartile minus first, as a share of the median",
}

HELP = f"""
A tensor of f32 lies on a mesh of ranks and is to lie otherwise: Shard, Replicate, Partial, ragged. Contenders:

  {OURS:18} sw.redistribute, through shared memory; for S0→S1 also with inputs in shared memory (sw.empty)
  {ON_GLOO:18} the same with SHARDWAY_TRANSPORT=c10d
  {PEER:18} torch's DTensor.redistribute
  {COPY:18} one local copy of the result's bytes into warm memory: the floor

They take turns of some calls in one run, inputs rewritten before each call, every call with a fresh output while the
last {OUTPUTS_ALIVE} stay alive. A call lasts from the first rank's start to the last rank's end; figures are medians.
Ranks are pinned to a core each and scheduled as SCHED_BATCH (bench/forked_ranks.py says why). Results are checked
against a dense reference. A row is measured again when other programs were busy meanwhile.
Peak memory is what a call adds to the process's resident memory at its highest, the result included.

Leaves build/bench/redistribute.json and build/bench/redistribute.png. Exits 1 when a claim is missed.
"""


@dataclass
class Findings:
    rows: list[Row]
    peaks: list[Peak]
    left_out: list[str]
    disturbed: list[str]

    def add(self, other: Findings) -> None:
        self.rows += other.rows
        self.peaks += other.peaks
        self.left_out += other.left_out
        self.disturbed += other.disturbed


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("redistribute", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="2 ranks and few samples: about a minute, rough figures")
    parser.add_argument("--ranks", type=int, nargs="+", help="numbers of ranks (default: 2 4, quick 2)")
    parser.add_argument("--seconds", type=float, help="time for one row (default: 1.5, quick 0.3; at least 5 rounds)")
    parser.add_argument("--most-rows", type=int, default=SHAPES[-1][0], help="leave taller tensors out")
    options = parser.parse_args(arguments)

    all_ranks = options.ranks or ([2] if options.quick else [2, 4])
    shapes = [shape for shape in SHAPES if shape[0] <= options.most_rows]
    effort = Effort(seconds=options.seconds or (0.3 if options.quick else 1.5))
    torch.set_num_threads(1)
    print(f"From one sharding to another, one host, ranks {all_ranks}, {len(shapes)} sizes of f32.")

    began = time.monotonic()
    findings = Findings([], [], [], [])
    for ranks in all_ranks:
        print(f"\n{ranks} ranks")
        findings.add(run_ranks(ranks, _measure, Meeting(ranks), shapes, effort, timeout_s=3600.0)[0])
    on_meshes: list[Peak] = []
    for what in (SWAPPED, TURNED):
        ranks = sw.Mesh(what[1]).size()
        on_meshes += run_ranks(ranks, _measure_memory, Meeting(ranks), what, timeout_s=300.0)[0]
    findings.peaks += on_meshes

    _print_tables(findings)
    claims = claims_of(findings.rows, on_meshes)
    json_path = write_json(
        options.output / "redistribute.json",
        findings.rows,
        claims,
        FIELDS,
        peaks=[asdict(peak) for peak in findings.peaks],
        left_out=findings.left_out,
        disturbed=findings.disturbed,
    )
    plot_path = redistribute_plot.draw(findings.rows, json_path.with_suffix(".png"))
    print(f"\n{json_path}\n{plot_path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _measure(rank: int, ranks: int, meeting: Meeting, shapes: list[tuple[int, int]], effort: Effort) -> Findings:
    findings = Findings([], [], [], [])
    groups = Groups.make(ranks)
    ops = ops_on(ranks)
    progress = Progress(len(shapes) * len(ops))
    for shape in shapes:
        for op in ops:
            case = Case(op, rank, ranks, shape)
            what = f"{shape[0]}x{shape[1]} {op.name:12}"
            need = ranks * _need_bytes(case)
            if not meeting.agree(rank, need < available_bytes()):
                findings.left_out.append(f"{ranks} ranks, {what}: needs {bytes_text(need)} of memory")
                continue
            if rank == 0:
                progress.starting(what)
            found = contenders(case, groups)
            timings, busy = undisturbed(meeting, rank, found, effort)
            findings.rows += [_row(case, name, timing) for name, timing in timings.items()]
            if rank == 0:
                progress.finished(f"{what} {_summary(timings)}")
                if busy > BUSY_CORES:
                    findings.disturbed.append(f"{ranks} ranks, {what}: others kept {busy:.1f} cores busy")
            if max(meeting.gather(rank, case.result_bytes)) >= MEMORY_FROM_BYTES:
                findings.peaks += list(_peaks(meeting, rank, case, found))
    return findings


def _need_bytes(case: Case) -> int:
    """What a rank may have at once: the outputs that contenders keep, inputs, temporaries of the whole tensor."""
    whole = case.shape[0] * case.shape[1] * 4
    return (4 * OUTPUTS_ALIVE + 2) * case.result_bytes + 2 * case.input_bytes + 3 * whole


def _row(case: Case, name: str, timing: Timing) -> Row:
    size = case.result_bytes
    return Row(
        case.op.name, name, case.ranks, case.shape, size, round(timing.us, 2), round(timing.spread, 3), timing.samples
    )


def _summary(timings: Mapping[str, Timing]) -> str:
    parts = [f"{name} {us_text(timing.us)} ±{timing.spread / 2:.0%}" for name, timing in timings.items()]
    faster = f"{timings[PEER].us / timings[OURS].us:5.1f}x" if PEER in timings else "      "
    return f"{faster}   " + ", ".join(parts)


def _peaks(meeting: Meeting, rank: int, case: Case, found: list[Contender]) -> Iterator[Peak]:
    for contender in found:
        if contender.name not in (COPY, SHARED):
            peak = _peak_bytes(meeting, rank, contender)
            largest = max(meeting.gather(rank, case.result_bytes))
            yield Peak(case.op.name, contender.name, case.ranks, case.shape, largest, peak)


def _peak_bytes(meeting: Meeting, rank: int, contender: Contender) -> int:
    """Of the rank where it is most."""
    contender.rewrite()
    sw.empty_cache()  # else the result takes a block that is resident already, and the call seems to need nothing
    meeting.meet(rank)
    return max(meeting.gather(rank, peak_above_start_bytes(contender.call)))


def _measure_memory(
    rank: int,
    ranks: int,
    meeting: Meeting,
    what: tuple[str, tuple[int, ...], tuple[sw.Placement, ...], tuple[sw.Placement, ...]],
) -> list[Peak]:
    """Of one call of ours on each transport, on a mesh of several dims."""
    name, mesh, before, after = what
    op = Op(name, before, after)
    shape = (4096, 4096)
    layout = sw.Layout(shape, torch.float32, sw.Mesh(mesh), before)
    local = torch.zeros(layout.box(rank)[1])
    groups = Groups.make(ranks)
    peaks = []
    for contender, group in ((OURS, groups.shared), (ON_GLOO, groups.gloo)):
        t = sw.MeshTensor(local, layout, group)
        call = Contender(contender, lambda: None, lambda t=t: sw.redistribute(t, op.after))
        call.call()  # makes what is made once: plans, rings, mappings
        peak = _peak_bytes(meeting, rank, call)
        peaks.append(Peak(name, contender, ranks, shape, local.numel() * 4, peak))
    return peaks


def _print_tables(findings: Findings) -> None:
    us = {(row.ranks, row.shape, row.op, row.contender): row.us for row in findings.rows}
    for ranks in sorted({row.ranks for row in findings.rows}):
        names = [OURS, SHARED, ON_GLOO, PEER, COPY]
        print(f"\n{ranks} ranks: time of a call, and how many times faster than {PEER}")
        lines = []
        for shape in sorted({row.shape for row in findings.rows}):
            for op in ops_on(ranks):
                at = {name: us.get((ranks, shape, op.name, name)) for name in names}
                lines.append([f"{shape[0]}x{shape[1]} {op.name}", *_cells(at)])
        print_table(["", *names, "faster", "faster on gloo"], lines)
    if findings.peaks:
        print("\nPeak memory of a call above its input")
        lines = [
            [
                f"{p.op} {p.contender}",
                str(p.ranks),
                bytes_text(p.result_bytes),
                f"{p.peak_bytes >> 20} MiB",
                f"{p.ratio:.2f}",
            ]
            for p in findings.peaks
        ]
        print_table(["", "ranks", "result", "peak", "peak / result"], lines)
    for line in findings.left_out:
        print(f"Left out: {line}")
    for line in findings.disturbed:
        print(f"Disturbed: {line}")


def _cells(us: Mapping[str, float | None]) -> list[str]:
    times = ["-" if value is None else us_text(value) for value in us.values()]
    theirs = us[PEER]
    faster = [
        "-" if theirs is None or (mine := us[name]) is None else f"{theirs / mine:.1f}" for name in (OURS, ON_GLOO)
    ]
    return times + faster


if __name__ == "__main__":
    sys.exit(main())
