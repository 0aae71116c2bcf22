"""Collectives of ranks that share one GPU, by CUDA IPC, and what NCCL, torch's own sharing and a plain copy take."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing  # tells the pickler how tensors are shared

import shardway as sw
from bench.forked_ranks import run_ranks
from bench.options import parser_of
from bench.report import Claim, Progress, Row, bytes_text, print_claims, print_table, us_text, write_json
from bench.timing import Timing
from tests.support.one_gpu import enter_group, mps, why_no_gpu
from tests.support.pad_gather_mask import pad_gather_mask

OURS, NCCL, MASKED, SHARED, COPY = "shardway", "NCCL", "pad-gather-mask", "torch sharing", "plain copy"
PREPARED, FIXED, REPLAYED, SYMMETRIC = "prepared", "fixed", "in a graph", "symmetric memory"
OF_HOSTS = (OURS, PREPARED, FIXED)  # whose host time is shown
KIB, MIB = 2**10, 2**20
SIZES = (64 * KIB, MIB, 16 * MIB, 64 * MIB)
REFIT = "refit"
OPS = ("gather", "reduce-scatter", "all-reduce", "all-to-all", REFIT)
FLOAT_BYTES = 4
LARGE = 16 * MIB
SLOW = (NCCL, MASKED)  # over sockets: few calls are enough
TIMES_COPY, TIMES_SUM, HOST_US, REFIT_HOST_US = 1.25, 1.5, 40.0, 200.0
REFIT_TENSORS = 8
ONE_SHOT = MIB  # torch's all-reduce in one shot reads ranks times as many bytes

HELP = f"""
Ranks share one GPU. NCCL takes them only with a NCCL_HOSTID for each, and then talks over sockets. Every rank brings as
many bytes as the first column says (f32): a gather leaves ranks times as many, a reduce-scatter takes in ranks times as
many and leaves as many, all-reduce and all-to-all leave as many. Outputs are given where the contender takes them. In a
refit half of the ranks have matrices by rows, and the other half get them by columns: {REFIT_TENSORS} in one call.

Calls are queued one behind the other; a figure is their time from a barrier until the slowest rank's work is done, for
each call.
{SHARED}: tensors opened once by torch.multiprocessing's way, a barrier of the hosts before and behind the copies.
{COPY}: all ranks at once copy as many bytes as the call reads on the GPU.
{PREPARED}: the same call by sw.prepare.
{FIXED}: the same, after PreparedCall.fix().
{REPLAYED}: the same, captured in a CUDA graph that holds one call.
{SYMMETRIC}: torch's own, with its barriers: copies from the peers' buffers, or its all-reduce in one shot (up to
{bytes_text(ONE_SHOT)}) or two. The input and, of the all-reduce in two shots, the output are allocated by it.
host: until the call returns.

Contenders take turns; results are compared.
Leaves build/bench/ipc.json. Exits 1 when a claim is missed, 2 without a GPU.
"""

FIELDS = {
    "shape": "of this rank's input",
    "bytes": "of a rank",
    "us": "median of the samples, each the slowest rank's",
    "spread": "third quartile minus first, as a share of the median",
}


@dataclass(frozen=True)
class Case:
    op: str
    bytes: int

    @property
    def elements(self) -> int:
        return self.bytes // FLOAT_BYTES


CASES = [Case(op, size) for op in OPS for size in SIZES]
Samples = dict[tuple[Case, str], list[float]]


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("ipc", __doc__, HELP)
    parser.add_argument("--rounds", type=int, default=5, help="samples of each figure (default: 5)")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="even numbers (default: 2 4)")
    parser.add_argument("--time-slicing", action="store_true", help="without the server of MPS")
    options = parser.parse_args(arguments)
    why = why_no_gpu()
    if why:
        print(f"bench.ipc needs a GPU: {why}", file=sys.stderr)
        return 2
    began = time.monotonic()
    os.environ["SHARDWAY_TRANSPORT"] = "ipc"
    enter = functools.partial(enter_group, backend="cpu:gloo,cuda:nccl")
    rows: list[Row] = []
    if options.time_slicing:
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = str(options.output / "no-server")
    with mps():
        for ranks in options.ranks:
            answers = run_ranks(ranks, _measure, options.rounds, timeout_s=600.0, settled=False, enter=enter)
            rows += _rows(ranks, [samples for _, samples in answers])
    gpu = answers[0][0]
    print(f"ranks that share one {gpu} (--help says what is measured)")
    _print_tables(rows)
    claims = claims_of(rows)
    path = write_json(options.output / "ipc.json", rows, claims, FIELDS, gpu=gpu, time_slicing=options.time_slicing)
    print(f"\n{path}\n{time.monotonic() - began:.0f} s")
    return print_claims(claims)


def _contenders(case: Case, rank: int, ranks: int) -> dict[str, Callable[[], Any]]:
    """Each call gives its result; that of the plain copy means nothing."""
    n = case.elements
    equal = [n] * ranks
    whole = torch.empty(ranks * n, device="cuda")
    source = torch.full((ranks * n,), 1.0, device="cuda")
    if case.op == REFIT:
        return _refit(case, rank, ranks, source)
    if case.op == "gather":
        x, on_gpu = torch.full((n,), rank + 1.0, device="cuda"), torch.tensor(equal, device="cuda")
        out, theirs = torch.empty_like(whole), torch.empty_like(whole)
        return {
            OURS: lambda: sw.all_gather_v(x, sizes=equal, out=out)[0],
            **_prepared(sw.all_gather_v, x, sizes=equal, out=torch.empty_like(whole)),
            **_symmetric_gather(x, torch.empty_like(whole)),
            NCCL: lambda: _then(dist.all_gather_into_tensor(theirs, x), theirs),
            MASKED: lambda: pad_gather_mask(x, 0, on_gpu)[0],
            SHARED: _gather_by_sharing(x, whole, ranks),
            COPY: lambda: out.copy_(source),
        }
    if case.op == "reduce-scatter":
        x, out, theirs = torch.full((ranks * n,), rank + 1.0, device="cuda"), source[:n].clone(), source[:n].clone()
        return {
            OURS: lambda: sw.reduce_scatter_v(x, equal, out=out),
            **_prepared(sw.reduce_scatter_v, x, equal, out=torch.empty_like(out)),
            NCCL: lambda: _then(dist.reduce_scatter_tensor(theirs, x), theirs),
            COPY: lambda: whole.copy_(source),
        }
    x, out, theirs = torch.full((n,), rank + 1.0, device="cuda"), torch.empty(n, device="cuda"), source[:n].clone()
    if case.op == "all-reduce":
        return {
            OURS: lambda: sw.all_reduce(x, out=out),
            **_prepared(sw.all_reduce, x, out=torch.empty_like(out)),
            **_symmetric_all_reduce(x),
            NCCL: lambda: _then(dist.all_reduce(theirs.copy_(x)), theirs),
            COPY: lambda: whole[: 2 * n].copy_(source[: 2 * n]),
        }
    cut = [n // ranks] * ranks
    return {
        OURS: lambda: sw.all_to_all_v(x, cut, recv_sizes=cut, out=out)[0],
        **_prepared(sw.all_to_all_v, x, cut, recv_sizes=cut, out=torch.empty_like(out)),
        NCCL: lambda: _then(dist.all_to_all_single(theirs, x), theirs),
        COPY: lambda: out.copy_(source[:n]),
    }


def _then(_: Any, result: Any) -> Any:
    return result


def _prepared(op: Callable[..., Any], *args: Any, out: torch.Tensor, **kwargs: Any) -> dict[str, Callable[[], Any]]:
    free = sw.prepare(op, *args, out=out, **kwargs)
    fixed_out = torch.empty_like(out)
    fixed = sw.prepare(op, *args, out=fixed_out, **kwargs)
    fixed.fix()
    return {
        PREPARED: lambda: _then(free.run(), out),
        FIXED: lambda: _then(fixed.run(), fixed_out),
        REPLAYED: _replayed(fixed, fixed_out),
    }


def _replayed(fixed: sw.PreparedCall[Any], out: torch.Tensor) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fixed.run()
    return lambda: _then(graph.replay(), out)


@functools.cache
def _symmetric_memory() -> Any:
    """torch's module for it; None where it cannot be used, which is said."""
    import torch.distributed._symmetric_memory as symmetric

    problem = None
    try:
        symmetric.rendezvous(symmetric.empty(1024, device="cuda"), dist.group.WORLD)
    except Exception as error:
        problem = str(error).splitlines()[0]
    problems: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem, group=_hosts())
    found = [said for said in problems if said]
    if found and dist.get_rank() == 0:
        print(f"{SYMMETRIC} is not raced: {found[0]}")
    return None if found else symmetric


def _symmetric_copy_of(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    symmetric = _symmetric_memory()
    copy = symmetric.empty(x.numel(), device="cuda")
    copy.copy_(x)
    return copy, symmetric.rendezvous(copy, dist.group.WORLD)


def _symmetric_gather(x: torch.Tensor, out: torch.Tensor) -> dict[str, Callable[[], Any]]:
    if _symmetric_memory() is None:
        return {}
    mine, handle = _symmetric_copy_of(x)
    peers = [handle.get_buffer(rank, (x.numel(),), x.dtype) for rank in range(handle.world_size)]
    parts = out.split(x.numel())

    def gather() -> torch.Tensor:
        handle.barrier()
        for part, peer in zip(parts, peers, strict=True):
            part.copy_(peer)
        handle.barrier()
        assert mine.numel() == x.numel()  # the peers read it
        return out

    return {SYMMETRIC: gather}


def _symmetric_all_reduce(x: torch.Tensor) -> dict[str, Callable[[], Any]]:
    if _symmetric_memory() is None:
        return {}
    group = dist.group.WORLD.group_name
    mine, _ = _symmetric_copy_of(x)
    if x.nbytes <= ONE_SHOT:
        return {SYMMETRIC: lambda: torch.ops.symm_mem.one_shot_all_reduce(mine, "sum", group)}
    return {SYMMETRIC: lambda: torch.ops.symm_mem.two_shot_all_reduce_(mine.copy_(x), "sum", group)}


def _refit(case: Case, rank: int, ranks: int, source: torch.Tensor) -> dict[str, Callable[[], Any]]:
    half = ranks // 2
    width = 512 * half
    height = case.elements // REFIT_TENSORS // 512
    trained = sw.Layout((height, width), torch.float32, sw.Mesh((half,)), [sw.Shard(0)])
    wanted = sw.Layout((height, width), torch.float32, sw.Mesh((half,), ranks=list(range(half, ranks))), [sw.Shard(1)])
    is_trainer = rank < half
    values = [torch.arange(height * width, dtype=torch.float32).view(height, width) + i for i in range(REFIT_TENSORS)]
    rows, columns = ((rank % half) * height // half, height // half), ((rank % half) * width // half, width // half)
    parts = [value.narrow(0, *rows).cuda() for value in values]
    outs = [torch.empty(height, width // half, device="cuda") for _ in values]
    tensors = [sw.MeshTensor(part if is_trainer else None, trained) for part in parts]
    call = sw.prepare(
        sw.redistribute, tensors, [wanted] * len(values), out=[None if is_trainer else out for out in outs]
    )
    assert is_trainer or all(out.cpu().equal(v.narrow(1, *columns)) for out, v in zip(outs, values, strict=True))
    fixed_outs = [torch.empty_like(out) for out in outs]
    fixed = sw.prepare(
        sw.redistribute, tensors, [wanted] * len(values), out=[None if is_trainer else out for out in fixed_outs]
    )
    fixed.fix()
    bytes_here = source[: case.elements]
    copied = torch.empty_like(bytes_here)
    return {
        OURS: lambda: _then(call.run(), bytes_here if is_trainer else outs[0]),
        FIXED: lambda: _then(fixed.run(), bytes_here if is_trainer else fixed_outs[0]),
        REPLAYED: _replayed(fixed, bytes_here if is_trainer else fixed_outs[0]),
        COPY: lambda: copied if is_trainer else copied.copy_(bytes_here),
    }


def _gather_by_sharing(x: torch.Tensor, out: torch.Tensor, ranks: int) -> Callable[[], Any]:
    handles: list[Any] = [None] * ranks
    dist.all_gather_object(handles, bytes(ForkingPickler.dumps(x)))
    peers = [x if r == dist.get_rank() else ForkingPickler.loads(handle) for r, handle in enumerate(handles)]
    hosts = _hosts()

    def gather() -> torch.Tensor:
        torch.cuda.current_stream().synchronize()
        dist.barrier(hosts)
        for part, peer in zip(out.split(x.numel()), peers, strict=True):
            part.copy_(peer)
        torch.cuda.current_stream().synchronize()
        dist.barrier(hosts)
        return out

    return gather


@functools.cache
def _hosts() -> Any:
    return dist.new_group(backend="gloo")


def _measure(rank: int, ranks: int, rounds: int) -> tuple[str, Samples]:
    samples: Samples = {}
    progress = Progress(len(CASES))
    for case in CASES:
        calls = _contenders(case, rank, ranks)
        results = {name: call().clone() for name, call in calls.items() if name != COPY}
        assert all(torch.equal(result, results[OURS]) for result in results.values()), f"{case}: the results differ"
        del results
        for _ in range(rounds):
            for name, call in calls.items():
                times = 2 if name in SLOW else 20
                call()
                us, host_us = _timed(call, times)
                samples.setdefault((case, name), []).append(us)
                if name in OF_HOSTS:
                    samples.setdefault((case, _host(name)), []).append(host_us)
        if rank == 0:
            progress.finished(f"{ranks} ranks, {case.op}, {bytes_text(case.bytes)}")
    return torch.cuda.get_device_name(), samples


def _host(name: str) -> str:
    return f"{name}, host"


def _timed(call: Callable[[], Any], times: int) -> tuple[float, float]:
    torch.cuda.synchronize()
    dist.barrier(_hosts())
    start = time.perf_counter_ns()
    for _ in range(times):
        call()
    returned = time.perf_counter_ns()
    torch.cuda.synchronize()
    end = time.perf_counter_ns()
    return (end - start) / times / 1e3, (returned - start) / times / 1e3


def _rows(ranks: int, of_ranks: list[Samples]) -> list[Row]:
    rows = []
    for case, name in of_ranks[0]:
        slowest = [max(values) for values in zip(*(samples[case, name] for samples in of_ranks), strict=True)]
        t = Timing.of(slowest)
        shape = (case.elements,)
        rows.append(Row(case.op, name, ranks, shape, case.bytes, round(t.us, 2), round(t.spread, 3), t.samples))
    return rows


def _print_tables(rows: list[Row]) -> None:
    found = {(row.ranks, row.op, row.contender, row.bytes): row.us for row in rows}
    for ranks in _numbers_of_ranks(rows):
        for op in OPS:
            names = list(dict.fromkeys(row.contender for row in rows if row.op == op))
            print(f"\n{op}, {ranks} ranks")
            lines = [[bytes_text(b), *(us_text(found[ranks, op, name, b]) for name in names)] for b in SIZES]
            print_table(["bytes a rank", *names], lines)


def _numbers_of_ranks(rows: list[Row]) -> list[int]:
    return sorted({row.ranks for row in rows})


def claims_of(rows: list[Row]) -> list[Claim]:
    found = {(row.ranks, row.op, row.contender, row.bytes): row.us for row in rows}
    large = [size for size in SIZES if size >= LARGE]
    numbers = _numbers_of_ranks(rows)

    def most(op: str, peer: str) -> float:
        return max(found[r, op, OURS, b] / found[r, op, peer, b] for r in numbers for b in large)

    def host(op: str, name: str) -> float:
        return max(found[r, op, _host(name), b] for r in numbers for b in SIZES)

    from_large = f"from {bytes_text(LARGE)}"
    gather, scatter, refit = most("gather", COPY), most("reduce-scatter", COPY), most(REFIT, COPY)
    of_gather, of_refit = host("gather", OURS), host(REFIT, OURS)
    nccl = min(
        found[key[0], key[1], NCCL, key[3]] / us for key, us in found.items() if key[1] != REFIT and key[2] == OURS
    )
    return [
        Claim(f"a gather {from_large}: at most {TIMES_COPY:g} times a copy", f"{gather:.2f}", gather <= TIMES_COPY),
        Claim(
            f"a reduce-scatter {from_large}: at most {TIMES_SUM:g} times a copy of what it reads",
            f"{scatter:.2f}",
            scatter <= TIMES_SUM,
        ),
        Claim(f"a refit {from_large}: at most {TIMES_COPY:g} times a copy", f"{refit:.2f}", refit <= TIMES_COPY),
        Claim(f"host time of a gather: under {HOST_US:g} µs", us_text(of_gather), of_gather < HOST_US),
        Claim(f"host time of a refit: under {REFIT_HOST_US:g} µs", us_text(of_refit), of_refit < REFIT_HOST_US),
        Claim("faster than NCCL between ranks of one GPU, everywhere", f"{nccl:.1f} times at least", nccl > 1),
    ]


if __name__ == "__main__":
    sys.exit(main())
