"""Every example runs as its reader would run it, and checks itself against one process. Each is started once as a
program of its own, which imports what it needs; further runs are forks of this process, which has torch loaded."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from bench import engine_modules, timing
from tests.support.forked_programs import run_forked
from tests.support.jobs import free_ports
from tests.support.programs import run_program, started_program

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300  # on a machine under load


def run(*command: str, expect: int = 0) -> str:
    done = run_program([sys.executable, *command], cwd=ROOT, timeout_s=TIMEOUT_S)
    assert done.returncode == expect, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_again(*command: str, expect: int = 0, first: Callable[[], None] = lambda: None) -> str:
    """As `run`, in a fork: it costs a tenth of the CPU time."""
    done = run_forked(command, timeout_s=TIMEOUT_S, first=first)
    assert done.returncode == expect, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def measure_little() -> None:
    """Tests read what a bench writes and not its figures: two samples of each call are enough."""
    timing.MOST_CALLS, timing.WARM_UPS, timing.WARM_UP_US, timing.AGAIN_BELOW_S = 1, 0, 0.0, 0.0
    timing._rounds = lambda *_: iter(range(2))
    os.sched_yield = lambda: time.sleep(5e-5)  # ranks wait asleep, and leave their core to the others


def run_bench(name: str, *options: str, first: Callable[[], None] = measure_little) -> subprocess.CompletedProcess[str]:
    done = run_forked(["-m", f"bench.{name}", *options], timeout_s=TIMEOUT_S, first=first)
    assert done.returncode in (0, 1), done.stderr  # 1: a claim was missed, which so short a run does not tell
    return done


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_contrastive_gradient_is_that_of_one_process(ranks: int) -> None:
    output = run_again("examples/contrastive.py", "-n", str(ranks))
    assert output.startswith(f"{ranks} ranks, pairs per rank [12")
    assert output.endswith("ok: the distributed gradient is the one-process gradient\n")


def test_contrastive_compiles_in_one_graph_over_ragged_batches() -> None:
    output = run_again("examples/contrastive.py", "-n", "2", "--compile", "aot_eager")
    assert output.startswith("2 ranks, pairs per rank [12, 1]")
    assert output.endswith("ok: the distributed gradient is the one-process gradient\n")


def test_contrastive_fails_with_gradients_that_drop_other_ranks() -> None:
    assert "ok" not in run_again("examples/contrastive.py", "-n", "3", "--grad", "local", expect=1)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_expert_exchange_gives_outputs_and_gradients_of_one_process(ranks: int) -> None:
    output = run_again("examples/expert_exchange.py", "-n", str(ranks))
    assert output.startswith(f"{ranks} ranks, 2 experts each")
    assert output.endswith("ok: the exchange gives the outputs and gradients of one process\n")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_tensor_parallel_gives_loss_and_gradients_of_one_process(ranks: int) -> None:
    output = run_again("examples/tensor_parallel.py", "-n", str(ranks))
    assert output.startswith(f"{ranks} ranks, hidden columns per rank [")
    assert output.endswith("ok: loss and gradients are those of one process\n")


@pytest.mark.parametrize("ranks", [1, 3])
def test_owners_train_as_one_process_does(ranks: int) -> None:
    start = run if ranks == 3 else run_again
    output = start("examples/owners.py", "-n", str(ranks))
    assert output.startswith(f"{ranks} ranks, 4 matrices, owned by ranks [0")
    assert output.endswith("ok: the weights are those of one process\n")


def test_tensor_parallel_works_with_more_ranks_than_columns() -> None:
    output = run_again("examples/tensor_parallel.py", "-n", "3", "--hidden", "2")
    assert "hidden columns per rank [1, 1, 0]" in output


@pytest.mark.parametrize(("ranks", "victim", "backend"), [(3, 0, "gloo"), (4, 2, "shardway")])
def test_training_goes_on_without_a_killed_rank_as_if_it_had_been_started_so(
    ranks: int, victim: int, backend: str
) -> None:
    output = run_again("examples/keep_going.py", "-n", str(ranks), "--kill", str(victim), "--backend", backend)
    assert re.search(rf"rank {victim} was killed: error after .*, next step finished after \d+ ms\n", output)
    ending = rf"ok: after rank {victim} was killed, \d losses are those of a run that was started so\n"
    assert re.search(ending + "$", output), output


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_weights_arrive_whole_on_the_inference_mesh(ranks: int) -> None:
    output = run_again("examples/weights_to_inference.py", "-n", str(ranks))
    assert f"ok: the logits on ranks {list(range(ranks // 2, ranks))} are those of one process" in output


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_model_goes_to_another_mesh_and_back(ranks: int) -> None:
    start = run if ranks == 2 else run_again
    output = start("examples/model_relayout.py", "-n", str(ranks), "--width", "16", "--layers", "2")
    assert f"{ranks} ranks, 24 parameters" in output
    assert " ms for all at once; DTensor " in output
    assert output.endswith("ok: every parameter came back bit by bit\n")


def test_a_generator_gets_every_version_of_a_trainer_in_another_job() -> None:
    output = run_again("examples/refit.py")
    assert sorted(output.splitlines()) == [f"ok: version {v} on rank {r}" for v in (1, 2, 3) for r in range(2)]


def test_the_two_programs_of_the_tutorial_meet_under_two_torchruns(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    programs = [tmp_path / name for name in ("link_trainer.py", "link_generator.py")]
    for program in programs:
        text = (ROOT / "examples" / program.name).read_text()
        assert text.count(":29700") == 1
        program.write_text(text.replace(":29700", f":{port}"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with started_program([*torchrun, programs[0]], stdout=subprocess.PIPE) as trainer:
        received = run_again(*torchrun[1:], str(programs[1]))
        sent, _ = trainer.communicate(timeout=TIMEOUT_S)
    assert trainer.returncode == 0
    expected = [f"generator rank {r} has version {v}: (4, 3)" for r in range(2) for v in (1, 2, 3)]
    assert sorted(re.findall(r"generator rank \d has version \d: \(4, 3\)", received)) == expected
    expected = [f"trainer rank {r} sent version {v}" for r in range(2) for v in (1, 2, 3)]
    assert sorted(re.findall(r"trainer rank \d sent version \d", sent)) == expected


@pytest.mark.parametrize("example", ["contrastive", "expert_exchange", "tensor_parallel", "weights_to_inference"])
def test_example_joins_the_ranks_of_torchrun(example: str) -> None:
    output = run_again("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"examples/{example}.py")
    assert "2 ranks" in output
    assert "\nok: " in output


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_first_script_of_readme_runs_under_torchrun(ranks: int) -> None:
    script = ROOT / "examples/hello.py"
    assert len(script.read_text().splitlines()) <= 30  # it has to fit on a screen
    start = run if ranks == 2 else run_again
    output = start("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(script))
    rows = ranks * (ranks + 1) // 2
    expected = [f"ok: rank {r} of {ranks} had {r + 1} rows and now sees {rows}" for r in range(ranks)]
    assert sorted(re.findall(r"ok: rank \d of \d had \d rows and now sees \d+", output)) == expected


def test_demo_shows_gather_gradient_and_speed() -> None:
    run("examples/demo.py", "--help")  # it has all its imports
    output = run_again("examples/demo.py", first=measure_little)
    assert "00 01 20 30 31 32    sizes (2, 0, 1, 3)" in output
    assert output.count('grad="sum")   yes') == 2
    assert "times faster" in output
    assert "\x1b" not in output and "\r" not in output


def verdicts_in(output: str) -> int:
    return sum(output.count(f"\n  {verdict} ") for verdict in ("met", "MISSED", "OPEN"))


def test_bench_ragged_leaves_rows_claims_and_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run_bench("ragged", "--quick", "--seconds=0.05", "--ranks", "2", "--output", str(tmp_path))
    found = json.loads((tmp_path / "ragged.json").read_text())
    assert {row["op"] for row in found["rows"]} == {
        "forward",
        "forward+backward grad=local",
        "forward+backward grad=sum",
    }
    assert all(row.keys() >= {"op", "contender", "ranks", "shape", "bytes", "us", "spread"} for row in found["rows"])
    assert len(found["claims"]) == verdicts_in(done.stdout)
    assert (tmp_path / "ragged.png").read_bytes().startswith(b"\x89PNG")


def test_bench_redistribute_leaves_rows_claims_and_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ["--quick", "--seconds=0.05", "--most-rows=64", "--ranks", "2", "--output", str(tmp_path)]
    done = run_bench("redistribute", *options)
    found = json.loads((tmp_path / "redistribute.json").read_text())
    contenders = {row["contender"] for row in found["rows"] if row["op"] == "S0→S1"}
    assert contenders == {
        "shardway",
        "shardway, tensors in shared memory",
        "shardway on gloo",
        "DTensor on gloo",
        "plain copy",
    }
    assert {row["op"] for row in found["rows"]} == {"S0→S1", "S0→R", "P→S0", "P→R", "R→S0", "ragged→even"}
    assert all(row.keys() >= {"op", "contender", "ranks", "shape", "bytes", "us", "spread"} for row in found["rows"])
    assert {(peak["op"], peak["contender"]) for peak in found["peaks"]} == {
        (op, contender) for op in ("S0,S1→S1,S0", "S0,S0,S0→S1,S1,S1") for contender in ("shardway", "shardway on gloo")
    }
    assert len(found["claims"]) == verdicts_in(done.stdout)
    assert (tmp_path / "redistribute.png").read_bytes().startswith(b"\x89PNG")


def plant_engine(adds: Callable[[list[torch.Tensor]], torch.Tensor]) -> None:
    """An engine on gloo whose ranks each add the others' tensors to their own, in the order of the ranks behind it."""

    def join(module: engine_modules.Module, rank: int, ranks: int, session: str) -> engine_modules.Engine:
        def all_reduce(x: torch.Tensor) -> None:
            inputs = [torch.empty_like(x) for _ in range(ranks)]
            dist.all_gather(inputs, x)
            x.copy_(adds(inputs[rank:] + inputs[:rank]))

        return engine_modules.Engine(module.name, all_reduce)

    measure_little()
    engine_modules.found_modules = lambda peers: [engine_modules.Module("planted 1.0", peers, join)]


def test_bench_engines_leaves_rows_claims_and_what_bits_there_are(tmp_path: Path) -> None:
    plant = partial(plant_engine, lambda inputs: sum(inputs[1:], inputs[0]))
    done = run_bench("engines", "--quick", "--seconds=0.05", "--output", str(tmp_path), first=plant)
    found = json.loads((tmp_path / "engines.json").read_text())
    ways = {"shardway", "shardway, prepared", "shardway, torch.distributed", "gloo"}
    for op, contenders in (("all_reduce", {*ways, "planted 1.0"}), ("all_gather", ways)):
        rows = [row for row in found["rows"] if row["op"] == op]
        assert {row["contender"] for row in rows} == contenders
        assert {(row["dtype"], row["bytes"]) for row in rows} == {
            (dtype, size) for dtype in ("f32", "bf16") for size in (64, 2**16, 2**20)
        }
    assert found["engines"] == ["planted 1.0"]
    bits = {told["contender"]: told for told in found["bits"]}
    assert (bits["planted 1.0"]["same_on_ranks"], bits["planted 1.0"]["same_at_sizes"]) == ([], ["f32", "bf16"])
    assert "f64" in bits["planted 1.0"]["dtypes"]
    assert found["claims"][-1]["met"] is True
    assert len(found["claims"]) == verdicts_in(done.stdout) == 4


def test_bench_engines_ends_when_an_engine_gives_something_else(tmp_path: Path) -> None:
    plant = partial(plant_engine, lambda inputs: inputs[0] - inputs[1])
    options = ["-m", "bench.engines", "--quick", "--output", str(tmp_path)]
    done = run_forked(options, timeout_s=TIMEOUT_S, first=plant)
    assert done.returncode == 1
    assert "planted 1.0: all_reduce of 64 bytes, f32, gives something else" in done.stderr
    assert not (tmp_path / "engines.json").exists()


def test_bench_refit_leaves_rows_claims_and_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run_bench("refit", "--quick", "--output", str(tmp_path))
    found = json.loads((tmp_path / "refit.json").read_text())
    contenders = {row["contender"] for row in found["rows"] if row["op"] == "dense"}
    assert contenders - {"safetensors in tmpfs"} == {
        "shardway, first time",
        "shardway",
        "shardway, sources in shared memory",
        "shardway without waiting: what it holds the trainer",
        "gather and broadcast on gloo, per tensor",
        "gather and broadcast on gloo, in buckets",
        "send and recv on gloo, per parameter",
        "distributed checkpoint in tmpfs",
        "plain copy of the generators' parts",
        "plain copy of the trainers' parts",
    }
    assert {row["op"] for row in found["rows"]} == {"dense", "experts", "500 of 1 KiB"}
    assert all(row["sent"] == row["least"] for row in found["rows"] if row["contender"] == "shardway")
    assert len(found["claims"]) == verdicts_in(done.stdout)
    assert len(found["not_measured"]) == done.stdout.count("\n  not measured ")
    assert (tmp_path / "refit.png").read_bytes().startswith(b"\x89PNG")
