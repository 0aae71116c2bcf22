"""The picture of bench/redistribute.py: time against size, a panel per op and number of ranks."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench import plot_axes
from bench.redistribute_contenders import COPY, ON_GLOO, OPS, OURS, PEER, SHARED
from bench.report import Row

COLOURS = {PEER: "#c0392b", ON_GLOO: "#2c6fbb", OURS: "#0b6e4f", SHARED: "#0b6e4f", COPY: "#777777"}
DASHES = {SHARED: "--", COPY: ":"}


def draw(rows: list[Row], path: Path) -> Path:
    ops = [op.name for op in OPS if any(row.op == op.name for row in rows)]
    all_ranks = sorted({row.ranks for row in rows})
    figure, axes = plt.subplots(
        len(all_ranks),
        len(ops),
        figsize=(2.9 * len(ops), 3.4 * len(all_ranks) + 1.3),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for line, ranks in enumerate(all_ranks):
        for column, op in enumerate(ops):
            axis = axes[line][column]
            _draw_panel(axis, [row for row in rows if row.ranks == ranks and row.op == op])
            if line == 0:
                axis.set_title(op, fontsize=11)
        axes[line][0].set_ylabel(f"{ranks} ranks\ntime of one call (median)", fontsize=11)
    for axis in axes[-1]:
        axis.set_xlabel("f32 tensor", fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(COLOURS), frameon=False, fontsize=10)
    figure.suptitle("A tensor from one sharding to another, one host; lower is faster", fontsize=13)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _draw_panel(axis: Axes, rows: list[Row]) -> None:
    for contender, colour in COLOURS.items():
        points = sorted(
            (row.shape[0] * row.shape[1] * 4, row.us, row.shape) for row in rows if row.contender == contender
        )
        if points:
            axis.plot(
                [size for size, _, _ in points],
                [us for _, us, _ in points],
                color=colour,
                linestyle=DASHES.get(contender, "-"),
                marker="o",
                markersize=4,
                markerfacecolor="white" if contender == SHARED else colour,
                linewidth=1.8,
                label=contender,
            )
    plot_axes.dress(axis)
    shapes = sorted({row.shape for row in rows})
    axis.set_xticks([rows * columns * 4 for rows, columns in shapes], [f"{r}×{c}" for r, c in shapes])
