"""Jobs in C++ on a link, with a job in Python or alone: tests/link/linked_program.cpp is a rank of one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.jobs import Place, free_ports, in_a_child, poisoned, run_jobs
from tests.support.programs import started_program

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
PROGRAM = BUILD / "tests/linked_program"
LIMIT_S = 80.0
RANKS = 2

WHOLE = torch.arange(42.0).view(7, 6)
BIAS = torch.tensor([1.0, 1.0 + 2**-9, 3.0, -0.5, 1e5])  # the second and the last are rounded in bfloat16
ROWS = sw.Layout((7, 6), torch.float32, sw.Mesh((RANKS,)), [sw.Shard(0)])
COLUMNS = sw.Layout((7, 6), torch.float32, sw.Mesh((RANKS,)), [sw.Shard(1)])


@contextmanager
def _cpp_job(
    address: str, role: str, calls: Sequence[str], timeout_s: int = 20
) -> Iterator[Callable[[], list[list[Any]]]]:
    """Ranks in C++ that make these calls; what they printed, a list per rank, when they have ended."""
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                started_program(
                    [PROGRAM, address, role, rank, RANKS, "open", timeout_s],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
            )
            for rank in range(RANKS)
        ]

        def answers() -> list[list[Any]]:
            found = []
            for rank in ranks:
                out, _ = rank.communicate(timeout=LIMIT_S)
                found.append([json.loads(line) for line in out.splitlines()])
            return found

        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("".join(f"{call}\n" for call in calls))
            rank.stdin.flush()
        yield answers


def _rows_of(answers: list[list[Any]], call: int) -> torch.Tensor:
    """What the ranks received in a call, put together."""
    return torch.cat([torch.tensor(rank[call]["rows"]).view(-1, 6) for rank in answers])


def _part(whole: torch.Tensor, layout: sw.Layout, rank: int) -> sw.MeshTensor:
    offset, extent = layout.box(rank)
    part = whole[tuple(slice(begin, begin + length) for begin, length in zip(offset, extent, strict=True))]
    return sw.MeshTensor(part.clone(), layout)


def test_cpp_ranks_receive_what_python_ranks_send():
    """The first two versions go by the hub's word or by votes, whichever; the fourth by votes alone."""

    def train(place: Place) -> str:
        with place.connect() as link:
            weights = _part(WHOLE, COLUMNS, place.rank)
            source = link.publish({"w": weights, "b": BIAS})
            for version in range(1, 5):
                assert source.send() == version
                weights.local.add_(1000)
            return source.explain()

    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    calls = ["subscribe", "receive", "receive", "receive", "receive", "explain", "close", "receive"]
    with _cpp_job(address, "engine", calls) as answers:
        explained = run_jobs({"trainer": (2, train)}, address=address)["trainer"][0]
        found = answers()
    for version in range(1, 5):
        assert torch.equal(_rows_of(found, version), WHOLE + 1000 * (version - 1))
        for rank in found:
            assert rank[version]["version"] == version and rank[version]["state"] is None
            assert rank[version]["bias"] == BIAS.bfloat16().tolist()
            assert rank[version]["is_untouched"]
    for rank in found:
        assert rank[5].splitlines()[:-1] == explained.splitlines()[:-1]  # the last line has the memory of the rank
        assert "memory here: 20 B for other dtypes" in rank[5]
        assert "the link is closed: it was closed" in rank[7]["DistBackendError"]


def test_a_difference_is_an_error_on_both_sides_and_the_link_stays_usable():
    def train(place: Place) -> str:
        """Whoever declares last has the error in that call, the other one in its current or next call."""
        tensors = {"w": _part(WHOLE, COLUMNS, place.rank), "b": BIAS}
        with place.connect() as link:
            with pytest.raises(ValueError) as raised:
                link.publish(tensors).send()
            assert link.publish(tensors).send() == 1
            return str(raised.value)

    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with _cpp_job(address, "engine", ["subscribe_wrongly", "subscribe", "receive"]) as answers:
        errors = run_jobs({"trainer": (2, train)}, address=address)["trainer"]
        found = answers()
    lines = [
        ": 2 differences",
        "b: the dtypes differ, and cast=True is not given: published float32[5] whole on role trainer ranks 0-1, "
        "subscribed bfloat16[5] whole on role engine ranks 0-1",
        "w: the shapes differ: published float32[7,6] as S1 over 2 ranks on role trainer ranks 0-1, "
        "subscribed float32[7,5] whole on role engine ranks 0-1",
    ]
    for error in [*errors, *(rank[0]["ValueError"] for rank in found)]:
        assert all(line in error for line in lines), error
    assert torch.equal(_rows_of(found, 2), WHOLE)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_cpp_link_that_an_exception_destroys_is_told_as_a_loss():
    def train(place: Place) -> None:
        with place.connect() as link:
            source = link.publish({"w": WHOLE.clone(), "b": BIAS})
            assert source.send() == 1
            with pytest.raises(dist.DistBackendError, match="a subscriber is gone: role engine rank"):
                source.send()

    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with _cpp_job(address, "engine", ["subscribe", "receive", "throw"]) as answers:
        run_jobs({"trainer": (1, train)}, address=address)
        found = answers()
    assert [rank[-1] for rank in found] == [{"thrown": "of the caller's own"}] * RANKS


@pytest.mark.parametrize("victim", [0, 1])
def test_a_trainer_that_dies_is_named_and_its_next_version_arrives(victim):
    """Rank 0 of the trainer holds the link: with it the C++ ranks lose the process that they ask."""

    def train_until_lost(place: Place) -> None:
        with place.connect() as link:
            source = link.publish({"w": _part(WHOLE, COLUMNS, place.rank), "b": BIAS})
            assert source.send() == 1
            if place.rank == victim:
                _die()
            with pytest.raises(dist.DistBackendError):
                source.send()
                source.send()

    def train(place: Place) -> None:
        if place.rank == victim:
            assert in_a_child(lambda: train_until_lost(place)) == signal.SIGKILL
        else:
            train_until_lost(place)
        with place.connect() as link:
            link.publish({"w": _part(WHOLE + 7, COLUMNS, place.rank), "b": BIAS}).send()

    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with _cpp_job(address, "engine", ["subscribe", "receive", "survive"]) as answers:
        run_jobs({"trainer": (2, train)}, address=address)
        found = answers()
    assert torch.equal(_rows_of(found, 1), WHOLE)
    assert torch.equal(_rows_of(found, 2), WHOLE + 7)
    for rank in found:
        assert rank[2]["version"] > 1 and rank[2]["state"] is None
        assert 1 <= len(rank[2]["errors"]) <= 2
        assert re.search(rf"receive: .*role trainer rank {victim}", rank[2]["errors"][0]), rank[2]["errors"]
        assert rank[2]["states"][0] is None  # the first version was whole, and nothing has been written since


def test_python_ranks_receive_what_cpp_ranks_send():
    def generate(place: Place) -> list[Any]:
        columns, bias = poisoned(7, 3), poisoned(5)
        with place.connect() as link:
            target = link.subscribe({"w": sw.MeshTensor(columns, COLUMNS), "b": bias})
            return [(target.receive(), columns.tolist(), bias.tolist()) for _ in range(3)]

    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    calls = ["publish", "send", "send_wrongly", "send", "send_others"]
    with _cpp_job(address, "trainer", calls) as answers:
        found = run_jobs({"generator": (2, generate)}, address=address)["generator"]
        printed = answers()
    for version, added, bias in ((1, 1000, 0), (2, 2000, 0), (3, 7000, 1)):
        whole = torch.cat([torch.tensor(found[rank][version - 1][1]) for rank in range(RANKS)], dim=1)
        assert torch.equal(whole, WHOLE + added)
        for rank in range(RANKS):
            assert found[rank][version - 1][0] == version
            assert found[rank][version - 1][2] == (torch.arange(5.0) + bias).tolist()
    for rank in printed:
        assert [rank[call] for call in (0, 1, 3, 4)] == [0, 1, 2, 3]
        assert "what role trainer sends: 4 differences" in rank[2]["ValueError"]
        assert "w: it is not as it was published (role trainer rank 0)" in rank[2]["ValueError"]


def test_jobs_in_cpp_alone_make_a_link():
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with (
        _cpp_job(address, "trainer", ["publish", "send", "send"]) as sent,
        _cpp_job(address, "engine", ["subscribe", "receive", "receive"]) as received,
    ):
        assert sent() == [[0, 1, 2]] * RANKS
        found = received()
    for version in (1, 2):
        assert torch.equal(_rows_of(found, version), WHOLE + 1000 * version)
        assert all(rank[version]["bias"] == torch.arange(5.0).tolist() for rank in found)


def test_cpp_ranks_send_to_functions_in_portions():
    def generate(place: Place) -> list[Any]:
        taken: list[Any] = []
        whole = [
            sw.Layout(tuple(tensor.shape), torch.float32, sw.Mesh((2,)), [sw.Replicate()]) for tensor in (WHOLE, BIAS)
        ]

        def take(name: str, piece: torch.Tensor) -> None:
            taken.append((name, piece.tolist()))

        with place.connect() as link:
            loads = [sw.Load(layout, torch.float32, take, max_bytes=WHOLE.nbytes) for layout in whole]
            target = link.subscribe({"w": loads[0], "b": loads[1]})
            assert [target.receive() for _ in range(2)] == [1, 2]
        return taken

    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with _cpp_job(address, "trainer", ["publish", "send", "send"]) as answers:
        found = run_jobs({"generator": (2, generate)}, address=address)["generator"]
        assert answers() == [[0, 1, 2]] * RANKS
    bias = torch.arange(5.0).tolist()
    versions = [(WHOLE + 1000 * version).tolist() for version in (1, 2)]
    assert found == [[("w", versions[0]), ("b", bias), ("w", versions[1]), ("b", bias)]] * 2


def _pieces(rank: int, version: int, bias: torch.Tensor) -> list[dict[str, Any]]:
    """What the functions of a C++ rank are given, in the order declared."""
    rows = _part(WHOLE + 1000 * version, ROWS, rank).local
    assert rows is not None
    return [
        {"name": "b", "dtype": "bfloat16", "piece": bias.bfloat16().tolist()},
        {"name": "w", "dtype": "float32", "piece": rows.flatten().tolist()},
    ]


def _train_versions(place: Place, versions: int, fails: int = 0) -> list[str]:
    told = []
    with place.connect() as link:
        weights = _part(WHOLE, COLUMNS, place.rank)
        source = link.publish({"w": weights, "b": BIAS})
        for version in range(1, versions + 1):
            assert weights.local is not None
            weights.local.add_(1000)
            if version == fails:
                with pytest.raises(dist.DistBackendError) as found:
                    source.send()
                told.append(str(found.value))
            else:
                assert source.send() == version
    return told


def test_functions_of_cpp_ranks_get_the_pieces_that_python_ranks_send():
    """In two portions: both pieces together are larger than the least buffer."""
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    calls = ["subscribe_loads", "receive_loads", "receive_loads", "explain"]
    with _cpp_job(address, "engine", calls) as answers:
        run_jobs({"trainer": (2, lambda place: _train_versions(place, 2))}, address=address)
        found = answers()
    for rank in range(RANKS):
        for version in (1, 2):
            taken = found[rank][version]
            assert taken == {"version": version, "taken": _pieces(rank, version, BIAS), "state": None}
        largest = 4 * _part(WHOLE, ROWS, rank).local.numel()
        assert found[rank][3].endswith(f"memory here: {largest} B for other dtypes, 0 B for versions held")


def test_a_function_that_throws_in_cpp_is_told_to_all_and_the_next_version_comes():
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    calls = ["subscribe_loads", "receive_loads", "fail", "receive_loads"]
    with _cpp_job(address, "engine", calls) as answers:
        told = run_jobs({"trainer": (2, lambda place: _train_versions(place, 3, fails=2))}, address=address)["trainer"]
        found = answers()
    words = "role engine rank 1: the Load of w raised std::runtime_error: no such layer"
    assert found[1][2]["runtime_error"] == "no such layer"
    for text in (*(text for texts in told for text in texts), found[0][2]["DistBackendError"]):
        assert words in text
    for rank in range(RANKS):
        assert found[rank][2]["version"] == 1
        assert "version 2 did not arrive: " in found[rank][2]["state"] and "no such layer" in found[rank][2]["state"]
        assert found[rank][3] == {"version": 3, "taken": _pieces(rank, 3, BIAS), "state": None}


def test_what_is_wrong_with_a_load_of_a_cpp_rank_is_said():
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with _cpp_job(address, "engine", ["publish_load", "subscribe_loads_wrongly"]) as answers:
        found = answers()
    for rank in range(RANKS):
        assert "w: a Load is a destination and cannot be sent" in found[rank][0]["ValueError"]
        assert "b: its Load has no function" in found[rank][1]["ValueError"]
        assert "w: max_bytes=0 of its Load is not a positive number of bytes" in found[rank][1]["ValueError"]


def _receive_slowly(place: Place, versions: int) -> list[Any]:
    columns, bias, found = poisoned(7, 3), poisoned(5), []
    with place.connect() as link:
        target = link.subscribe({"w": sw.MeshTensor(columns, COLUMNS), "b": bias})
        for _ in range(versions):
            time.sleep(0.05)
            found.append((target.receive(), columns.tolist(), bias.tolist()))
    return found


def test_a_cpp_send_that_does_not_wait_holds_two_versions_and_all_arrive_in_order():
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    calls = ["publish", *["send_held"] * 5, "explain", "send", "send_wrongly", "send_others_held", "send_held"]
    with _cpp_job(address, "trainer", calls) as answers:
        got = run_jobs({"generator": (2, lambda place: _receive_slowly(place, 8))}, address=address)["generator"]
        found = answers()
    for i, added in enumerate((1000, 2000, 3000, 4000, 5000, 6000, 11000, 11000)):
        for rank in range(RANKS):
            version, columns, bias = got[rank][i]
            assert version == i + 1 and columns == _part(WHOLE + added, COLUMNS, rank).local.tolist()
            assert bias == (torch.arange(5.0) + (added > 7000)).tolist()
    for rank in range(RANKS):
        for version in range(1, 6):
            sent = found[rank][version]
            assert sent["version"] == version and version - 2 <= sent["arrived"] <= version
        assert f", {2 * 4 * (ROWS.box(rank)[1][0] * 6 + 5)} B for versions held" in found[rank][6]
        assert found[rank][7] == 6 and "w: it is not as it was published" in found[rank][8]["ValueError"]
        assert found[rank][9:] == [7, {"version": 8, "arrived": found[rank][10]["arrived"]}]


def test_a_cpp_send_that_failed_while_nobody_waited_is_raised_by_the_next_call():
    """Nobody receives: the version is given up after the timeout."""
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with _cpp_job(address, "trainer", ["publish", "send_held", "send_held", "close"], timeout_s=1) as answers:
        for _, first, *rest in answers():
            assert first == {"version": 1, "arrived": 0}
            errors = [answer["DistBackendError"] for answer in rest if "DistBackendError" in answer]
            assert errors and all("send: waited for 1 s: no job subscribed" in error for error in errors), rest


@pytest.mark.parametrize("moment", ["before anybody subscribed", "between two versions"])
def test_a_cpp_link_that_an_exception_destroys_does_not_wait_for_what_is_held(moment):
    def receive_one(place: Place) -> None:
        with place.connect() as link:
            target = link.subscribe({"w": poisoned(7, 6), "b": poisoned(5)})
            assert target.receive() == 1
            with pytest.raises(dist.DistBackendError, match="role trainer rank"):
                time.sleep(1)
                for _ in range(3):
                    target.receive()

    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    first = ["send"] if moment == "between two versions" else []
    with _cpp_job(address, "trainer", ["publish", *first, "send_held", "send_held", "throw"]) as answers:
        if first:
            run_jobs({"generator": (1, receive_one)}, address=address)
        start = time.monotonic()
        found = answers()
        assert time.monotonic() - start < 10  # of a timeout of 20 s
    assert [rank[-1] for rank in found] == [{"thrown": "of the caller's own"}] * RANKS


def test_the_example_takes_the_weights_of_the_trainer_of_the_tutorial(tmp_path):
    port = free_ports(1)[0]
    trainer = tmp_path / "link_trainer.py"
    trainer.write_text((ROOT / "examples/link_trainer.py").read_text().replace(":29700", f":{port}"))
    commands = [[sys.executable, trainer], [BUILD / "examples/link_generator", f"tcp://127.0.0.1:{port}"]]
    with contextlib.ExitStack() as stack:
        environments = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
        _, generators = (
            [
                stack.enter_context(started_program(command, stdout=subprocess.PIPE, env=environment))
                for environment in environments
            ]
            for command in commands
        )
        for rank, generator in enumerate(generators):
            out, _ = generator.communicate(timeout=LIMIT_S)
            assert out.splitlines() == [f"generator rank {rank} has version {version}" for version in (1, 2, 3)]
            assert generator.returncode == 0


def test_the_example_quantises_what_a_job_in_cpp_sends_without_waiting():
    program, address = BUILD / "examples/link_quantised", f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with contextlib.ExitStack() as stack:
        trainers, generators = (
            [
                stack.enter_context(
                    started_program(
                        [program, role, address],
                        stdout=subprocess.PIPE,
                        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
                    )
                )
                for rank in range(2)
            ]
            for role in ("trainer", "generator")
        )
        for rank, generator in enumerate(generators):
            out, _ = generator.communicate(timeout=LIMIT_S)
            assert out.splitlines() == [f"generator rank {rank} has version {v} as {16 * v}" for v in (1, 2, 3)]
        assert [trainer.wait(timeout=LIMIT_S) for trainer in (*trainers, *generators)] == [0] * 4


def test_the_lines_about_functions_in_the_docs_are_those_of_the_example():
    block = (ROOT / "docs/link.md").read_text().split("link_quantised.cpp):")[1].split("```")[1].removeprefix("cpp\n")
    assert block in (ROOT / "examples/link_quantised.cpp").read_text()


def test_another_secret_is_refused():
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with Place(address, "trainer", 0, 1).connect(secret="another"), _cpp_job(address, "engine", []) as answers:
        for (refused,) in answers():
            assert "refused role engine rank" in refused["ValueError"]
            assert "the secret is not that of role trainer rank 0" in refused["ValueError"]
