"""Everything at once for half an hour: every value checked, nothing may crash, hang or grow.

    make stress                                            30 minutes, 3 ranks
    python -m tests.stress --minutes 2 --ranks 4 --seed 7 --only ops,async --without forks

Each round draws a kind (listed by --kinds) from the seed, the same on every rank, after groups of some of the ranks
have come and gone. What a round gives is compared with what one process computes from the seed. A round that lasts too
long is a hang: every rank's stacks are printed. Memory, descriptors and mappings of every rank are looked at when a
tenth of the time is over and at the end. Exit code 1 for anything wrong.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.stress.crew import Outcome, Run, free_port, run_crew
from tests.stress.kinds import KINDS
from tests.stress.rounds import stress


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if options.kinds:
        for name, kind in KINDS.items():
            print(f"{name:20} {kind.summary}")
        return 0
    kinds = _chosen(parser, options.only, options.without)
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
    run = Run(
        ranks=options.ranks,
        seed=seed,
        seconds=60 * options.minutes,
        rounds=options.rounds,
        kinds=kinds,
        round_limit_s=options.round_limit,
        port=free_port(),
    )
    print(f"seed {seed}, {run.ranks} ranks, {options.minutes:g} minutes, kinds: {', '.join(kinds)}", flush=True)
    return _report(run_crew(run, stress), seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stress", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, help="end after this many, if the time is not over before")
    parser.add_argument("--ranks", type=int, choices=(2, 3, 4), default=3)
    parser.add_argument("--seed", type=int, help="of a run to repeat (default: a new one, which is printed)")
    parser.add_argument("--only", default="", help="kinds, divided by commas")
    parser.add_argument("--without", default="", help="kinds to leave out")
    parser.add_argument("--round-limit", type=float, default=90.0, help="seconds after which a round is a hang")
    parser.add_argument("--kinds", action="store_true", help="list the kinds")
    return parser


def _chosen(parser: argparse.ArgumentParser, only: str, without: str) -> list[str]:
    named, left_out = (text.split(",") if text else [] for text in (only, without))
    for name in (*named, *left_out):
        if name not in KINDS:
            parser.error(f"there is no kind {name}; --kinds lists them")
    return [name for name in named or KINDS if name not in left_out]


def _report(outcome: Outcome, seed: int) -> int:
    print("\nrounds: " + ", ".join(f"{name} {count}" for name, count in outcome.rounds.items()))
    for rank, usage in enumerate(outcome.usage):
        print(f"rank {rank}: {usage}")
    for finding in outcome.findings:
        print(f"\n{finding}")
    counts = {word: sum(f.startswith(word) for f in outcome.findings) for word in ("wrong", "crash", "hang", "grown")}
    others = len(outcome.findings) - sum(counts.values())
    print(
        f"\n{sum(outcome.rounds.values())} rounds, {counts['wrong']} wrong values, {counts['crash']} crashes, "
        f"{counts['hang']} hangs, {counts['grown']} that grew, {others} other failures (seed {seed})"
    )
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
