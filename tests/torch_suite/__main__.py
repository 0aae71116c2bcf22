"""PyTorch's own suite for backends on shardway: python -m tests.torch_suite [--hosts | --one-gpu] [name ...].

Every test that does not pass stands in expected.json with its reason; one that does and passes is a mistake too. Those
of slow.json are not run.
A sample runs a second time under TORCH_DISTRIBUTED_DEBUG=DETAIL, and a third time with ranks on two hosts. --hosts runs
all tests there; those that pass on one host only stand in expected_on_hosts.json. --one-gpu runs the tests that ask for
GPUs with ranks that share one; those that do not pass there stand in expected_on_one_gpu.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
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
HOSTS_SAMPLE = (
    *DETAIL_SAMPLE,
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_full_group_product",
    "test_all_reduce_full_group_max",
    "test_all_reduce_group_sum",
    "test_all_reduce_sum_async",
    "test_all_reduce_complex_unsupported_ops",
    "test_all_to_all_group",
    "test_barrier_group",
    "test_batch_isend_irecv_ring_exchange_nccl",
    "test_coalescing_manager_async",
    "test_ddp_control_flow_different_across_ranks",
    "test_ddp_hook_parity_allreduce",
    "test_ddp_join_model_equivalence",
    "test_destroy_group",
    "test_irecv",
    "test_monitored_barrier_gloo_subgroup",
    "test_post_localSGD_optimizer_parity",
    "test_reduce_scatter_tensor_cuda",
    "test_reduce_scatter_v_cuda",
    "test_reduce_sum_twice",
    "test_scatter_object_list",
    "test_send_recv_with_tag_autograd_profiler",
    "test_sync_bn_logged",
)
LEAST_SENT_BYTES = 1000  # by each of two hosts for every test that passes, in the mean
_FOLDER = Path("build/torch_suite")


def listed(file: str) -> dict[str, str]:
    """Names of tests, and a reason each."""
    reasons: dict[str, str] = json.loads((Path(__file__).parent / file).read_text())
    return reasons


SLOW = listed("slow.json")  # these are not run

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a process that has asked the driver can fork no ranks that use it

import torch  # noqa: E402

import shardway  # noqa: E402, F401
from tests.support.hosts import Host, NoHosts, hosts  # noqa: E402
from tests.support.one_gpu import mps  # noqa: E402
from tests.torch_suite.forked import CPU, Outcome, Running  # noqa: E402
from tests.torch_suite.gates import CPU_GATES, GATES, is_shut, load, names_of, suite_of, wants_gpus  # noqa: E402


def run(names: list[str], detail: bool = False, on: Sequence[Host] = (), device: torch.device = CPU) -> list[Outcome]:
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
                if device == CPU:
                    outcomes.append(Outcome(name, "skipped", "no gate lets it through"))
                continue
            kind = ".detail" if detail else ".hosts" if on else ".gpu" if device != CPU else ""
            if device != CPU and not wants_gpus(modules[gate], suites[gate], name):
                continue
            log = str(_FOLDER / f"{name}{kind}.log")
            running.append(Running(modules[gate], suites[gate], name, gate, log, on, device))
        for each in list(running):
            outcome = each.poll()
            if outcome is not None:
                running.remove(each)
                outcomes.append(outcome)
                if outcome.verdict != "passed":
                    print(f"{outcome.verdict}: {outcome.name} ({outcome.seconds:.1f} s)", flush=True)
        time.sleep(0.005)
    return outcomes


def verdicts(outcomes: list[Outcome], expected: dict[str, str]) -> list[str]:
    """What came otherwise than expected."""
    mistakes = []
    for outcome in outcomes:
        if outcome.verdict == "failed" and outcome.name not in expected:
            mistakes.append(f"{outcome.name} fails:\n{outcome.words}")
        elif outcome.verdict == "skipped" and outcome.name not in expected:
            mistakes.append(f"{outcome.name} is skipped: {outcome.words}")
        elif outcome.verdict == "passed" and outcome.name in expected:
            mistakes.append(f"{outcome.name} passes, but is expected not to: {expected[outcome.name]}")
    return mistakes


def told(outcomes: list[Outcome], of: int, start: float) -> None:
    passed = [outcome for outcome in outcomes if outcome.verdict == "passed"]
    print(
        f"{len(passed)} of {of} pass in {time.monotonic() - start:.0f} s, "
        f"{for_cpu(outcomes)} of them through the gates of {' and '.join(CPU_GATES)}, "
        f"{sum(outcome.without_gpus for outcome in passed)} with one device in place of GPUs"
    )
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:5]
    print("the slowest: " + ", ".join(f"{o.name} {o.seconds:.1f} s" for o in slowest))


def for_cpu(outcomes: list[Outcome]) -> int:
    return sum(outcome.verdict == "passed" and outcome.gate in CPU_GATES for outcome in outcomes)


def run_on_hosts(names: list[str], expected: dict[str, str]) -> list[str]:
    """The mistakes of these tests, or of all, with ranks on two hosts."""
    start = time.monotonic()
    try:
        with hosts(2) as two:
            outcomes = run(names, on=two)
            sent = [host.sent_bytes() for host in two]
    except NoHosts as why:
        print(f"not run on two hosts: {why}")
        return []
    print("on two hosts: ", end="")
    told(outcomes, len(outcomes), start)
    mistakes = [f"on two hosts {mistake}" for mistake in verdicts(outcomes, expected)]
    passed = sum(outcome.verdict == "passed" for outcome in outcomes)
    if min(sent) < LEAST_SENT_BYTES * passed:
        mistakes.append(f"the two hosts sent only {sent} bytes to each other")
    return mistakes


def run_on_one_gpu(names: list[str], expected: dict[str, str]) -> list[str]:
    """The mistakes of these tests, or of all that ask for GPUs, with ranks that share one."""
    start = time.monotonic()
    with mps():
        outcomes = run(names, device=torch.device("cuda:0"))
    print("on one GPU: ", end="")
    told(outcomes, len(outcomes), start)
    return [f"on one GPU {mistake}" for mistake in verdicts(outcomes, expected)]


def main(arguments: list[str]) -> int:
    names = [argument for argument in arguments if not argument.startswith("--")]
    _FOLDER.mkdir(parents=True, exist_ok=True)
    for log in _FOLDER.glob("*.log"):
        log.unlink()
    expected = listed("expected.json")
    expected_on_hosts = expected | listed("expected_on_hosts.json")
    if "--hosts" in arguments:
        mistakes = run_on_hosts(names, expected_on_hosts)
    elif "--one-gpu" in arguments:
        mistakes = run_on_one_gpu(names, listed("expected_on_one_gpu.json"))
    else:
        start = time.monotonic()
        outcomes = run(names)
        mistakes = verdicts(outcomes, expected)
        told(outcomes, len(outcomes) + (0 if names else len(SLOW)), start)
        (_FOLDER / "outcomes.json").write_text(json.dumps([outcome.__dict__ for outcome in outcomes], indent=1))
        if not names:
            if for_cpu(outcomes) < LEAST_PASSED:
                mistakes.append(f"fewer than {LEAST_PASSED} pass through the gates of {' and '.join(CPU_GATES)}")
            mistakes += run_on_hosts(list(HOSTS_SAMPLE), expected_on_hosts)
            again = run(list(DETAIL_SAMPLE), detail=True)
            print(f"under DETAIL {sum(o.verdict == 'passed' for o in again)} of {len(again)} pass")
            mistakes += [f"{o.name} under DETAIL: {o.words}" for o in again if o.verdict != "passed"]
    for mistake in mistakes:
        print(mistake)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
