"""What collectives cost on a group: `torchrun --nproc-per-node 4 -m shardway.calibrate -o topology.json`.

As `shardway calibrate`, for CPU tensors of any backend of torch.distributed. The ranks are those of one host. The
time of a call is that of its slowest rank.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import torch
import torch.distributed as dist

import shardway as sw
from shardway import _C
from shardway._files import usual_mode, write_whole
from shardway._timing import INTERRUPTED, Call, TimedCall, TrialClock, measure

_ITEM_BYTES = 4


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
    return TimedCall(*_call_of(op, size // _ITEM_BYTES, parts), size)


def _problem_with(output: Path) -> str:
    """Why the file cannot be written, or nothing."""
    if output.is_dir():
        return f"{output}: cannot be written: Is a directory"
    try:
        with tempfile.NamedTemporaryFile(dir=output.parent):
            return ""
    except OSError as error:
        return f"{output}: cannot be written: {error.strerror}"


def _problem(output: Path) -> str:
    """Why this group cannot be measured, the same on every rank; or nothing."""
    if dist.get_world_size() == 1:
        return "one rank has nobody to send to; start at least 2"
    if int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())) != dist.get_world_size():
        return "the ranks are on several hosts; it measures those of one"
    said = [_problem_with(output) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(said, src=0)
    return said[0]


def _finish(trials: list[TimedCall], most: int, output: Path, *, is_complete: bool) -> int:
    """On rank 0: writes and prints what was found. Returns the exit code."""
    engine = "" if os.environ.get("SHARDWAY_TRANSPORT") == "c10d" else ", shared memory where it can"
    date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    us = [trial.us for trial in trials]
    found = _C.calibrated(most, us, dist.get_world_size(), dist.get_backend() + engine, date, is_complete)
    if found is None:
        print("it was interrupted before every call was made: nothing is written", file=sys.stderr)
        return 1
    text, report = found
    if not is_complete and output.exists():
        output = output.with_name(output.name + ".partial")
    write_whole(output, text, usual_mode())
    print(f"{report}{output} is written", flush=True)
    return 0 if is_complete else INTERRUPTED


def _arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="torchrun … -m shardway.calibrate", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="the topology file to write")
    parser.add_argument("--backend", default="gloo", help="of torch.distributed, for CPU tensors; gloo when left out")
    parser.add_argument("--seconds", type=float, default=30.0, help="the longest time to measure after a first round")
    parser.add_argument("--most", type=int, default=16 << 20, metavar="BYTES", help="the largest size, from 8192 on")
    read = parser.parse_args(words)
    if read.most < 8 << 10:
        parser.error(f"--most {read.most}: the largest size is at least 8192")
    return read


def _main(words: list[str]) -> int:
    arguments = _arguments(words)
    dist.init_process_group(arguments.backend)
    try:
        if problem := _problem(arguments.output):
            if dist.get_rank() == 0:
                print(f"shardway.calibrate: {problem}", file=sys.stderr, flush=True)
            return 2
        trials = [_timed(*trial) for trial in _C.trials_up_to(arguments.most)]
        clock = TrialClock(arguments.seconds)
        clock.listen()
        measure(trials, clock)
        if dist.get_rank() != 0:
            return 0
        return _finish(trials, arguments.most, arguments.output, is_complete=not clock.was_interrupted)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
