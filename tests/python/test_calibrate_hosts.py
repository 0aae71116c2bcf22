"""`-m shardway.calibrate` where ranks are on several hosts: what it measures between them, and what uses it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.hosts import hosts_or_skip, torchrun_on
from tests.support.programs import run_program
from tests.support.ranks import run_ranks

PROGRAM = Path(sys.executable).with_name("shardway")
BITS_PER_SECOND = 500_000_000
CABLE_GIB_PER_S = BITS_PER_SECOND / 8 / 2**30
LIMIT_S = 170


def run_calibrate(_rank: int, _size: int, output: str) -> int:
    """It makes a group of its own, by torchrun's variables, at a port where no store of another group can be found."""
    from shardway import calibrate

    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
    return calibrate._main(["-o", output, "--seconds", "1", "--most", "8192", "--keep-noisy"])


def codes_on(host_of: list[int], output: Path) -> list[int]:
    with hosts_or_skip(2, BITS_PER_SECOND) as made:
        enter = torchrun_on(made, host_of)
        return run_ranks(len(host_of), run_calibrate, str(output), enter=enter, timeout_s=LIMIT_S)


@pytest.mark.parametrize(
    ("host_of", "fields"),
    [([0, 0, 1, 1], {"ranks_per_host": 2}), ([0, 1, 0], {"of_rank": [0, 1, 0]})],
    ids=["two of two", "ranks that alternate"],
)
def test_hosts_and_the_link_between_them_are_in_the_file(
    tmp_path: Path, host_of: list[int], fields: dict[str, object]
) -> None:
    path = tmp_path / "topology.json"
    assert codes_on(host_of, path) == [0] * len(host_of)
    document = json.loads(path.read_text())
    assert document["hosts"] == {**fields, "two_levels": True}
    assert document["measured"]["ranks"] == 2, "those of the first host"
    assert [table["ranks"] for table in document["tables"]] == [2]
    link = document["between_hosts"]
    assert link["latency_us"] > 0
    assert 0 < link["gib_per_s"] < 1.3 * CABLE_GIB_PER_S, "no more than the cable carries, but for its burst"

    ranks = len(host_of)
    words = ("plan", "--shape", "64x64", "--from", "S0", "--to", "R", "--mesh", ranks, "--topology", path)
    plan = run_program([PROGRAM, *words], timeout_s=LIMIT_S)
    assert plan.returncode == 0, plan.stderr
    assert plan.stderr == "", "two ranks of a host are what was measured"
    assert "in two levels" in plan.stdout
    assert "priced by the measured topology" in plan.stdout

    before = sw.Layout((1024 * ranks, 1024), torch.float32, sw.Mesh((ranks,)), [sw.Shard(0)])
    after = before.with_([sw.Replicate()])
    document["between_hosts"]["gib_per_s"] *= 2
    slower, faster = (sw.Topology.from_json(text) for text in (path.read_text(), json.dumps(document)))
    crossing = sw.plan(before, after, slower).crossing_bytes / len(set(host_of))  # each host gets the other's rows
    saved_us = sw.redistribute_cost(before, after, slower) - sw.redistribute_cost(before, after, faster)
    expected_us = crossing / 2**30 / link["gib_per_s"] / 2 * 1e6
    assert saved_us > 0.5 * expected_us, "what crosses is priced by the link that was measured"


def test_a_rank_alone_on_the_first_host_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    assert codes_on([0, 1, 1], path) == [2, 2, 2]
    assert not path.exists()
