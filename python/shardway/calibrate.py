"""What collectives cost on a group: `torchrun --nproc-per-node 4 -m shardway.calibrate -o topology.json`.

As `shardway calibrate`, for CPU tensors of any backend of torch.distributed. The ranks are those of one host. The
time of a call is that of its slowest rank.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import shardway as sw
from shardway import _C
from shardway._calibration_plot import draw_calibration, plot_problem
from shardway._files import usual_mode, write_whole
from shardway._measuring import (
    ITEM_BYTES,
    add_measuring_arguments,
    backend_text,
    date_of_now,
    problem_with,
    run_in_group,
)
from shardway._timing import INTERRUPTED, Call, TimedCall, TrialClock, measure


def _redistribute_call(elements: int, parts: str) -> Call:
    """Even parts of `elements` a rank become others."""
    ranks = dist.get_world_size()
    mesh = sw.Mesh((ranks,))
    whole = elements * ranks
    before = sw.Layout((whole,), torch.float32, mesh, [sw.Shard(0)])
    after = [sw.Shard(0, _C.sizes_of_parts(parts, whole, ranks))]
    return lambda x: sw.redistribute(sw.MeshTensor(x, before), after)


def _call_of(op: str, elements: int, kind_of_parts: str) -> tuple[Call, int]:
    """A call on an input of this rank, and how many elements that input has."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    parts = _C.sizes_of_parts(kind_of_parts, elements, ranks)
    if op == "exchange":
        return _redistribute_call(elements, kind_of_parts), elements
    if op == "all_gather":
        return lambda x: sw.all_gather_v(x, sizes=parts), parts[rank]
    if op == "reduce_scatter":
        return lambda x: sw.reduce_scatter_v(x, parts), elements
    if op == "all_reduce":
        return lambda x: sw.all_reduce(x), elements
    if op == "all_to_all":
        return lambda x: sw.all_to_all_v(x, parts, recv_sizes=[parts[rank]] * ranks), elements
    sent = [elements if peer == (rank + 1) % ranks else 0 for peer in range(ranks)]
    received = [elements if peer == (rank - 1) % ranks else 0 for peer in range(ranks)]
    return lambda x: sw.all_to_all_v(x, sent, recv_sizes=received), elements


def _timed(op: str, size: int, parts: str) -> TimedCall:
    return TimedCall(*_call_of(op, size // ITEM_BYTES, parts), size)


def _backend() -> str:
    return backend_text("shared memory where it can")


def _problem(arguments: argparse.Namespace) -> str:
    """Why there are no figures to find, or no place for them; or nothing."""
    if int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())) != dist.get_world_size():
        return "the ranks are on several hosts; it measures those of one"
    output: Path = arguments.output
    plot: Path | None = arguments.plot
    if problem := problem_with(output) or (problem_with(plot) if plot else "") or (plot_problem() if plot else ""):
        return problem
    if not output.exists():
        return ""
    try:
        objection = _C.objection_to_joining(output.read_text(errors="replace"), str(output), _backend())
    except ValueError as error:
        return f"{error}: remove it, or give another name with -o"
    return f"{output}: {objection}: remove it, or give another name with -o" if objection else ""


def _finish(trials: list[TimedCall], arguments: argparse.Namespace, *, is_complete: bool) -> int:
    """On rank 0: writes and prints what was found. Returns the exit code."""
    output: Path = arguments.output
    before = output.read_text() if is_complete and output.exists() else ""
    us = [trial.us for trial in trials]
    ranks = dist.get_world_size()
    found = _C.calibrated(arguments.most, us, ranks, _backend(), date_of_now(), is_complete, before)
    if found is None:
        print("it was interrupted before every call was made: nothing is written", file=sys.stderr)
        return 1
    text, report, is_void = found
    if is_void and not arguments.keep_noisy:
        print(f"{report}it is not written", flush=True)
        print(
            "shardway.calibrate: odd and even repetitions differ by more than 25 %: --keep-noisy writes such figures "
            "too",
            file=sys.stderr,
            flush=True,
        )
        return 1
    if not is_complete and output.exists():
        output = output.with_name(output.name + ".partial")
    write_whole(output, text, usual_mode())
    if arguments.plot:
        draw_calibration(json.loads(text), arguments.plot)
    print(f"{report}{output} is written", flush=True)
    return 0 if is_complete else INTERRUPTED


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="torchrun … -m shardway.calibrate", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="the topology file to write, or to add these ranks to"
    )
    add_measuring_arguments(parser, seconds=30.0)
    parser.add_argument("--most", type=int, default=16 << 20, metavar="BYTES", help="the largest size, from 8192 on")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw calls and prices: PNG, SVG or PDF")
    parser.add_argument("--keep-noisy", action="store_true", help="write what was measured though it is too noisy")
    read = parser.parse_args(words)
    if read.most < 8 << 10:
        parser.error(f"--most {read.most}: the largest size is at least 8192")
    return read


def _main(words: list[str]) -> int:
    arguments = _arguments(words)

    def body(clock: TrialClock) -> int:
        trials = [_timed(*trial) for trial in _C.trials_up_to(arguments.most)]
        measure(trials, clock)
        if dist.get_rank() != 0:
            return 0
        return _finish(trials, arguments, is_complete=not clock.was_interrupted)

    return run_in_group("calibrate", arguments, lambda: _problem(arguments), body)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
