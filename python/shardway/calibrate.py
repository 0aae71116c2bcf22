"""What collectives cost on a group: `torchrun --nproc-per-node 4 -m shardway.calibrate -o topology.json`.

As `shardway calibrate`, for CPU tensors of any backend of torch.distributed. The time of a call is that of its slowest
rank. If the ranks are on several hosts, those of the first one measure its memory, and then all of them the messages
between hosts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import shardway as sw
from shardway import _C
from shardway._between_hosts import error_over_hosts, fields_of_hosts, hosts_of_ranks, measured_link
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

Group = dist.ProcessGroup | None


def _redistribute_call(elements: int, parts: str, group: Group) -> Call:
    """Even parts of `elements` a rank become others."""
    ranks = dist.get_world_size(group)
    mesh = sw.Mesh((ranks,), ranks=dist.get_process_group_ranks(group))
    whole = elements * ranks
    before = sw.Layout((whole,), torch.float32, mesh, [sw.Shard(0)])
    after = [sw.Shard(0, _C.sizes_of_parts(parts, whole, ranks))]
    return lambda x: sw.redistribute(sw.MeshTensor(x, before, group), after)


def _call_of(op: str, elements: int, kind_of_parts: str, group: Group) -> tuple[Call, int]:
    """A call on an input of this rank, and how many elements that input has."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    parts = _C.sizes_of_parts(kind_of_parts, elements, ranks)
    if op == "exchange":
        return _redistribute_call(elements, kind_of_parts, group), elements
    if op == "all_gather":
        return lambda x: sw.all_gather_v(x, sizes=parts, group=group), parts[rank]
    if op == "reduce_scatter":
        return lambda x: sw.reduce_scatter_v(x, parts, group=group), elements
    if op == "all_reduce":
        return lambda x: sw.all_reduce(x, group=group), elements
    if op == "all_to_all":
        return lambda x: sw.all_to_all_v(x, parts, recv_sizes=[parts[rank]] * ranks, group=group), elements
    sent = [elements if peer == (rank + 1) % ranks else 0 for peer in range(ranks)]
    received = [elements if peer == (rank - 1) % ranks else 0 for peer in range(ranks)]
    return lambda x: sw.all_to_all_v(x, sent, recv_sizes=received, group=group), elements


def _timed(op: str, size: int, parts: str, group: Group) -> TimedCall:
    return TimedCall(*_call_of(op, size // ITEM_BYTES, parts, group), group)


def _problem(arguments: argparse.Namespace) -> str:
    """Why there are no figures to find, or no place for them; or nothing."""
    output: Path = arguments.output
    plot: Path | None = arguments.plot
    if problem := problem_with(output) or (problem_with(plot) if plot else "") or (plot_problem() if plot else ""):
        return problem
    if not output.exists():
        return ""
    try:
        objection = _C.objection_to_joining(output.read_text(errors="replace"), str(output), backend_text())
    except ValueError as error:
        return f"{error}: remove it, or give another name with -o"
    return f"{output}: {objection}: remove it, or give another name with -o" if objection else ""


Found = tuple[str, str, bool]  # the text of the file, the report, and whether the run is void


def _found(trials: list[TimedCall], arguments: argparse.Namespace, ranks: int, *, is_complete: bool) -> Found | None:
    """None if it was interrupted before every call was made."""
    output: Path = arguments.output
    before = output.read_text() if is_complete and output.exists() else ""
    us = [trial.us for trial in trials]
    return _C.calibrated(arguments.most, us, ranks, backend_text(), date_of_now(), is_complete, before)


def _with_hosts(found: Found | None, host_of: list[int]) -> Found | None:
    """Collective, over all hosts; rank 0 has what was found on its own."""
    link = measured_link(host_of)
    told = [""]
    if found is not None:
        document = json.loads(found[0])
        document["between_hosts"] = {"latency_us": link.latency_us, "gib_per_s": link.gib_per_s}
        document["hosts"] = fields_of_hosts(host_of)
        told = [json.dumps(document, indent=2) + "\n"]
    dist.broadcast_object_list(told, src=0)
    error = error_over_hosts(sw.Topology.from_json(told[0])) if told[0] else 0.0
    if found is None:
        return None
    line = (
        f"between hosts {link.latency_us:.3g} us a message, {link.gib_per_s:.3g} GiB/s a host; redistributions over "
        f"all {len(host_of)} ranks are priced with a median error of {100 * error:.0f} %\n"
    )
    return told[0], found[1] + line, found[2]


def _finish(found: Found | None, arguments: argparse.Namespace, *, is_complete: bool) -> int:
    """On rank 0: writes and prints what was found. Returns the exit code."""
    output: Path = arguments.output
    if found is None:
        print("it was interrupted before every call was made: nothing is written", file=sys.stderr)
        return 1
    text, report, is_void = found
    if is_void and not arguments.keep_noisy:
        print(f"{report}it is not written", flush=True)
        print(
            "shardway.calibrate: odd and even rounds differ by more than 25 %: --keep-noisy writes such figures too",
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
        host_of = hosts_of_ranks()
        mates = [rank for rank, host in enumerate(host_of) if host == 0]
        if len(mates) == 1:
            if dist.get_rank() == 0:
                print("shardway.calibrate: rank 0 is alone on its host; start at least 2 there", file=sys.stderr)
            return 2
        group = dist.new_group(mates) if len(mates) < len(host_of) else None
        found = None
        if dist.get_rank() in mates:
            clock.group = group
            trials = [_timed(*trial, group) for trial in _C.trials_up_to(arguments.most)]
            measure(trials, clock)
            if dist.get_rank() == 0:
                found = _found(trials, arguments, len(mates), is_complete=not clock.was_interrupted)
        told = [clock.was_interrupted]
        dist.broadcast_object_list(told, src=0)
        if group is not None and not told[0]:
            found = _with_hosts(found, host_of)
        return _finish(found, arguments, is_complete=not told[0]) if dist.get_rank() == 0 else 0

    return run_in_group("calibrate", arguments, lambda: _problem(arguments), body)


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
