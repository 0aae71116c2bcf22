"""The picture of bench/shm.py: time against size, a panel per op and number of ranks."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench import plot_axes
from bench.mpis import is_mpi
from bench.shm_contenders import COPIES, OURS, OURS_SHARED, OUT, PULLS, TENSORS, TENSORS_SHARED
from bench.shm_rows import OPS, ShmRow

BEST_MPI = "the best MPI at each size"
LINES = {
    OURS: ("#0b6e4f", "-"),
    OURS_SHARED: ("#0b6e4f", "--"),
    TENSORS: ("#7fb89f", "-"),
    TENSORS_SHARED: ("#7fb89f", "--"),
    BEST_MPI: ("#c0392b", "-"),
    "plain copy": ("#777777", ":"),
    PULLS: ("#777777", "--"),
}


def draw(rows: list[ShmRow], shape: str, path: Path) -> Path:
    """Of the rows with the output given, at one shape."""
    wanted = [row for row in rows if row.output == OUT and row.shape == shape and row.op in OPS]
    all_ranks = sorted({row.ranks for row in wanted})
    ops = [op for op in OPS if any(row.op == op for row in wanted)]
    figure, axes = plt.subplots(
        len(all_ranks),
        len(ops),
        figsize=(4.6 * len(ops), 3.6 * len(all_ranks) + 1.2),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for line, ranks in enumerate(all_ranks):
        for column, op in enumerate(ops):
            _draw_panel(axes[line][column], [row for row in wanted if row.ranks == ranks and row.op == op])
            axes[line][column].set_title(f"{op}, {ranks} ranks", fontsize=11)
        axes[line][0].set_ylabel("time of one call (median)", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("data per rank, on average", fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    figure.suptitle(f"Collectives in shared memory, sizes {shape}, output given; lower is faster", fontsize=13)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _line_of(contender: str) -> str:
    if is_mpi(contender):
        return BEST_MPI
    return "plain copy" if contender in COPIES else contender


def _draw_panel(axis: Axes, rows: list[ShmRow]) -> None:
    best: dict[str, dict[int, float]] = {name: {} for name in LINES}
    for row in rows:
        points = best[_line_of(row.contender)]
        points[row.bytes] = min(row.us, points.get(row.bytes, row.us))
    for name, points in best.items():
        if points:
            colour, style = LINES[name]
            sizes = sorted(points)
            times = [points[size] for size in sizes]
            axis.plot(sizes, times, style, color=colour, marker="o", markersize=3, linewidth=1.6, label=name)
    plot_axes.dress(axis)
