"""The picture of bench/hosts_simulated.py: time against hosts, a panel per op and network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from bench import plot_axes
from bench.report import bytes_text

if TYPE_CHECKING:
    from bench.hosts_simulated import SimulatedRow

LINES = {"two levels": ("#0b6e4f", "-"), "flat": ("#c0392b", "-"), "least": ("#777777", ":")}


def draw(rows: list[SimulatedRow], networks: list[str], ranks_per_host: int, path: Path) -> Path:
    ops = list(dict.fromkeys(row.op for row in rows))
    hosts = sorted({row.hosts for row in rows})
    figure, axes = plt.subplots(
        len(networks),
        len(ops),
        figsize=(3.6 * len(ops), 3.2 * len(networks) + 1.0),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for line, network in enumerate(networks):
        for column, op in enumerate(ops):
            axis = axes[line][column]
            of_op = [row for row in rows if row.op == op]
            for way, (colour, style) in LINES.items():
                points = [(row.hosts, row.us[network]) for row in of_op if row.way == way]
                axis.plot(*zip(*points, strict=True), style, color=colour, marker="o", markersize=3.5, label=way)
            plot_axes.dress(axis)
            axis.set_xscale("log", base=2)
            axis.set_xticks(hosts)
            axis.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:.0f}"))
            if line == 0:
                axis.set_title(f"{op}, {bytes_text(of_op[0].bytes)}", fontsize=11)
        axes[line][0].set_ylabel(network, fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel(f"hosts of {ranks_per_host} ranks", fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(LINES), frameon=False, fontsize=10)
    figure.suptitle("Collectives between hosts, simulated; lower is faster", fontsize=13)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
