"""`shardway plan --sweep --plot`: the picture shows the rows of --json."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.gallery.build import PROGRAM

SVG = "{http://www.w3.org/2000/svg}"
QUESTION = ["plan", "--mesh", "dp=2,tp=4", "--shape", "4096x4096", "--from", "S0,P", "--to", "R,S1"]

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not built: make test builds it")


def _plotted(folder: Path, *more: str) -> tuple[ElementTree.Element, list[dict[str, object]]]:
    file = folder / "sweep.svg"
    said = subprocess.run(
        [PROGRAM, *QUESTION, *more, "--json", "--plot", file], check=True, capture_output=True, text=True
    )
    return ElementTree.parse(file).getroot(), json.loads(said.stdout)["rows"]


def _is_one_scale(places: list[float], values: list[float]) -> bool:
    """Whether equal factors of the values are equal distances, to the two digits that are written."""
    low, high = math.log(values[0]), math.log(values[-1])
    begin, end = places[0], places[-1]
    expected = [begin + (math.log(value) - low) / (high - low) * (end - begin) for value in values]
    return all(abs(place - wanted) < 0.02 for place, wanted in zip(places, expected, strict=True))


def test_every_row_stands_at_its_length_and_price(tmp_path: Path) -> None:
    picture, rows = _plotted(tmp_path, "--sweep")
    circles = picture.findall(f"{SVG}circle")
    assert len(circles) == len(rows)
    assert _is_one_scale([float(c.attrib["cx"]) for c in circles], [float(r["length"]) for r in rows])  # type: ignore[arg-type]
    assert _is_one_scale([float(c.attrib["cy"]) for c in circles], [float(r["cost_us"]) for r in rows])  # type: ignore[arg-type]
    left, top, width, height = map(float, picture.attrib["viewBox"].split())
    assert all(left < float(c.attrib["cx"]) < width and top < float(c.attrib["cy"]) < height for c in circles)


def test_each_best_plan_is_a_line_and_is_named(tmp_path: Path) -> None:
    picture, rows = _plotted(tmp_path, "--sweep")
    plans = [str(rows[0]["plan"])]
    for row in rows:
        if row["plan"] != plans[-1]:
            plans.append(str(row["plan"]))
    assert len(plans) > 1
    lines = picture.findall(f"{SVG}polyline")
    assert len(lines) == len(plans)
    assert sum(len(line.attrib["points"].split()) for line in lines) == len(rows)
    named = [str(text.text) for text in picture.findall(f"{SVG}text[@class='plan']")]
    assert [text.partition(" on: ")[2] for text in named] == plans


def test_lengths_without_a_plan_have_no_point(tmp_path: Path) -> None:
    picture, rows = _plotted(tmp_path, "--sweep", "0=1024:65536", "--max-memory", "100MiB")
    priced = [row for row in rows if row["cost_us"] is not None]
    assert 0 < len(priced) < len(rows)
    assert len(picture.findall(f"{SVG}circle")) == len(priced)


def test_prices_by_assumed_figures_are_called_estimates(tmp_path: Path) -> None:
    measured = tmp_path / "measured.json"
    link = {"latency_us": 1.0, "gib_per_s": 10.0}
    figures = {"base_us": 5.0, "within_host": link, "between_hosts": link}
    measured.write_text(json.dumps({"version": 1, "source": "measured", **figures}))
    for more, is_said in (((), True), (("--topology", str(measured)), False)):
        picture, _ = _plotted(tmp_path, "--sweep", "0=64:128", *more)
        texts = [str(text.text) for text in picture.iter() if text.text]
        assert any(text.startswith("estimated price") for text in texts) is is_said
        assert any("est. " in text for text in texts) is is_said


def test_one_length_is_a_picture_too(tmp_path: Path) -> None:
    picture, rows = _plotted(tmp_path, "--sweep", "0=64:64")
    assert len(rows) == len(picture.findall(f"{SVG}circle")) == 1


def test_a_plot_without_a_sweep_is_refused(tmp_path: Path) -> None:
    said = subprocess.run([PROGRAM, *QUESTION, "--plot", tmp_path / "x.svg"], capture_output=True, text=True)
    assert said.returncode == 2
    assert "--plot requires --sweep" in said.stderr
    assert not (tmp_path / "x.svg").exists()
