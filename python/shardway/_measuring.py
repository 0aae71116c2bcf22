"""What the programs that measure a group have in common: `-m shardway.bench` and `-m shardway.calibrate`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import torch.distributed as dist

from shardway._timing import TrialClock

ITEM_BYTES = 4


def add_measuring_arguments(parser: argparse.ArgumentParser, seconds: float) -> None:
    parser.add_argument("--backend", default="gloo", help="of torch.distributed, for CPU tensors; gloo when left out")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="the longest time to measure after a first round"
    )


def backend_text() -> str:
    """What moves the bytes of shardway's calls."""
    by_itself = os.environ.get("SHARDWAY_TRANSPORT") == "c10d"
    return dist.get_backend() + ("" if by_itself else ", shared memory where it can")


def date_of_now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def problem_with(output: Path) -> str:
    """Why the file cannot be written, or nothing."""
    if output.is_dir():
        return f"{output}: cannot be written: Is a directory"
    try:
        with tempfile.NamedTemporaryFile(dir=output.parent):
            return ""
    except OSError as error:
        return f"{output}: cannot be written: {error.strerror}"


def _problem(own_problem: Callable[[], str]) -> str:
    """Why this group cannot be measured, the same on every rank; or nothing."""
    if dist.get_world_size() == 1:
        return "one rank has nobody to send to; start at least 2"
    said = [own_problem() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(said, src=0)
    return said[0]


def run_in_group(
    program: str, arguments: argparse.Namespace, own_problem: Callable[[], str], body: Callable[[TrialClock], int]
) -> int:
    """Joins the group of torchrun and runs the body there, unless there is a problem; gives the exit code.

    `own_problem` is asked on rank 0 alone, once the group is there.
    """
    dist.init_process_group(arguments.backend)
    try:
        if problem := _problem(own_problem):
            if dist.get_rank() == 0:
                print(f"shardway.{program}: {problem}", file=sys.stderr, flush=True)
            return 2
        clock = TrialClock(arguments.seconds)
        clock.listen()
        return body(clock)
    finally:
        dist.destroy_process_group()
