"""How fast a ragged gather is on gloo: shardway against the distributed.py that people copy, and plain isend/irecv."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

import shardway as sw
from bench import ragged_plot
from bench.forked_ranks import run_ranks
from bench.options import parser_of
from bench.peak_memory import available_bytes, peak_above_start_bytes
from bench.ragged_contenders import COPY, FLOAT_BYTES, OPS, OURS, PEER, POINT_TO_POINT, Batch, Op, contenders
from bench.report import (
    Claim,
    Progress,
    Row,
    bytes_text,
    geometric_mean,
    not_measured,
    print_claims,
    print_table,
    us_text,
    write_json,
)
from bench.timing import BUSY_CORES, OUTPUTS_ALIVE, Contender, Effort, Meeting, Timing, undisturbed

KIB, MIB = 2**10, 2**20
MEMORY_FROM_BYTES = 16 * MIB
TIMES_EVERYWHERE, TIMES_IN_THE_MEAN, PEAK_LIMIT = 2.0, 4.0, 1.15

HELP = f"""
Every rank holds another number of rows (1:3:5:... around the mean) and wants the rows of all ranks. Contenders:

  {OURS:16} sw.all_gather_v: exact sizes, straight into the result
  {PEER:16} exchange sizes, pad to the longest, all_gather, concatenate, mask the padding out
  {POINT_TO_POINT:16} torch's own sends and receives into views of the result; needs the sizes; no gradient
  {COPY:16} one local copy of the result's bytes into warm memory: the floor

They take turns of some calls in one run, inputs rewritten before each call, every call with a fresh output while the
last {OUTPUTS_ALIVE} stay alive. A call lasts from the first rank's start to the last rank's end; figures are medians.
forward+backward compares grad="local" with the kind of distributed.py that keeps its own slice, and grad="sum" with the
kind that all_reduces.
Ranks are pinned to a core each and scheduled as SCHED_BATCH, where gloo is fastest and steadiest (bench/forked_ranks.py
says why). Results are checked against a dense reference at every size. A row is measured again
when other programs were busy meanwhile.
Peak memory is what a call adds to the process's resident memory at its highest, the result included.

Leaves build/bench/ragged.json and build/bench/ragged.png. Exits 1 when a claim is missed.
"""


@dataclass(frozen=True)
class Peak:
    """Memory of one call above the input, on the rank where it was most."""

    contender: str
    ranks: int
    output_bytes: int
    peak_bytes: int

    @property
    def ratio(self) -> float:
        return self.peak_bytes / self.output_bytes


@dataclass
class Findings:
    rows: list[Row]
    peaks: list[Peak]
    left_out: list[str]
    disturbed: list[str]


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("ragged", __doc__, HELP)
    parser.add_argument(
        "--quick", action="store_true", help="three sizes and few samples: about a minute, rough figures"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="numbers of ranks (default: 2 4)")
    parser.add_argument("--seconds", type=float, help="time for one row (default: 1.5, quick 0.3; at least 5 rounds)")
    parser.add_argument(
        "--as-started", action="store_true", help="neither pin the ranks nor schedule them otherwise: gloo is slower"
    )
    options = parser.parse_args(arguments)

    mean_sizes = [4**k * KIB for k in ((0, 3, 6) if options.quick else range(9))]
    effort = Effort(seconds=options.seconds or (0.3 if options.quick else 1.5))
    torch.set_num_threads(1)
    print(f"A ragged gather on gloo, one host, ranks {options.ranks}, {bytes_text(mean_sizes[0])} to ", end="")
    print(f"{bytes_text(mean_sizes[-1])} a rank on average. {len(options.ranks) * len(mean_sizes) * len(OPS)} rows.")

    began = time.monotonic()
    findings = Findings([], [], [], [])
    for ranks in options.ranks:
        print(f"\n{ranks} ranks")
        settled = not options.as_started
        found = run_ranks(ranks, _measure, Meeting(ranks), mean_sizes, effort, timeout_s=3600.0, settled=settled)[0]
        findings.rows += found.rows
        findings.peaks += found.peaks
        findings.left_out += found.left_out
        findings.disturbed += found.disturbed

    _print_ratios(findings)
    claims = claims_of(findings)
    json_path = write_json(
        options.output / "ragged.json",
        findings.rows,
        claims,
        peaks=[asdict(p) for p in findings.peaks],
        left_out=findings.left_out,
        disturbed=findings.disturbed,
    )
    plot_path = ragged_plot.draw(findings.rows, json_path.with_suffix(".png"))
    print(f"\n{json_path}\n{plot_path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _measure(rank: int, ranks: int, meeting: Meeting, mean_sizes: list[int], effort: Effort) -> Findings:
    findings = Findings([], [], [], [])
    progress = Progress(len(mean_sizes) * len(OPS))
    for mean_bytes in mean_sizes:
        batch = Batch(rank, ranks, mean_bytes)
        for op in OPS:
            what = f"{bytes_text(mean_bytes):>8} a rank, {op.text:44}"
            need = ranks * _need_bytes(batch, op)
            if not meeting.agree(rank, need < available_bytes()):
                findings.left_out.append(f"{ranks} ranks, {what.strip()}: needs {bytes_text(need)} of memory")
                continue
            if rank == 0:
                progress.starting(what)
            found = contenders(batch, op)
            timings, busy = undisturbed(meeting, rank, found, effort)
            for name, timing in timings.items():
                findings.rows.append(_row(op, name, ranks, batch, mean_bytes, timing))
            if rank == 0:
                progress.finished(what + _summary(timings))
                if busy > BUSY_CORES:
                    findings.disturbed.append(f"{ranks} ranks, {what.strip()}: others kept {busy:.1f} cores busy")
            if op.grad is None and batch.total_bytes >= MEMORY_FROM_BYTES:
                findings.peaks += list(_peaks(meeting, rank, batch, op, found))
    return findings


def _need_bytes(batch: Batch, op: Op) -> int:
    """What a rank may have at once: the outputs that contenders keep, gradients or copies, temporaries."""
    kept = (3 if op.grad is None and op.sizes_given else 2) * OUTPUTS_ALIVE
    padded = len(batch.sizes) * max(batch.sizes) * batch.width * FLOAT_BYTES
    return (kept + 3) * batch.total_bytes + 2 * padded


def _row(op: Op, name: str, ranks: int, batch: Batch, mean_bytes: int, timing: Timing) -> Row:
    shape, label = batch.total_shape, op.label(name)
    return Row(op.name, label, ranks, shape, mean_bytes, round(timing.us, 2), round(timing.spread, 3), timing.samples)


def _summary(timings: Any) -> str:
    parts = [f"{name} {us_text(timing.us)} ±{timing.spread / 2:.0%}" for name, timing in timings.items()]
    return f"{timings[PEER].us / timings[OURS].us:5.1f}x   " + ", ".join(parts)


def _peaks(meeting: Meeting, rank: int, batch: Batch, op: Op, found: list[Contender]) -> Iterator[Peak]:
    for contender in found:
        if contender.name == COPY:
            continue
        contender.rewrite()
        sw.empty_cache()  # else the result takes a block that is resident already, and the call seems to need nothing
        meeting.meet(rank)
        peaks = meeting.gather(rank, peak_above_start_bytes(contender.call))
        yield Peak(op.label(contender.name), len(batch.sizes), batch.total_bytes, max(peaks))


Ratios = dict[tuple[int, int, Op], float]


def _ratios(rows: list[Row]) -> Ratios:
    """How many times faster than the peer, by ranks, mean bytes and op."""
    us = {(row.ranks, row.bytes, row.op, row.contender): row.us for row in rows}
    return {
        (ranks, size, op): us[ranks, size, op.name, op.label(PEER)] / us[ranks, size, op.name, op.label(OURS)]
        for ranks, size in sorted({(row.ranks, row.bytes) for row in rows})
        for op in OPS
        if (ranks, size, op.name, op.label(PEER)) in us
    }


def _print_ratios(findings: Findings) -> None:
    ratios = _ratios(findings.rows)
    for ranks in sorted({ranks for ranks, _, _ in ratios}):
        print(f"\nTimes faster than {PEER}, {ranks} ranks")
        lines = []
        for size in sorted({size for n, size, _ in ratios if n == ranks}):
            cells = [f"{ratios[ranks, size, op]:.1f}" if (ranks, size, op) in ratios else "-" for op in OPS]
            lines.append([f"{bytes_text(size)} a rank", *cells])
        short = {None: "forward", "local": "+backward local", "sum": "+backward sum"}
        print_table(["", *(short[op.grad] + (", given" if op.sizes_given else "") for op in OPS)], lines)
    if findings.peaks:
        print("\nPeak memory of a forward call above its input")
        lines = [
            [
                p.contender,
                str(p.ranks),
                bytes_text(p.output_bytes),
                f"{p.peak_bytes >> 20} MiB",
                f"{p.ratio:.2f}",
            ]
            for p in findings.peaks
        ]
        print_table(["contender", "ranks", "output", "peak", "peak / output"], lines)
    for line in findings.left_out:
        print(f"Left out: {line}")
    for line in findings.disturbed:
        print(f"Disturbed: {line}")


def claims_of(findings: Findings) -> list[Claim]:
    ratios = _ratios(findings.rows)
    claims = []
    for op in OPS:
        text = f"{op.text}: at least {TIMES_EVERYWHERE:g} times faster than {PEER} at every size and rank count"
        of_op = {key: ratio for key, ratio in ratios.items() if key[2] == op}
        if not of_op:
            claims.append(not_measured(text))
            continue
        ranks, size, _ = least = min(of_op, key=lambda key: of_op[key])
        mean = geometric_mean(list(of_op.values()))
        figure = f"{of_op[least]:.2f} times at {ranks} ranks, {bytes_text(size)} (geometric mean {mean:.1f})"
        claims.append(Claim(text, figure, of_op[least] >= TIMES_EVERYWHERE))
    text = f"at least {TIMES_IN_THE_MEAN:g} times faster than {PEER} in the geometric mean of all rows"
    if ratios:
        mean = geometric_mean(list(ratios.values()))
        claims.append(Claim(text, f"{mean:.2f} times", mean >= TIMES_IN_THE_MEAN))
    else:
        claims.append(not_measured(text))
    return [*claims, _peak_claim(findings.peaks)]


def _peak_claim(peaks: Sequence[Peak]) -> Claim:
    text = f"peak memory above the input at most {PEAK_LIMIT:g} times the output"
    ours = [p for p in peaks if p.contender.startswith(OURS)]
    if not ours:
        return not_measured(text)
    worst = max(ours, key=lambda p: p.ratio)
    figure = f"{worst.ratio:.2f} times at {worst.ranks} ranks, {bytes_text(worst.output_bytes)} ({worst.contender})"
    return Claim(text, figure, worst.ratio <= PEAK_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
