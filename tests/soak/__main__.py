"""World after world: random calls on random groups, and ranks that die, stop, fork, disagree or lack something.

    make soak                                          an hour
    python -m tests.soak --minutes 5 --seed 7
    python -m tests.soak --world 7000021               one world again

A world has two to five ranks, forked from this process, and lives for some rounds (those of tests/stress). In most of
them a rank is killed at last: in a call of a group, where every survivor must be told of it within a second (by
messages of gloo: within the timeout and a second), or anywhere; time in which the survivor waited for a core does not
count. The next world begins at once, with the same job name
and the same port. Every value is compared with what one process computes from the seed; a rank that stands still is a
hang; what a world leaves behind is looked for. Exit code 1 if anything that must be zero is not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

# Loaded once here and not in every rank: autograd and DTensor load these at first use.
import torch._dynamo
import torch._inductor.lowering
import torch.fx.experimental.symbolic_shapes

from tests.soak.plants import PLANTS
from tests.soak.script import ROUND_LIMIT_S, Script, script_of
from tests.soak.tally import Tally
from tests.soak.worlds import scripts_of, soak
from tests.stress.crew import Outcome

SHOW_EVERY_S = 5.0


def main() -> int:
    torch.set_num_threads(1)  # ranks are forked from this process: it must have no threads
    options = _parser().parse_args()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(3), "little")
    scripts = scripts_of(seed) if options.world is None else [script_of(options.world)] * options.times
    print(
        f"seed {seed}, {options.minutes:g} minutes" if options.world is None else f"world {options.world}", flush=True
    )
    seconds = 60 * options.minutes
    show = _shower(seconds, options.plant)
    tally = soak(scripts, seconds, show, planted=options.plant, round_limit_s=options.round_limit)
    print(f"\n{tally.table()}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"seed": seed, **tally.as_json()}, indent=1) + "\n")
    return 1 if tally.findings else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="of a run to repeat (default: a new one, which is printed)")
    parser.add_argument("--world", type=int, metavar="SEED", help="one world alone, by its own seed")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="that world so often")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument(
        "--round-limit", type=float, default=ROUND_LIMIT_S, help="seconds after which a round is a hang"
    )
    parser.add_argument("--plant", choices=PLANTS, default="", help=argparse.SUPPRESS)
    return parser


def _shower(seconds: float, planted: str) -> Callable[[Tally, Script, Outcome], None]:
    deadline = time.monotonic() + seconds
    shown = 0.0

    def show(tally: Tally, script: Script, outcome: Outcome) -> None:
        nonlocal shown
        for finding in outcome.findings:
            print(f"\n{finding}")
        if outcome.findings:
            more = f" --plant {planted}" if planted else ""
            print(
                f"  world {script.seed}: {script}\n  again: python -m tests.soak --world {script.seed}{more}",
                flush=True,
            )
        now = time.monotonic()
        if now - shown >= SHOW_EVERY_S:
            shown = now
            print(f"{max(0.0, deadline - now):6.0f} s left: {tally.line()}", flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
