"""PyTorch's own suite for backends on shardway: python -m tests.torch_suite [name ...].

Every test that does not pass stands in expected.json with its reason; one that does and passes is a mistake too. Those
of slow.json are not run.
A sample runs a second time under TORCH_DISTRIBUTED_DEBUG=DETAIL.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

LEAST_PASSED = 200  # of those that the gates for the CPU let through
AT_ONCE = 2
DETAIL_SAMPLE = (
    "test_all_gather",
    "test_all_gather_coalesced_simple",
    "test_all_reduce_sum",
    "test_all_to_all_single_unequal_split",
    "test_barrier",
    "test_broadcast",
    "test_gather",
    "test_isend",
    "test_scatter",
    "test_send_recv_any_source",
    "test_ddp_uneven_input_join_disable",
    "test_DistributedDataParallelCPU",
)
SLOW = json.loads((Path(__file__).parent / "slow.json").read_text())  # these are not run, and why
_FOLDER = Path("build/torch_suite")

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402

import shardway  # noqa: E402, F401
from tests.torch_suite.forked import Outcome, Running  # noqa: E402
from tests.torch_suite.gates import CPU_GATES, GATES, is_shut, load, names_of, suite_of  # noqa: E402


def run(names: list[str], detail: bool = False) -> list[Outcome]:
    torch.set_num_threads(1)
    if detail:
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        torch.distributed.set_debug_level_from_env()
    modules = {gate: load(gate) for gate in GATES}
    suites = {gate: suite_of(module) for gate, module in modules.items()}
    waiting = list(reversed(names or [name for name in names_of(suites["gloo"]) if name not in SLOW]))
    outcomes: list[Outcome] = []
    running: list[Running] = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop()
            gate = next((gate for gate in GATES if not is_shut(suites[gate], name)), None)
            if gate is None:
                outcomes.append(Outcome(name, "skipped", "no gate lets it through"))
                continue
            log = str(_FOLDER / f"{name}{'.detail' if detail else ''}.log")
            running.append(Running(modules[gate], suites[gate], name, gate, log))
        for each in list(running):
            outcome = each.poll()
            if outcome is not None:
                running.remove(each)
                outcomes.append(outcome)
                if outcome.verdict != "passed":
                    print(f"{outcome.verdict}: {outcome.name} ({outcome.seconds:.1f} s)", flush=True)
        time.sleep(0.005)
    return outcomes


def main(names: list[str]) -> int:
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for log in _FOLDER.glob("*.log"):
        log.unlink()
    start = time.monotonic()
    outcomes = run(names)
    expected: dict[str, str] = json.loads((Path(__file__).parent / "expected.json").read_text())
    mistakes = []
    for outcome in outcomes:
        if outcome.verdict == "failed" and outcome.name not in expected:
            mistakes.append(f"{outcome.name} fails:\n{outcome.words}")
        elif outcome.verdict == "skipped" and outcome.name not in expected:
            mistakes.append(f"{outcome.name} is skipped: {outcome.words}")
        elif outcome.verdict == "passed" and outcome.name in expected:
            mistakes.append(f"{outcome.name} passes, but expected.json says: {expected[outcome.name]}")
    passed = [outcome for outcome in outcomes if outcome.verdict == "passed"]
    for_cpu = sum(outcome.gate in CPU_GATES for outcome in passed)
    print(
        f"{len(passed)} of {len(outcomes) + (0 if names else len(SLOW))} pass in {time.monotonic() - start:.0f} s, "
        f"{for_cpu} of them through the gates of {' and '.join(CPU_GATES)}, "
        f"{sum(outcome.without_gpus for outcome in passed)} with the CPU in place of GPUs"
    )
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:5]
    print("the slowest: " + ", ".join(f"{o.name} {o.seconds:.1f} s" for o in slowest))
    if not names:
        if for_cpu < LEAST_PASSED:
            mistakes.append(f"{for_cpu} pass through the gates of {' and '.join(CPU_GATES)}, fewer than {LEAST_PASSED}")
        again = run(list(DETAIL_SAMPLE), detail=True)
        print(f"under DETAIL {sum(o.verdict == 'passed' for o in again)} of {len(again)} pass")
        mistakes += [f"{o.name} under DETAIL: {o.words}" for o in again if o.verdict != "passed"]
    (_FOLDER / "outcomes.json").write_text(json.dumps([outcome.__dict__ for outcome in outcomes], indent=1))
    for mistake in mistakes:
        print(mistake)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
