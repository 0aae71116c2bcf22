"""The page in chromium: what it shows, and that playing it moves the boxes to where the plan says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import shardway as sw
from tests.support.browser import Browser, browser, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

LANDED = 820  # of 1000, when a plan of one step has its pieces where they go
ONE_HOST = sw.Topology()
TWO_STEPS = [sw.Shard(0), sw.Partial()], [sw.Replicate(), sw.Shard(1)]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


def written(
    folder: Path, mesh: sw.Mesh, before: list, after: list, shape=(4096, 4096), topology=ONE_HOST, **options
) -> Path:
    layout = sw.Layout(shape, torch.float32, mesh, before)
    path = folder / "plan.html"
    path.write_text(sw.plan(layout, layout.with_(after), topology, **options).to_html(topology=topology))
    return path


def seek(page: Browser, value: int) -> None:
    page.evaluate(f"(() => {{ seek.value = {value}; seek.dispatchEvent(new Event('input')); }})()")


_RECTS = """(selector) => {
  const stage = document.getElementById("stage");
  const tiles = [...stage.querySelectorAll(".outline")].map((outline) => outline.getBBox());
  return [...stage.querySelectorAll(selector)].map((element) => {
    const tile = Number(element.dataset.to ?? element.dataset.tile);
    const home = tiles[tile];
    const box = element.getBBox();
    const moved = stage.getScreenCTM().inverse().multiply(element.getScreenCTM());
    return { tile, source: Number(element.dataset.from),
             x: (box.x + moved.e - home.x) / home.width, y: (box.y + moved.f - home.y) / home.height,
             w: box.width / home.width, h: box.height / home.height };
  });
}"""


def rects(page: Browser, selector: str) -> list[dict]:
    """Tile, source tile, and the place inside its tile's outline, in shares of it, of each element on the stage."""
    return page.evaluate(f"({_RECTS})({selector!r})")


# Clicks, and is done when the playing has begun and ended.
_PLAY = """new Promise((done) => {
  play.click();
  let hasBegun = false;
  const look = () => {
    hasBegun ||= seek.value > 100;
    if (hasBegun && play.textContent === "▶") done();
    else setTimeout(look, 20);
  };
  look();
})"""


def place(rect: dict) -> tuple[float, ...]:
    return tuple(rect[key] for key in "xywh")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_shows_the_plan_without_errors(chromium: Browser, tmp_path: Path, dark: bool) -> None:
    mesh = sw.Mesh((2, 4), names=("dp", "tp"))
    chromium.open(written(tmp_path, mesh, *TWO_STEPS), dark=dark)
    text = chromium.evaluate("document.querySelector('main').innerText")
    for expected in ("S0,P→R,S1", "371.93", "32.0", "256.0", "reduce_scatter", "all_gather", "DTensor's order"):
        assert expected in text
    red, green, blue = map(
        int, re.findall(r"\d+", chromium.evaluate("getComputedStyle(document.body).backgroundColor"))
    )
    assert (red + green + blue < 200) == dark
    assert chromium.evaluate("document.querySelectorAll('#before .cell').length") == 2
    assert chromium.evaluate("document.querySelectorAll('#after .cell').length") == 4
    assert chromium.evaluate("document.querySelectorAll('#stage .outline').length") == 8
    fills = chromium.evaluate("[...document.querySelectorAll('#before .cell')].map((e) => getComputedStyle(e).fill)")
    assert len(set(fills)) == 2 and all(fill.startswith("oklch") for fill in fills)
    assert chromium.errors == []


def flows(page: Browser) -> list[dict[tuple[int, int], int]]:
    """The bytes from tile to tile in each step, as the matrices show them."""
    read = "[...figure.querySelectorAll('.flow')].map(({ dataset: d }) => [d.from, d.to, d.bytes].map(Number))"
    found = page.evaluate(f"[...document.querySelectorAll('#matrices figure')].map((figure) => {read})")
    return [{(a, b): n for a, b, n in step} for step in found]


def test_a_still_says_who_sends_how_much_to_whom(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, sw.Mesh((2, 4), names=("dp", "tp")), *TWO_STEPS))
    mib = 1 << 20
    others = [(a, b) for a in range(8) for b in range(8) if a != b]
    reduced, gathered = flows(chromium)
    assert reduced == {(a, b): 8 * mib for a, b in others if a // 4 == b // 4}
    assert gathered == {(a, b): 8 * mib for a, b in others if a % 4 == b % 4}
    text = chromium.evaluate("document.getElementById('flows').innerText")
    assert "Every rank receives 24.0 MiB: 8.0 MiB from each of 3 others." in text
    assert chromium.evaluate("seek.value") == "0" and chromium.errors == []


def test_ragged_flows_have_a_row_only_for_who_sends(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, sw.Mesh((3,)), [sw.Shard(0, [3, 0, 5])], [sw.Replicate()], shape=(8,)))
    assert flows(chromium) == [{(0, 1): 12, (0, 2): 12, (2, 0): 20, (2, 1): 20}]


def test_the_title_is_in_words_and_its_letters_are_explained(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, sw.Mesh((2, 4), names=("dp", "tp")), *TWO_STEPS))
    title = "Dim 0 split over dp, addends over tp→the same over dp, dim 1 split over tp"
    assert chromium.evaluate("headline.innerText") == title
    letters = chromium.evaluate("[...document.querySelectorAll('#letters b')].map((e) => e.textContent)")
    assert letters == ["S0, S1", "R", "P"]


def test_times_from_assumed_costs_have_two_digits_and_say_so(chromium: Browser, tmp_path: Path) -> None:
    def time_shown(topology: sw.Topology, side: int) -> str:
        chromium.open(written(tmp_path, sw.Mesh((2, 4)), *TWO_STEPS, shape=(side, side), topology=topology))
        return " ".join(chromium.evaluate("document.querySelector('#figures div').innerText").split())

    assert re.fullmatch(r"time, estimated from assumed costs ≈ [1-9]\d0? µs", time_shown(sw.Topology.assumed(), 2048))
    assert re.fullmatch(r"time, estimated \d+\.\d\d µs", time_shown(sw.Topology(), 1024))


def test_another_mesh_and_a_dim_that_is_not_drawn_are_said(chromium: Browser, tmp_path: Path) -> None:
    before = sw.Layout((64, 32, 16), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])
    after = sw.Layout((64, 32, 16), torch.float32, sw.Mesh((2, 2), ranks=[2, 3, 4, 5]), [sw.Shard(0), sw.Shard(2)])
    path = tmp_path / "plan.html"
    path.write_text(sw.plan(before, after).to_html())
    chromium.open(path)
    headings = chromium.evaluate("[...document.querySelectorAll('.mesh-heading')].map((e) => e.textContent)")
    assert [heading.split(", ")[-1] for heading in headings] == ["ranks 0,1", "ranks 2-5"]
    assert "Dim 1, of length 32, is not drawn: every rank has all of it." in chromium.evaluate("ends.innerText")
    tops = chromium.evaluate("[...document.querySelectorAll('#stage .outline')].map((e) => e.getBBox().y)")
    assert len(tops) == 6 and max(tops[:2]) < min(tops[2:])
    assert flows(chromium)[0].keys() == {(a, b) for a in (0, 1) for b in (2 + 2 * a, 3 + 2 * a)}
    assert chromium.errors == []


def test_in_two_levels_borders_lie_between_the_tiles_of_different_hosts(chromium: Browser, tmp_path: Path) -> None:
    topology = sw.Topology(host_of_rank=[0, 0, 1, 1, 0, 0, 0, 0], two_levels=True)
    chromium.open(written(tmp_path, sw.Mesh((2, 4)), *TWO_STEPS, topology=topology))
    widths = chromium.evaluate("[...document.querySelectorAll('#stage .border')].map((line) => line.getBBox().width)")
    assert (widths.count(0), len(widths)) == (1, 3)  # right of rank 1, below ranks 2 and 3
    text = chromium.evaluate("document.querySelector('main').innerText")
    assert "cross between hosts" in text
    assert chromium.errors == []
    chromium.open(written(tmp_path, sw.Mesh((2, 4)), *TWO_STEPS, topology=sw.Topology.assumed(4)))
    assert chromium.evaluate("document.querySelectorAll('.border').length") == 0


def test_pieces_land_where_an_all_to_all_puts_them(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, sw.Mesh((4,)), [sw.Shard(0)], [sw.Shard(1)]))
    seek(chromium, LANDED)
    pieces = {(piece["source"], piece["tile"]): place(piece) for piece in rects(chromium, "#pieces .piece")}
    assert pieces.keys() == {(a, b) for a in range(4) for b in range(4)}
    for (source, target), at in pieces.items():
        assert at == pytest.approx((target / 4, source / 4, 1 / 4, 1 / 4), abs=2e-3)


def test_pieces_begin_at_the_rank_that_sends_them(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, sw.Mesh((4,)), [sw.Shard(0)], [sw.Shard(1)]))
    seek(chromium, 1)
    for piece in rects(chromium, "#pieces .piece"):
        gone = piece["source"] - piece["tile"]  # tiles lie side by side, a little apart
        assert piece["x"] - piece["tile"] / 4 == pytest.approx(gone * 1.1, abs=0.2 * abs(gone) + 1e-2)


def test_playing_ends_with_the_boxes_of_the_target(chromium: Browser, tmp_path: Path) -> None:
    mesh = sw.Mesh((2, 4), names=("dp", "tp"))
    chromium.open(written(tmp_path, mesh, *TWO_STEPS))
    boxes = {rect["tile"]: place(rect) for rect in rects(chromium, ".state[data-state='0'] .box")}
    assert boxes == {rank: pytest.approx((0, rank // 4 / 2, 1, 1 / 2)) for rank in range(8)}
    chromium.evaluate(_PLAY)
    assert chromium.evaluate("seek.value") == "1000"
    assert chromium.evaluate("document.querySelector(\".state[data-state='2']\").style.opacity") == "1"
    assert chromium.evaluate("pieces.style.opacity") == "0"
    boxes = {rect["tile"]: place(rect) for rect in rects(chromium, ".state[data-state='2'] .box")}
    assert boxes == {rank: pytest.approx((rank % 4 / 4, 0, 1 / 4, 1)) for rank in range(8)}
    assert chromium.errors == []


def test_buttons_step_and_hover_explains(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, sw.Mesh((2, 4), names=("dp", "tp")), *TWO_STEPS))
    chromium.evaluate("next.click()")
    assert "1 of 2: reduce_scatter over tp" in chromium.evaluate("caption.innerText")
    chromium.evaluate("next.click()")
    assert "2 of 2: all_gather over dp" in chromium.evaluate("caption.innerText")
    chromium.evaluate("back.click()")
    assert "1 of 2" in chromium.evaluate("caption.innerText")
    chromium.evaluate(
        "document.querySelector('.state .box').dispatchEvent(new PointerEvent('pointermove', {bubbles: true}))"
    )
    assert "rank 0" in chromium.evaluate("tip.textContent") and "32.0 MiB" in chromium.evaluate("tip.textContent")


def test_memory_is_drawn_against_its_limit(chromium: Browser, tmp_path: Path) -> None:
    layout = sw.Layout((4096, 4096), torch.float32, sw.Mesh((4,)), [sw.Shard(0)])
    path = tmp_path / "plan.html"
    path.write_text(sw.plan(layout, layout.with_([sw.Replicate()]), max_bytes=100 << 20).to_html(max_bytes=100 << 20))
    chromium.open(path)
    limit = chromium.evaluate("Number(document.querySelector('.limit').getAttribute('y1'))")
    bars = chromium.evaluate("[...document.querySelectorAll('.peak')].map((e) => Number(e.getAttribute('height')))")
    base = chromium.evaluate("Number(document.querySelector('#memory-chart .axis').getAttribute('y1'))")
    assert bars == [pytest.approx((base - limit) * 80 / 100)]  # a quarter and the whole: 16 + 64 MiB


@pytest.mark.parametrize("width", [360, 412])
def test_a_phone_scrolls_in_one_direction(chromium: Browser, tmp_path: Path, width: int) -> None:
    chromium.open(
        written(tmp_path, sw.Mesh((16, 16)), [sw.Shard(0), sw.Shard(1)], [sw.Shard(1), sw.Shard(0)]), width=width
    )
    assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert chromium.evaluate("document.querySelector('#stage .outline').getBoundingClientRect().width") >= 20
    assert chromium.errors == []


def test_4096_ranks_are_interactive_within_seconds(chromium: Browser, tmp_path: Path) -> None:
    mesh = sw.Mesh((16, 16, 16), names=("dp", "pp", "tp"))
    before, after = [sw.Shard(0), sw.Shard(0), sw.Shard(1)], [sw.Shard(1), sw.Replicate(), sw.Shard(0)]
    path = written(tmp_path, mesh, before, after, shape=(65536, 65536))
    assert path.stat().st_size < 2 << 20
    times = []
    for _ in range(3):
        chromium.open(path)
        seek(chromium, 500)
        times.append(chromium.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert min(times) < 4000  # ms, on a machine under load
    assert "4,096 ranks" in chromium.evaluate("legend.innerText")
    click = "document.querySelector('#stage .outline').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    chromium.evaluate(click)
    ranks = chromium.evaluate("[...document.querySelectorAll('.member figcaption')].map((e) => Number(e.textContent))")
    near = [16 * (16 * dp + pp) + tp for dp in range(4) for pp in range(4) for tp in range(4)]
    assert ranks == near  # the tile of 4x4x4 neighbours on the mesh
    assert chromium.evaluate("document.querySelectorAll('.member .box').length") == 2 * len(near)
    chromium.evaluate(click)
    assert chromium.evaluate("members.children.length") == 0
    assert chromium.errors == []


def test_a_ragged_gather_is_shown(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(written(tmp_path, sw.Mesh((3,)), [sw.Shard(0, [3, 0, 5])], [sw.Replicate()], shape=(8,)))
    assert "nothing on rank 1" in chromium.evaluate("document.getElementById('before').innerText")
    seek(chromium, LANDED)
    pieces = {(piece["source"], piece["tile"]): place(piece) for piece in rects(chromium, "#pieces .piece")}
    expected = {0: (0, 0, 3 / 8, 1), 2: (3 / 8, 0, 5 / 8, 1)}
    assert pieces == {(a, b): pytest.approx(expected[a], abs=2e-3) for a in expected for b in range(3)}


def test_a_notebook_shows_it_in_a_frame(chromium: Browser, tmp_path: Path) -> None:
    layout = sw.Layout((8, 8), torch.float32, sw.Mesh((4,)), [sw.Shard(0)])
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html><meta charset=utf-8>" + sw.plan(layout, layout.with_([sw.Shard(1)]))._repr_html_())
    chromium.open(path)
    frame = "document.querySelector('iframe').contentDocument"
    assert chromium.evaluate(f"{frame}.getElementById('notation').innerText") == "S0→S1"
    assert chromium.evaluate(f"{frame}.querySelectorAll('#stage .outline').length") == 4
    heights = chromium.evaluate(
        f"[document.querySelector('iframe').clientHeight, {frame}.documentElement.scrollHeight]"
    )
    assert heights[0] >= heights[1] > 760  # nothing is cut off, and no scroll bar is in the frame
    assert chromium.errors == []
