"""`shardway calibrate`: the file that it writes, what reads it, and what it refuses."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from tests.support.forked_programs import torchrun
from tests.support.programs import run_program, started_program

PROGRAM = Path(sys.executable).with_name("shardway")
LIMIT_S = 170
SVG = "{http://www.w3.org/2000/svg}"
INTERRUPTED = 128 + signal.SIGINT
QUICK = ("--seconds", 1, "--most", "32KiB", "--keep-noisy")  # whatever runs beside this test
PLAN = ("plan", "--shape", "64x64", "--from", "S0", "--to", "R")


@pytest.fixture(scope="module")
def measured_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("measured") / "topology.json"
    assert calibrate("-n", 2, "-o", path, *QUICK).returncode == 0
    return path.read_text()


def calibrate(*words: object) -> subprocess.CompletedProcess[str]:
    return run_program([PROGRAM, "calibrate", *words], timeout_s=LIMIT_S)


def test_two_ranks_write_a_file_that_plans_are_priced_with(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    answer = calibrate("-n", 2, "-o", path, *QUICK)
    assert answer.returncode == 0, answer.stderr
    assert f"{path} is written" in answer.stdout
    assert answer.stderr == "", "no progress where standard error is no terminal"
    document = json.loads(path.read_text())
    measured = document["measured"]
    assert measured["ranks"] == 2
    assert measured["backend"] == "shared memory"
    assert measured["complete"] is True
    assert measured["ranks_share_cores"] == (measured["cores"] < 2)
    assert {call["op"] for call in measured["calls"]} == {
        "all_gather",
        "reduce_scatter",
        "all_reduce",
        "all_to_all",
        "permute",
        "exchange",
    }
    even = [call for call in measured["calls"] if call["parts"] == "even"]
    assert sorted({call["bytes"] for call in even if not call["held_out"]}) == [1024 * 2**i for i in range(6)]
    assert sorted({call["bytes"] for call in even if call["held_out"]}) == [3072, 12288]
    assert {call["parts"] for call in measured["calls"] if call["held_out"]} == {"even", "alternating"}
    assert document["version"] == 2
    (table,) = document["tables"]
    assert table["ranks"] == 2
    assert abs(table["kept_share"] - 0.9) < 0.01, "of halves that become 3/5 and 2/5"
    leaning = [call["us"] for call in measured["calls"] if call["parts"] == "leaning"]
    kept = [us for _, us in table["ops"].pop("exchange")["points"]]
    assert kept == sorted(kept)
    assert len(kept) == len(leaning) == 6
    assert kept == leaning or leaning != sorted(leaning), "the table is what was measured"
    assert set(table["ops"]) == {call["op"] for call in even}
    for op, curve in table["ops"].items():
        points = [[call["bytes"], call["us"]] for call in even if call["op"] == op and not call["held_out"]]
        assert [size for size, _ in curve["points"]] == [size for size, _ in points]
        prices = [us for _, us in curve["points"]]
        assert prices == sorted(prices), "more bytes are not cheaper"
        if all(a[1] < b[1] for a, b in itertools.pairwise(points)):
            assert curve["points"] == points, "the table is what was measured"
    assert all(call["us"] > 0 for call in measured["calls"])
    plan = run_program([PROGRAM, *PLAN, "--mesh", "2", "--topology", path], timeout_s=LIMIT_S)
    assert plan.returncode == 0, plan.stderr
    assert plan.stderr == ""
    assert "priced by the measured topology" in plan.stdout
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside the file"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="ranks that share cores try no choices")
def test_choices_of_shared_memory_are_tried_unless_they_are_made(
    tmp_path: Path, measured_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = json.loads(measured_file)["measured"]["tuning"]
    assert set(tuning) == {"swap", "hand_back"}
    assert all(choice["saves"] < 1 and choice["spread"] > 0 for choice in tuning.values())
    monkeypatch.setenv("SHARDWAY_TUNING", "hand_back=0")
    path = tmp_path / "topology.json"
    answer = calibrate("-n", 2, "-o", path, *QUICK)
    assert answer.returncode == 0, answer.stderr
    assert "hand_back" not in answer.stdout
    assert "tuning" not in json.loads(path.read_text())["measured"]


def picture_in(page: str) -> ElementTree.Element | None:
    found = re.search(r'<section id="measured">.*?data="data:image/svg\+xml;charset=utf-8,([^"]*)"', page, re.DOTALL)
    return ElementTree.fromstring(unquote(found[1])) if found else None


def test_the_page_of_a_plan_has_the_calls_that_gave_its_prices(tmp_path: Path, measured_file: str) -> None:
    path, page = tmp_path / "topology.json", tmp_path / "plan.html"
    path.write_text(measured_file)
    words = [PROGRAM, *PLAN, "--mesh", "2", "--html", page]
    assert run_program([*words, "--topology", path], timeout_s=LIMIT_S).returncode == 0
    picture = picture_in(page.read_text())
    assert picture is not None
    calls = json.loads(measured_file)["measured"]["calls"]
    assert len(picture.findall(f".//{SVG}circle")) == len(calls)
    texts = [text.text or "" for text in picture.iter(f"{SVG}text")]
    assert sum(": error " in text for text in texts) == len({call["op"] for call in calls})
    assert run_program(words, timeout_s=LIMIT_S).returncode == 0
    assert picture_in(page.read_text()) is None, "prices that are assumed have no picture"


def test_another_number_of_ranks_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    assert calibrate("-n", 2, "-o", path, *QUICK).returncode == 0
    plan = run_program([PROGRAM, *PLAN, "--mesh", "8", "--topology", path], timeout_s=LIMIT_S)
    assert plan.returncode == 0, plan.stderr
    assert plan.stderr.count("\n") == 1, plan.stderr
    assert f"{path}: its figures were measured with 2 ranks (this is for 8)" in plan.stderr


def interrupted_after(seconds: float, path: Path) -> tuple[int, str]:
    """The exit code, and what was printed."""
    words = ("-n", 2, "-o", path, "--seconds", 600, "--whole-time", "--most", "8KiB", "--keep-noisy")
    with started_program([PROGRAM, "calibrate", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        time.sleep(seconds)
        program.send_signal(signal.SIGINT)
        printed, _ = program.communicate(timeout=LIMIT_S)
        return program.returncode, printed


def test_an_interrupted_measurement_is_kept_and_does_not_replace_another(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    assert calibrate("-n", 2, "-o", path, *QUICK).returncode == 0
    good = path.read_text()
    partial = tmp_path / "topology.json.partial"
    for seconds in (1, 5, 25):  # a busy machine needs longer for the first round
        code, printed = interrupted_after(seconds, path)
        assert path.read_text() == good
        if code == INTERRUPTED:
            break
        if code == -signal.SIGINT:  # it came before the program was ready for it
            continue
        assert code == 1
        assert "interrupted before every call was made: nothing is written" in printed
        assert not partial.exists()
    assert code == INTERRUPTED
    assert f"{partial} has what was measured" in printed
    assert json.loads(partial.read_text())["measured"]["complete"] is False
    assert sorted(tmp_path.iterdir()) == [path, partial]


def test_full_measures_groups_of_several_sizes_and_draws_them(tmp_path: Path) -> None:
    path, plot = tmp_path / "topology.json", tmp_path / "topology.svg"
    answer = calibrate("--full", "-n", 3, "-o", path, "--plot", plot, *QUICK)
    assert answer.returncode == 0, answer.stderr
    document = json.loads(path.read_text())
    assert [table["ranks"] for table in document["tables"]] == [2, 3]
    runs = [document["measured"], *document["also_measured"]]
    assert [run["ranks"] for run in runs] == [3, 2], "the newest is the first"
    calls = [call for run in runs for call in run["calls"]]
    circles = ElementTree.parse(plot).getroot().findall(f".//{SVG}circle")
    assert len(circles) == len(calls)
    assert sum(circle.attrib["fill"] == "none" for circle in circles) == sum(call["held_out"] for call in calls)
    for ranks in (2, 3):
        plan = run_program([PROGRAM, *PLAN, "--mesh", ranks, "--topology", path], timeout_s=LIMIT_S)
        assert plan.stderr == "", plan.stderr

    again = calibrate("-n", 2, "-o", path, *QUICK)
    assert again.returncode == 0, again.stderr
    merged = json.loads(path.read_text())
    assert [table["ranks"] for table in merged["tables"]] == [2, 3]
    assert merged["tables"][1] == document["tables"][1], "what was not measured again stays"
    assert merged["measured"]["ranks"] == 2
    assert merged["also_measured"] == [document["measured"]]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"processor": "Abacus 3"}, "it was measured on another machine (Abacus 3, "),
        ({"backend": "gloo"}, "it was measured with gloo, and this is shared memory"),
        (None, "its figures were not measured"),
    ],
)
def test_a_file_of_another_machine_is_refused_and_stays(
    tmp_path: Path, measured_file: str, changes: dict[str, str] | None, what: str
) -> None:
    document = json.loads(measured_file)
    if changes is None:
        del document["measured"]
    else:
        document["measured"].update(changes)
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(document))
    answer = calibrate("-n", 2, "-o", path, *QUICK)
    assert answer.returncode == 2
    assert f"{path}: {what}" in answer.stderr
    assert "remove it, or give another name with -o" in answer.stderr
    assert json.loads(path.read_text()) == document


def test_a_file_that_is_no_topology_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    path.write_text("notes of mine")
    answer = calibrate("-n", 2, "-o", path, *QUICK)
    assert answer.returncode == 2
    assert "remove it, or give another name with -o" in answer.stderr
    assert path.read_text() == "notes of mine"


def test_a_rank_that_dies_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "topology.json"
    words = ("-n", 3, "-o", path, "--seconds", 600, "--whole-time", "--most", "8KiB")
    with started_program([PROGRAM, "calibrate", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as program:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        limit = time.monotonic() + LIMIT_S
        while len(ranks := children.read_text().split()) < 3:
            assert time.monotonic() < limit
            time.sleep(0.05)
        os.kill(int(ranks[1]), signal.SIGKILL)
        printed, _ = program.communicate(timeout=LIMIT_S)
    assert program.returncode == 1
    assert "rank" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("-n", 1, "-o", "{folder}/t.json"), "one rank has nobody to send to; give at least 2"),
        (("-n", 0, "-o", "{folder}/t.json"), "must be at least 1"),
        (("-n", 257, "-o", "{folder}/t.json"), "more than 256"),
        (("-n", 2, "-o", "{folder}/none/t.json"), "cannot be written: No such file or directory"),
        (("-n", 2, "-o", "{folder}"), "cannot be written: Is a directory"),
        (("-n", 2, "-o", "{folder}/t.json", "--most", "4KiB"), "from 8KiB to 1GiB"),
        (("-n", 2), "required"),
        (("-o", "{folder}/t.json"), "--ranks is required, or --full"),
        (("-n", 2, "-o", "{folder}/t.json", "--plot", "{folder}"), "cannot be written: Is a directory"),
    ],
)
def test_a_mistake_is_said_before_anything_is_measured(tmp_path: Path, words: tuple[object, ...], what: str) -> None:
    answer = calibrate(*(str(word).format(folder=tmp_path) for word in words))
    assert answer.returncode == 2
    assert what in answer.stderr
    assert list(tmp_path.iterdir()) == []


def torchrun_calibrate(ranks: int, *words: object) -> subprocess.CompletedProcess[str]:
    return torchrun(ranks, "-m", "shardway.calibrate", *words, timeout_s=LIMIT_S)


@pytest.mark.parametrize("backend", ["gloo", "shardway"])
def test_a_group_of_torch_writes_the_same_file(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "topology.json"
    answer = torchrun_calibrate(2, "-o", path, "--backend", backend, "--seconds", 1, "--most", 8192, "--keep-noisy")
    assert answer.returncode == 0, answer.stderr
    assert f"{path} is written" in answer.stdout
    measured = json.loads(path.read_text())["measured"]
    assert measured["ranks"] == 2
    assert measured["backend"].startswith(backend)
    assert len(measured["calls"]) == 5 * 4 + 5 + 4 * 4 + 4, "even parts, a size between, and other parts"
    assert [call["parts"] for call in measured["calls"] if call["op"] == "exchange"] == [
        "rising",
        "leaning",
        "alternating",
        "leaning",
    ] * 2
    plan = run_program([PROGRAM, *PLAN, "--mesh", "2", "--topology", path], timeout_s=LIMIT_S)
    assert plan.returncode == 0, plan.stderr
    assert plan.stderr == ""
    assert "priced by the measured topology" in plan.stdout
    assert list(tmp_path.iterdir()) == [path]


def test_a_group_of_torch_refuses_one_rank_and_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    alone = run_program(
        [sys.executable, "-m", "shardway.calibrate", "-o", tmp_path / "topology.json"],
        timeout_s=LIMIT_S,
        env={**os.environ, **place},
    )
    assert alone.returncode == 2
    assert "one rank has nobody to send to; start at least 2" in alone.stderr
    nowhere = torchrun_calibrate(2, "-o", tmp_path / "none" / "topology.json")
    assert nowhere.returncode != 0
    assert nowhere.stderr.count("cannot be written: No such file or directory") == 1
    assert list(tmp_path.iterdir()) == []
