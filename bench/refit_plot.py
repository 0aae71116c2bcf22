"""The picture of bench/refit.py: a bar per contender, a panel per model and number of ranks."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from bench.refit_rows import RefitRow
from bench.report import us_text

OURS, FLOOR, OTHERS = "#0b6e4f", "#777777", "#c0392b"


def draw(rows: list[RefitRow], path: Path) -> Path:
    cases = list(dict.fromkeys((row.op, row.trainers, row.generators) for row in rows))
    figure, axes = plt.subplots(len(cases), 1, figsize=(9.5, 3.6 * len(cases)), squeeze=False, layout="constrained")
    for axis, case in zip(axes[:, 0], cases, strict=True):
        op, trainers, generators = case
        some = [row for row in rows if (row.op, row.trainers, row.generators) == case]
        _draw_panel(axis, some)
        title = f"{op}: {some[0].bytes / 2**20:.0f} MiB in {some[0].tensors} tensors"
        axis.set_title(f"{title}, {trainers} trainers, {generators} generators", fontsize=11)
    figure.suptitle("A model from one job to another, one host; shorter is faster", fontsize=13)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return path


def _draw_panel(axis: Axes, rows: list[RefitRow]) -> None:
    names = [row.contender for row in rows]
    bars = axis.barh(names, [row.us for row in rows], color=[_colour(name) for name in names])
    axis.bar_label(bars, [us_text(row.us) for row in rows], padding=3, fontsize=8)
    axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.invert_yaxis()
    axis.xaxis.set_major_formatter(FuncFormatter(lambda us, _: us_text(us)))
    axis.tick_params(labelsize=8)
    axis.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _colour(contender: str) -> str:
    if contender.startswith("shardway"):
        return OURS
    return FLOOR if contender.startswith("plain copy") else OTHERS
