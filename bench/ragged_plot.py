"""The picture of bench/ragged.py: time against size, a panel per op and number of ranks."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench import plot_axes
from bench.ragged_contenders import COPY, OURS, PEER, POINT_TO_POINT
from bench.report import Row, geometric_mean

GIVEN = ", sizes given"
COLOURS = {OURS: "#0b6e4f", PEER: "#c0392b", POINT_TO_POINT: "#2c6fbb", COPY: "#777777"}
NOTES = {PEER: "the copied distributed.py", COPY: "of the result: the floor", POINT_TO_POINT: "in plain torch"}
TITLES = {
    "forward": "gather",
    "forward+backward grad=local": 'gather + backward, grad="local"\n(own slice, no communication)',
    "forward+backward grad=sum": 'gather + backward, grad="sum"\n(gradients of all ranks added)',
}


def draw(rows: list[Row], path: Path) -> Path:
    ops = [op for op in TITLES if any(row.op == op for row in rows)]
    all_ranks = sorted({row.ranks for row in rows})
    figure, axes = plt.subplots(
        len(all_ranks),
        len(ops),
        figsize=(4.6 * len(ops), 3.7 * len(all_ranks) + 1.3),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for line, ranks in enumerate(all_ranks):
        floor = [row for row in rows if row.ranks == ranks and row.contender == COPY]
        for column, op in enumerate(ops):
            panel = [row for row in rows if row.ranks == ranks and row.op == op and row.contender != COPY]
            _draw_panel(axes[line][column], panel + floor)
            if line == 0:
                axes[line][column].set_title(TITLES[op], fontsize=11)
        axes[line][0].set_ylabel(f"{ranks} ranks\ntime of one call (median)", fontsize=11)
    for axis in axes[-1]:
        axis.set_xlabel("data per rank, on average", fontsize=11)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=10)
    figure.suptitle(
        "Gathering tensors whose size differs per rank (1:3:5:…), gloo on one host; lower is faster", fontsize=13
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _draw_panel(axis: Axes, rows: list[Row]) -> None:
    for contender in _in_order(rows):
        points = sorted((row.bytes, row.us) for row in rows if row.contender == contender)
        name = contender.removesuffix(GIVEN)
        given = contender.endswith(GIVEN)
        label = f"{contender} ({NOTES[name]})" if name in NOTES else contender
        axis.plot(
            [size for size, _ in points],
            [us for _, us in points],
            color=COLOURS[name],
            linestyle=":" if name == COPY else "--" if given else "-",
            marker="x" if name == POINT_TO_POINT else "o",
            markerfacecolor="white" if given else COLOURS[name],
            markersize=7 if name == POINT_TO_POINT else 4,
            linewidth=1.0 if name == POINT_TO_POINT else 1.8,
            label=label,
        )
    axis.text(0.03, 0.96, _faster_text(rows), transform=axis.transAxes, va="top", fontsize=9, color=COLOURS[OURS])
    plot_axes.dress(axis)
    axis.set_xticks(sorted({row.bytes for row in rows}))


def _faster_text(rows: list[Row]) -> str:
    us = {(row.contender, row.bytes): row.us for row in rows}
    ratios = [
        us[PEER + suffix, size] / us[OURS + suffix, size]
        for suffix in ("", GIVEN)
        for size in sorted({row.bytes for row in rows})
        if (OURS + suffix, size) in us and (PEER + suffix, size) in us
    ]
    if not ratios:
        return ""
    span = f"{min(ratios):.1f} to {max(ratios):.0f}"
    return f"{OURS}: {span} times faster than {PEER}\n(geometric mean {geometric_mean(ratios):.1f})"


def _in_order(rows: list[Row]) -> list[str]:
    present = {row.contender for row in rows}
    wanted = [PEER, PEER + GIVEN, OURS, OURS + GIVEN, POINT_TO_POINT + GIVEN, COPY]  # drawn one over the other
    return [contender for contender in wanted if contender in present]
