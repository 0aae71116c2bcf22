"""Draws the pictures of performance.md from the tables of these pages, so that both show the same figures:

    .venv/bin/python -m docs.figures.build

A picture carries the text of its table. tests/docs compares it with the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OURS, PEER, OTHER, FLOOR = "#0b6e4f", "#c0392b", "#2c6fbb", "#777777"
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MICROSECONDS = {"µs": 1.0, "ms": 1e3, "s": 1e6}

Rows = list[list[str]]


@dataclass(frozen=True)
class Picture:
    name: str
    page: str  # whose table it shows
    first_cells: str  # the beginning of that table's first line
    draw: Callable[[Rows], Figure]

    @property
    def path(self) -> Path:
        return HERE / f"{self.name}.png"

    def table(self) -> str:
        """The lines of the table without its head."""
        text = (ROOT / self.page).read_text()
        (found,) = re.findall(rf"^{re.escape(self.first_cells)}.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
        return str(found)

    def rows(self) -> Rows:
        return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in self.table().splitlines()]


def amount(text: str, units: dict[str, float] | dict[str, int]) -> float:
    number, unit = text.split()
    return float(number) * units[unit]


def dress(axis: Axes, title: str) -> None:
    axis.set_title(title, fontsize=10)
    axis.grid(color="#e4e4e4", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def against_size(axis: Axes, sizes: list[str]) -> None:
    axis.set_xscale("log", base=4)
    axis.set_yscale("log")
    axis.set_xticks([amount(size, BYTES) for size in sizes], [size.replace(" ", "\n") for size in sizes])
    axis.minorticks_off()
    axis.set_xlabel("data per rank", fontsize=9)


def ragged(rows: Rows) -> Figure:
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=True, layout="constrained")
    for axis, ranks in zip(axes, ("2", "4"), strict=True):
        own = [row for row in rows if row[1] == ranks]
        sizes = [amount(row[0], BYTES) for row in own]
        axis.plot(sizes, [amount(row[2], MICROSECONDS) for row in own], "o-", color=PEER, label="pad, gather, mask")
        axis.plot(sizes, [amount(row[3], MICROSECONDS) for row in own], "o-", color=OURS, label="shardway")
        dress(axis, f"all_gather_v, {ranks} ranks")
        against_size(axis, [row[0] for row in own])
    axes[0].set_ylabel("µs per call", fontsize=9)
    axes[0].legend(fontsize=8, frameon=False)
    return figure


def hosts(rows: Rows) -> Figure:
    """A row that names no hosts belongs to those of the row before."""
    panels: dict[str, Rows] = {}
    for row in rows:
        place, _, call = row[0].rpartition(": ")
        where = place or next(reversed(panels))
        panels.setdefault(where, []).append([call.strip("`").replace("the same, ", "all_gather_v,\n"), *row[2:]])
    figure, axes = plt.subplots(1, len(panels), figsize=(7.6, 3.2), sharey=True, layout="constrained")
    contenders = (("two levels", OURS), ("flat", FLOOR), ("gloo", OTHER), ("pad, gather, mask", PEER))
    for axis, (place, calls) in zip(axes, panels.items(), strict=True):
        for i, (contender, colour) in enumerate(contenders):
            measured = [(x, float(call[i + 1])) for x, call in enumerate(calls) if call[i + 1]]
            places, times = [x + 0.2 * (i - 1.5) for x, _ in measured], [ms for _, ms in measured]
            axis.bar(places, times, 0.2, color=colour, label=contender)
        dress(axis, place)
        axis.set_xticks(range(len(calls)), [call[0] for call in calls], rotation=35, ha="right", fontsize=7)
    axes[0].set_ylabel("ms per call, 1 MiB a rank", fontsize=9)
    axes[0].legend(fontsize=8, frameon=False)
    return figure


def shared_gpu(rows: Rows) -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 3.0), sharey=True, layout="constrained")
    titles = ("all_gather_v, 2 ranks", "all_gather_v, 4 ranks", "reduce_scatter_v, 4 ranks")
    for axis, title, column in zip(axes, titles, (1, 4, 7), strict=True):
        sizes = [amount(row[0], BYTES) for row in rows]
        for i, (contender, colour) in enumerate((("shardway", OURS), ("copy", FLOOR), ("NCCL over sockets", OTHER))):
            axis.plot(sizes, [float(row[column + i]) for row in rows], "o-", color=colour, label=contender)
        dress(axis, title)
        against_size(axis, [row[0] for row in rows])
    axes[0].set_ylabel("µs per call", fontsize=9)
    axes[0].legend(fontsize=8, frameon=False)
    return figure


PICTURES = (
    Picture("ragged", "README.md", "| data a rank | ranks | pad, gather, mask |", ragged),
    Picture("hosts", "docs/hosts.md", "| 1 MiB a rank | bytes: two levels, flat |", hosts),
    Picture("shared_gpu", "docs/cuda.md", "| bytes a rank | gather, 2 ranks | copy |", shared_gpu),
)


def main() -> None:
    for picture in PICTURES:
        figure = picture.draw(picture.rows())
        figure.savefig(picture.path, dpi=110, metadata={"Description": picture.table()})
        plt.close(figure)


if __name__ == "__main__":
    main()
