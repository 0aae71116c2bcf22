"""What all_gather_v costs on a GPU besides communication, local work and host time, and what pad-gather-mask does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import shardway as sw
from bench.forked_ranks import run_ranks
from bench.options import parser_of
from bench.report import Claim, Progress, Row, bytes_text, print_claims, print_table, us_text, write_json
from bench.timing import Timing
from tests.support.one_gpu import enter_group, mps, why_no_gpu
from tests.support.pad_gather_mask import pad_gather_mask

OURS, PEER = "shardway", "pad-gather-mask"
RANKS = 4
MIB = 2**20
SIZES = (1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB)
FLOAT_BYTES = 4
WIDTH = 1024  # of the dim that is alike on all ranks
CLAIMED_FROM, TIMES_LESS = 16 * MIB, 3.0
KERNEL_MS = 20.0  # of the kernel that is queued before a call, about

HELP = f"""
{RANKS} ranks share one GPU (MPS, and a NCCL_HOSTID for each), so that NCCL talks over sockets: how long a call takes
as a whole says nothing here, and is not measured. Rank r of {RANKS} holds (2r + 1) / {RANKS} times the mean, f32, the
other dim is {WIDTH}; gathered along dim 0 and along dim 1.

local work: the time of all kernels and copies on the GPU in a call, but for NCCL's own, by torch.profiler; the mean of
the ranks, which work at the same time. Sizes are given, to {PEER} as a tensor on the GPU.
host: how long the call keeps the host, the GPU being idle before it; with sizes given and not.
host, GPU busy: the same behind a kernel of about {KERNEL_MS:g} ms.

Contenders take turns, inputs are rewritten before each call, results are compared.
Leaves build/bench/gpu.json. Exits 1 when a claim is missed, 2 without a GPU.
"""

FIELDS = {
    "shape": "of the gathered tensor",
    "bytes": "of a rank, on average",
    "us": "median of the samples, each the mean of the ranks",
    "spread": "third quartile minus first, as a share of the median",
}


@dataclass(frozen=True)
class Case:
    dim: int
    bytes: int

    @property
    def sizes(self) -> tuple[int, ...]:
        mean = self.bytes // FLOAT_BYTES // WIDTH
        return tuple((2 * rank + 1) * mean // RANKS for rank in range(RANKS))

    def shape(self, length: int) -> tuple[int, int]:
        return (length, WIDTH) if self.dim == 0 else (WIDTH, length)

    @property
    def text(self) -> str:
        return f"all_gather_v dim {self.dim}"


CASES = [Case(dim, size) for dim in (0, 1) for size in SIZES]
Samples = dict[tuple[Case, str, str], list[float]]  # by case, what is measured, contender


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("gpu", __doc__, HELP)
    parser.add_argument("--rounds", type=int, default=9, help="samples of each figure (default: 9)")
    options = parser.parse_args(arguments)
    why = why_no_gpu()
    if why:
        print(f"bench.gpu needs a GPU: {why}", file=sys.stderr)
        return 2
    began = time.monotonic()
    with mps():
        answers = run_ranks(RANKS, _measure, options.rounds, timeout_s=900.0, settled=False, enter=enter_group)
    gpu = answers[0][0]
    rows = _rows([samples for _, samples in answers])
    print(f"all_gather_v of {RANKS} ranks that share one {gpu} (--help says what is measured)")
    _print_tables(rows)
    claims = claims_of(rows)
    path = write_json(options.output / "gpu.json", rows, claims, FIELDS, gpu=gpu)
    print(f"\n{path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _measure(rank: int, ranks: int, rounds: int) -> tuple[str, Samples]:
    samples: Samples = {}
    progress = Progress(len(CASES))
    for case in CASES:
        source = torch.randn(case.shape(case.sizes[rank]), device="cuda")
        x = torch.empty_like(source)
        on_gpu = torch.tensor(case.sizes, device="cuda")
        calls: dict[str, Callable[[], Any]] = {
            f"{OURS}, sizes given": lambda x=x, case=case: sw.all_gather_v(x, case.dim, sizes=case.sizes),
            f"{PEER}, sizes given": lambda x=x, case=case, on_gpu=on_gpu: pad_gather_mask(x, case.dim, on_gpu),
            OURS: lambda x=x, case=case: sw.all_gather_v(x, case.dim),
            PEER: lambda x=x, case=case: pad_gather_mask(x, case.dim),
        }
        x.copy_(source)
        results = [call()[0] for call in calls.values()]
        assert all(torch.equal(result, results[0]) for result in results), f"{case}: the results differ"
        assert results[0].shape == case.shape(sum(case.sizes))
        del results
        for _ in range(rounds):
            for name, call in calls.items():
                for what, measure in MEASURES.items():
                    if what == LOCAL and not name.endswith("given"):
                        continue
                    x.copy_(source)
                    _meet()
                    samples.setdefault((case, what, name), []).append(measure(call))
        if rank == 0:
            progress.finished(f"{case.text}, {bytes_text(case.bytes)}")
    return torch.cuda.get_device_name(), samples


def _meet() -> None:
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()


def _local_us(call: Callable[[], Any]) -> float:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sum(
        event.time_range.elapsed_us()
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
        and not event.is_user_annotation
        and "nccl" not in event.name.lower()
    )


def _host_us(call: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    result = call()
    end = time.perf_counter_ns()
    del result
    return (end - start) / 1e3


def _host_us_behind_a_kernel(call: Callable[[], Any]) -> float:
    torch.cuda._sleep(int(KERNEL_MS * 1e6 * 1.98))  # cycles at the GPU's usual clock
    return _host_us(call)


LOCAL, HOST, BUSY = "local work", "host", "host, GPU busy"
MEASURES = {LOCAL: _local_us, HOST: _host_us, BUSY: _host_us_behind_a_kernel}


def _rows(of_ranks: list[Samples]) -> list[Row]:
    rows = []
    for key in of_ranks[0]:
        case, what, name = key
        means = [sum(values) / RANKS for values in zip(*(samples[key] for samples in of_ranks), strict=True)]
        timing = Timing.of(means) if min(means) > 0 else Timing(us=0.0, spread=0.0, samples=len(means))
        shape = case.shape(sum(case.sizes))
        op = f"{case.text}: {what}"
        rows.append(
            Row(op, name, RANKS, shape, case.bytes, round(timing.us, 2), round(timing.spread, 3), timing.samples)
        )
    return rows


def _print_tables(rows: list[Row]) -> None:
    found = {(row.op, row.contender, row.bytes): row.us for row in rows}
    names = list(dict.fromkeys(row.contender for row in rows))
    for op in dict.fromkeys(row.op for row in rows):
        print(f"\n{op}")
        columns = [name for name in names if (op, name, SIZES[0]) in found]
        lines = [[bytes_text(size), *(us_text(found[op, name, size]) for name in columns)] for size in SIZES]
        print_table(["bytes a rank", *columns], lines)


def claims_of(rows: list[Row]) -> list[Claim]:
    found = {(row.op, row.contender, row.bytes): row.us for row in rows}
    given = ", sizes given"
    claims = []
    for dim in (0, 1):
        op = f"all_gather_v dim {dim}: {LOCAL}"
        large = [
            (found[op, OURS + given, size], found[op, PEER + given, size]) for size in SIZES if size >= CLAIMED_FROM
        ]
        least = min(theirs / ours if ours > 0 else float("inf") for ours, theirs in large)
        figure = f"{least:.1f} times" if least < float("inf") else "there is none"
        claims.append(
            Claim(
                f"local work along dim {dim} from {bytes_text(CLAIMED_FROM)}: at least {TIMES_LESS:g} times less than "
                f"{PEER}'s",
                figure,
                least >= TIMES_LESS,
            )
        )
    behind = [row.us for row in rows if row.op.endswith(BUSY) and row.contender == OURS + given]
    theirs = [row.us for row in rows if row.op.endswith(BUSY) and row.contender == PEER + given]
    claims.append(
        Claim(
            f"with sizes given the host waits for no kernel: it is back long before one of {KERNEL_MS:g} ms ends",
            f"after {us_text(max(behind))} at most; {PEER} after {us_text(min(theirs))} at least",
            max(behind) < KERNEL_MS * 1e3 / 10,
        )
    )
    return claims


if __name__ == "__main__":
    sys.exit(main())
