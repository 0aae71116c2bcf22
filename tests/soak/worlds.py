"""One world after the other: a process that has torch loaded forks the ranks of each."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterable, Iterator

from tests.faults.leftovers import names_in_shared_memory
from tests.soak.life import live
from tests.soak.notice import Notice
from tests.soak.script import ROUND_LIMIT_S, Script, script_of
from tests.soak.stops import Stops
from tests.soak.tally import Tally
from tests.stress.crew import Outcome, Run, free_port, run_crew

WORLDS_OF_A_SEED = 1_000_003


def scripts_of(seed: int) -> Iterator[Script]:
    """The worlds of a run."""
    return (script_of(seed * WORLDS_OF_A_SEED + number) for number in range(WORLDS_OF_A_SEED))


def soak(
    scripts: Iterable[Script],
    seconds: float,
    show: Callable[[Tally, Script, Outcome], None],
    *,
    planted: str = "",
    round_limit_s: float = ROUND_LIMIT_S,
) -> Tally:
    """All worlds have the same job name and the same port, so that each begins where the last one has just ended."""
    tally, port = Tally(), free_port()
    deadline = time.monotonic() + seconds
    gc.collect()
    gc.freeze()  # what is here now is never looked through by the ranks
    try:
        for script in scripts:
            begun = time.monotonic()
            notice = Notice(script.ranks)
            stops = Stops(script, notice)
            outcome = _one_world(script, notice, stops, port, planted, round_limit_s)
            tally.add(script, outcome, stops.made, notice.struck > 0, time.monotonic() - begun)
            show(tally, script, outcome)
            if time.monotonic() > deadline:
                break
    finally:
        gc.unfreeze()
    tally.close()
    return tally


def _one_world(script: Script, notice: Notice, stops: Stops, port: int, planted: str, round_limit_s: float) -> Outcome:
    run = Run(
        ranks=script.ranks,
        seed=script.seed,
        seconds=0.0,
        rounds=script.rounds,
        kinds=list(script.kinds),
        round_limit_s=round_limit_s,
        port=port,
    )
    before = names_in_shared_memory()
    outcome = run_crew(run, functools.partial(live, script, notice, planted), stops)
    new = sorted(names_in_shared_memory() - before)
    outcome.findings += [f"left in /dev/shm: {name}" for name in new]
    return outcome
