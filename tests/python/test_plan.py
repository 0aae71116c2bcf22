"""Plans from Python: what PyTorch's own tests ask of a cost model, limits on memory, reasons, drawings, bad input."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import shardway as sw
from tests.support.programs import run_program
from tests.support.specs import random_placements

R, P, PMAX = sw.Replicate(), sw.Partial(), sw.Partial("max")
S0, S1, S2 = sw.Shard(0), sw.Shard(1), sw.Shard(2)
LINE, SQUARE, CUBE = sw.Mesh((4,)), sw.Mesh((2, 2)), sw.Mesh((2, 2, 2))


@pytest.fixture(autouse=True)
def one_host(monkeypatch):
    monkeypatch.delenv("SHARDWAY_TOPOLOGY", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)


def layout(*placements, shape=(10, 10), mesh=None, order=None):
    mesh = mesh or {1: LINE, 2: SQUARE, 3: CUBE}[len(placements)]
    return sw.Layout(shape, torch.float32, mesh, placements, order)


def cost(a, b, **options):
    return sw.redistribute_cost(layout(*a), layout(*b), **options)


def test_on_a_line_the_costs_are_as_pytorchs_tests_ask():
    for placement in (S0, R, P):
        assert cost([placement], [placement]) == 0
    assert cost([S0], [R]) == cost([P], [S0])
    assert cost([P], [R]) < cost([S0], [R]) + cost([P], [S0])
    for a, b in [(S0, P), (R, P), (P, PMAX)]:
        assert cost([a], [b]) == math.inf


def test_on_a_square_the_costs_are_as_pytorchs_tests_ask():
    assert cost([P, P], [R, R]) > cost([S0, S1], [R, R])
    assert cost([P, P], [R, R]) > cost([P, P], [S0, S1])
    assert cost([S0, S0], [R, S0]) > cost([S0, S0], [S0, R])


@pytest.mark.parametrize("shape", [(16, 8), (13, 2, 13)], ids=str)
def test_on_a_cube_a_detour_is_never_cheaper(shape, seed):
    draw = random.Random(seed)
    for _ in range(300):
        a, b, c = (
            layout(*random_placements(draw, 3, len(shape), partial=partial), shape=shape)
            for partial in (True, False, False)
        )
        straight, detour = sw.redistribute_cost(a, c), sw.redistribute_cost(a, b) + sw.redistribute_cost(b, c)
        assert straight <= detour * (1 + 1e-12), (str(a), str(b), str(c))


COUNTS = [
    ([S0, S1], [S0, S0], 1),
    ([S0, S1], [S1, S0], 2),
    ([S0, S0], [S1, S1], 2),
    ([S0, S2], [S1, S0], 2),
    ([S1, S1], [S1, S2], 1),
    ([P, P], [R, R], 1),
    ([P, P], [S0, S0], 1),
    ([P, P], [S0, S1], 2),
    ([S0, S0], [R, R], 1),
    ([S0, S1], [R, R], 2),
    ([P, P, P], [R, R, R], 1),
]


@pytest.mark.parametrize(("a", "b", "most"), COUNTS)
def test_a_plan_has_no_more_collectives_than_pytorchs_tests_ask(a, b, most):
    plan = sw.plan(layout(*a, shape=(16, 16, 16)), layout(*b, shape=(16, 16, 16)))
    assert sum(step.kind != "slice" for step in plan.steps) <= most


def test_an_uneven_reduce_scatter_over_two_mesh_dims_leaves_the_shards_of_torch_chunk():
    target = sw.Layout((4,), torch.float32, sw.Mesh((2, 3)), [S0, S0])
    assert [target.box(rank)[1][0] for rank in range(6)] == [1, 1, 0, 1, 1, 0]
    (step,) = sw.plan(target.with_([P, P]), target).steps
    assert (step.kind, step.to) == ("reduce_scatter", target)


def test_the_steps_of_a_plan_lead_from_one_end_to_the_other_and_add_up(seed):
    draw = random.Random(seed)
    for _ in range(100):
        shape = [draw.randrange(1, 40) for _ in range(3)]
        a = layout(*random_placements(draw, 3, 3), shape=shape)
        b = layout(*random_placements(draw, 3, 3, partial=False), shape=shape)
        plan = sw.plan(a, b)
        passed = [a, *(step.to for step in plan.steps)]
        assert (plan.from_, plan.to, passed[-1]) == (a, b, b)
        assert [step.from_ for step in plan.steps] == passed[:-1]
        assert plan.cost_us == pytest.approx(sum(step.cost_us for step in plan.steps), abs=1e-9)
        assert plan.cost_us == sw.redistribute_cost(a, b)
        assert plan.bytes == sum(step.bytes for step in plan.steps)
        assert plan.total_bytes == sum(step.total_bytes for step in plan.steps)
        assert plan.peak_bytes == max((step.peak_bytes for step in plan.steps), default=0)
        assert all(other.cost_us >= plan.cost_us for other in plan.alternatives)


def test_a_step_says_what_it_does():
    plan = sw.plan(layout(S0), layout(R))
    (step,) = plan.steps
    assert (step.kind, step.mesh_dims) == ("all_gather", (0,))
    assert step.cost_us == pytest.approx(6.6 + 3 * 0.6 + 360 / 2**30 / 87.7 * 1e6)
    assert step.latency_us == pytest.approx(6.6 + 3 * 0.6)
    assert step.bytes == 3 * 3 * 10 * 4  # the largest shard, to three others
    assert step.total_bytes == 3 * 400
    assert repr(step).startswith("Step(all_gather: S0 -> R, ")
    assert str(plan) == "S0 -all_gather(0)-> R"
    assert repr(plan).startswith("Plan(S0 -all_gather(0)-> R: ")


def test_a_plan_between_meshes_costs_something_and_arrives():
    a = sw.Layout((12, 5), torch.float32, sw.Mesh((4,)), [S0])
    for mesh in (sw.Mesh((2, 3)), sw.Mesh((2, 2), [4, 5, 6, 7]), sw.Mesh((4,), [3, 2, 1, 0])):
        b = a.with_([S1] * mesh.ndim, mesh=mesh)
        plan = sw.plan(a, b)
        assert 0 < plan.cost_us < math.inf
        assert plan.steps[-1].to == b


def test_a_plan_is_kept_until_plans_are_forgotten():
    a, b = layout(S0, S1), layout(S1, S0)
    first = sw.plan(a, b)
    assert sw.plan(layout(S0, S1), layout(S1, S0)) is first
    sw.clear_plans()
    again = sw.plan(a, b)
    assert again is not first
    assert again == first


def test_names_of_mesh_dims_choose_links_and_are_printed():
    topology = sw.Topology(dims={"slow": (50.0, 1.0)})
    costs = {}
    for name in ("slow", "fast"):
        a = sw.Layout((64,), torch.float32, sw.Mesh((4,), names=[name]), [S0])
        plan = sw.plan(a, a.with_([R]), topology)
        assert str(plan) == f"S0 -all_gather({name})-> R"
        costs[name] = sw.redistribute_cost(a, a.with_([R]), topology)
    assert costs["slow"] > 10 * costs["fast"]


def test_no_step_needs_more_than_max_bytes():
    a, b = layout(S0, S1, shape=(512, 512)), layout(S1, S0, shape=(512, 512))
    free = sw.plan(a, b)
    assert sw.plan(a, b, max_bytes=free.peak_bytes).peak_bytes <= free.peak_bytes
    with pytest.raises(ValueError, match=r"impossible within max_bytes=1000 .* the least is (\d+) bytes") as caught:
        sw.plan(a, b, max_bytes=1000)
    least = int(str(caught.value).split()[-2])
    assert sw.plan(a, b, max_bytes=least).peak_bytes <= least
    with pytest.raises(ValueError, match="impossible"):
        sw.plan(a, b, max_bytes=least - 1)


def test_a_plan_survives_json_and_pickling():
    plan = sw.plan(layout(S0, P, shape=(64, 64)), layout(R, S1, shape=(64, 64)))
    document = json.loads(plan.to_json())
    assert document["version"] == 1
    for again in (sw.Plan.from_json(plan.to_json()), pickle.loads(pickle.dumps(plan))):
        assert again == plan
        assert hash(again) == hash(plan)
        assert again.steps[0].from_ == plan.from_
        assert again.explain() == plan.explain()
        assert [other.reason for other in again.alternatives] == [other.reason for other in plan.alternatives]
    assert plan != sw.plan(layout(S0), layout(R))


def test_steps_outlive_their_plan():
    steps = sw.plan(layout(S0), layout(R)).steps
    sw.clear_plans()
    assert steps[0].to == layout(R)


def test_explain_names_the_steps_their_cost_and_what_lost():
    plan = sw.plan(
        layout(S0, P, shape=(4096, 4096)), layout(R, S1, shape=(4096, 4096)), topology=sw.Topology(base_us=7.0)
    )
    text = plan.explain()
    for step in plan.steps:
        assert step.kind in text
        assert f"{step.cost_us:.2f}" in text
    for other in plan.alternatives:
        assert other.name in text
        assert other.text in text
    assert "DTensor's order" in text
    assert all(len(line) <= 40 for line in plan.explain(40).splitlines() if line.startswith("    S0,P -"))


def test_a_drawing_shows_the_ranks_where_their_parts_are():
    uneven = layout(S0, S1, shape=(5, 4))
    assert sw.draw(uneven, 60).splitlines() == [
        "f32[5,4] on 2x2: S0,S1",
        "dim 0 down, dim 1 across; in each cell the ranks that hold it",
        "  0   2   4",
        "  +---+---+",
        "0 | 0 | 1 |",
        "  +---+---+",
        "3 | 2 | 3 |",
        "  +---+---+",
    ]
    replicated = sw.Layout((8,), torch.float32, sw.Mesh((2, 2), [4, 5, 6, 7]), [R, S0])
    assert sw.draw(replicated, 60).splitlines() == [
        "f32[8] on 2x2: R,S0",
        "dim 0 across; in each cell the ranks that hold it",
        " 0     4     8",
        " +-----+-----+",
        " | 4,6 | 5,7 |",
        " +-----+-----+",
    ]
    assert sw.draw(layout(S0, S0, shape=(1, 4)), 60).splitlines()[-1] == "nothing on ranks 1-3"
    assert sw.draw(uneven) == sw.draw(uneven, columns=80)


def test_the_topology_is_given_read_or_taken_from_the_environment(tmp_path, monkeypatch):
    slow = sw.Topology(within_host=(100.0, 1.0))
    assert (slow.within_host, slow.base_us, slow.source) == (sw.Link(100.0, 1.0), 6.6, "given")
    file = tmp_path / "topology.json"
    file.write_text(slow.to_json())
    assert sw.Topology.read(file) == sw.Topology.read(str(file)) == sw.Topology.from_json(slow.to_json()) == slow
    assumed = cost([S0], [R])
    assert cost([S0], [R], topology=slow) > assumed + 250
    monkeypatch.setenv("SHARDWAY_TOPOLOGY", str(file))
    assert cost([S0], [R]) == cost([S0], [R], topology=slow)
    assert sw.Topology.default() == slow
    monkeypatch.delenv("SHARDWAY_TOPOLOGY")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert cost([S0], [R]) == cost([S0], [R], topology=sw.Topology.assumed(2)) > assumed
    assert sw.Topology.assumed().ranks_per_host is None
    assert sw.Topology.assumed(2).between_hosts == sw.Link(2.7, 87.7 * 0.22)


def test_hosts_may_be_given_rank_by_rank():
    interleaved = sw.Topology(host_of_rank=[0, 1, 0, 1])
    assert interleaved.host_of_rank == (0, 1, 0, 1)
    across = sw.redistribute_cost(layout(R, S0), layout(R, R), interleaved)
    within = sw.redistribute_cost(layout(S0, R), layout(R, R), interleaved)
    assert across > within


def test_in_two_levels_a_box_crosses_to_a_host_once():
    shape, mesh = (1024, 1024), sw.Mesh((8,))
    a, b = (sw.Layout(shape, torch.float32, mesh, [placement]) for placement in (S0, R))
    hosts = sw.Topology(ranks_per_host=4, two_levels=True)
    assert hosts.two_levels
    assert not sw.Topology.assumed(4).two_levels
    plan = sw.plan(a, b, hosts)
    assert plan.in_two_levels
    assert plan.crossing_bytes == plan.steps[0].crossing_bytes == 1024 * 1024 * 4  # half of it each way
    assert "4.0 MiB in all cross between hosts" in plan.explain()
    assert sw.Plan.from_json(plan.to_json()).crossing_bytes == plan.crossing_bytes
    assert not sw.plan(a, b, sw.Topology.assumed(4)).in_two_levels


FIGURES = {"version": 1, "base_us": 5, "within_host": {"latency_us": 1, "gib_per_s": 10}}

# what is wrong: (the file's text, words of the message)
BAD_FILES = {
    "empty": ("", ["empty"]),
    "truncated": (json.dumps(FIGURES)[:-5], ["not JSON", "line 1"]),
    "no JSON": ("latency: 3", ["not JSON"]),
    "a list": ("[1]", ["must be an object"]),
    "another version": (json.dumps({**FIGURES, "version": 3}), ["version", "is 3", "reads versions 1 and 2"]),
    "no version": (json.dumps({"base_us": 5}), ["version"]),
    "NaN": (json.dumps({**FIGURES, "base_us": math.nan}), ["not JSON"]),
    "infinite": (json.dumps(FIGURES).replace("5", "1e999"), ["1e999"]),
    "negative": (json.dumps({**FIGURES, "base_us": -1}), ["base_us", "negative", "at least 0"]),
    "no bandwidth": (json.dumps({**FIGURES, "within_host": {"latency_us": 1}}), ["within_host", "gib_per_s"]),
    "zero bandwidth": (
        json.dumps({**FIGURES, "within_host": {"latency_us": 1, "gib_per_s": 0}}),
        ["within_host.gib_per_s", "above 0"],
    ),
    "a word as figure": (json.dumps({**FIGURES, "base_us": "5"}), ["base_us", "number"]),
    "unknown field": (json.dumps({**FIGURES, "bandwith": 5}), ["bandwith", "known are"]),
    "deeply nested": ("[" * 100_000, ["nested"]),
    "bad hosts": (json.dumps({**FIGURES, "hosts": {"of_rank": [0, -1]}}), ["of_rank", "negative"]),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_bad_topology_file_is_a_value_error_with_file_and_field(what, tmp_path):
    text, words = BAD_FILES[what]
    file = tmp_path / "figures.json"
    file.write_text(text)
    with pytest.raises(ValueError) as caught:
        sw.Topology.read(file)
    for word in [str(file), *words]:
        assert word in str(caught.value)


def test_a_topology_file_that_is_missing_huge_or_a_folder_is_refused(tmp_path):
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(100 << 20)
    for path, word in [(tmp_path / "none.json", "No such file"), (huge, "at most"), (tmp_path, "read")]:
        with pytest.raises(ValueError) as caught:
            sw.Topology.read(path)
        assert str(path) in str(caught.value)
        assert word in str(caught.value)


# what is wrong: (the call, words of the message)
MISTAKES = {
    "addends of shards": (lambda: sw.plan(layout(S0), layout(P)), ["plan", "from S0 to P", "addends are never made"]),
    "another op": (lambda: sw.plan(layout(P), layout(PMAX)), ["plan", "from P to P(max)"]),
    "another shape": (lambda: sw.plan(layout(S0), layout(S0, shape=(10, 11))), ["plan", "10x10", "10x11"]),
    "another dtype": (
        lambda: sw.plan(layout(S0), sw.Layout((10, 10), torch.float16, LINE, [S0])),
        ["plan", "f32", "f16"],
    ),
    "no layout": (lambda: sw.plan(layout(S0), "R"), ["plan: b='R'", "neither a Layout"]),
    "no layout to price": (lambda: sw.redistribute_cost(3, layout(S0)), ["redistribute_cost: a=3", "neither a Layout"]),
    "negative max_bytes": (lambda: sw.plan(layout(S0), layout(R), max_bytes=-1), ["max_bytes=-1", "negative"]),
    "max_bytes is no integer": (lambda: sw.plan(layout(S0), layout(R), max_bytes=1.5), ["max_bytes=1.5", "integer"]),
    "unknown rules": (lambda: sw.plan(layout(S0), layout(R), rules="torch"), ["rules='torch'", "torch_2_13"]),
    "rules without plans": (
        lambda: sw.plan(layout(S0), layout(R), rules="seed_004"),
        ["seed_004", "redistribute_cost"],
    ),
    "topology is a path": (
        lambda: sw.plan(layout(S0), layout(R), "file.json"),
        ["topology='file.json'", "not a Topology"],
    ),
    "NaN latency": (lambda: sw.Topology(within_host=(math.nan, 1)), ["within_host.latency_us", "nan"]),
    "zero bandwidth": (lambda: sw.Topology(between_hosts=(1, 0)), ["between_hosts.gib_per_s", "above 0"]),
    "link of one figure": (lambda: sw.Topology(within_host=(1,)), ["within_host", "(latency_us, gib_per_s)"]),
    "link of a word": (lambda: sw.Topology(dims={"tp": "fast"}), ["dims.tp", "'fast'"]),
    "no ranks a host": (lambda: sw.Topology(ranks_per_host=0), ["ranks_per_host", "at least 1"]),
    "two levels of a word": (lambda: sw.Topology(two_levels="yes"), ["two_levels='yes'", "True nor False"]),
    "two levels and links of dims": (
        lambda: sw.Topology(ranks_per_host=2, two_levels=True, dims={"tp": (1, 1)}),
        ["dims", "two levels", "within_host"],
    ),
    "negative host": (lambda: sw.Topology(host_of_rank=[0, -1]), ["-1", "negative"]),
    "hosts for too few ranks": (
        lambda: sw.redistribute_cost(layout(S0), layout(R), sw.Topology(host_of_rank=[0, 0])),
        ["2 entries", "rank 2"],
    ),
    "no columns": (lambda: sw.draw(layout(S0), 0), ["columns=0"]),
    "plan of no JSON": (lambda: sw.Plan.from_json("{"), ["plan", "not JSON"]),
    "plan without fields": (lambda: sw.Plan.from_json('{"version": 1}'), ["plan", "no field"]),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_a_value_error_that_names_it(what):
    call, words = MISTAKES[what]
    with pytest.raises(ValueError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("variable", ["two", "0", "-1"])
def test_a_local_world_size_that_is_no_number_of_ranks_is_refused(variable, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", variable)
    with pytest.raises(ValueError, match=f"LOCAL_WORLD_SIZE is '{variable}'"):
        cost([S0], [R])


def test_importing_shardway_does_not_load_dtensor():
    code = "import sys, shardway; sys.exit('torch.distributed.tensor' in sys.modules)"
    assert run_program([sys.executable, "-c", code], timeout_s=60).returncode == 0


def test_every_pair_on_a_small_mesh_has_a_plan_or_an_infinite_cost():
    kinds = [S0, S1, R, P]
    for a, b in itertools.product(itertools.product(kinds, repeat=2), repeat=2):
        ends = layout(*a, shape=(5, 3)), layout(*b, shape=(5, 3))
        makes_addends = any(y == P and x != P for x, y in zip(a, b, strict=True))
        if makes_addends:
            assert sw.redistribute_cost(*ends) == math.inf
            with pytest.raises(ValueError, match="addends"):
                sw.plan(*ends)
        else:
            assert sw.redistribute_cost(*ends) == sw.plan(*ends).cost_us < math.inf


MEASURED = {
    "machine": "elsewhere",
    "processor": "another processor",
    "cores": 1,
    "ranks": 3,
    "ranks_share_cores": True,
    "backend": "shared memory",
    "date": "2026-01-31T12:00:00Z",
    "complete": True,
    "repetitions": 12,
    "retest_error": 0.02,
    "held_out_error": 0.1,
    "calls": [],
}


def measured_file(folder: Path, measured: dict[str, Any]) -> Path:
    path = folder / "topology.json"
    document = json.loads(sw.Topology(base_us=3.0, source="measured").to_json())
    path.write_text(json.dumps({**document, "measured": measured}))
    return path


def test_figures_of_another_machine_are_warned_of_when_they_are_read(tmp_path: Path) -> None:
    path = measured_file(tmp_path, MEASURED)
    with pytest.warns(UserWarning, match="measured on another processor"):
        assert sw.Topology.read(path).base_us == 3.0


def test_a_measured_file_with_an_unknown_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="colour"):
        sw.Topology.read(measured_file(tmp_path, {**MEASURED, "colour": "blue"}))


def test_repr_calls_assumed_costs_estimates_and_leaves_measured_ones() -> None:
    a = sw.Layout((4096, 4096), torch.float32, sw.Mesh((4,)), [sw.Shard(0)])
    b = a.with_([sw.Replicate()])
    assert "est. 540 us" in repr(sw.plan(a, b, topology=sw.Topology.assumed()))
    assert "543.89 us" in repr(sw.plan(a, b, topology=sw.Topology(base_us=7.6, source="measured")))
    assert "about 540 us" in repr(sw.plan(a, b, topology=sw.Topology.assumed()).steps[0])
