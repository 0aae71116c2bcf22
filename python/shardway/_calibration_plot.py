"""Measured calls beside the prices of the table, as a picture, through matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_OPS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute")


def plot_problem() -> str:
    """Why nothing can be drawn, or nothing."""
    return "" if importlib.util.find_spec("matplotlib") else "--plot needs matplotlib: pip install matplotlib"


def draw_calibration(document: dict[str, Any], path: Path) -> None:
    """Draws each run of a topology file: even calls as points, hollow where they were held out, and prices as lines."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    runs = [document["measured"], *document.get("also_measured", [])]
    figure, axes = pyplot.subplots(len(runs), 1, figsize=(8, 5 * len(runs)), squeeze=False)
    for run, axis in zip(runs, axes[:, 0], strict=True):
        (table,) = [each for each in document["tables"] if each["ranks"] == run["ranks"]]
        _draw_run(run, table, axis)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _draw_run(run: dict[str, Any], table: dict[str, Any], axis: Any) -> None:
    for number, op in enumerate(_OPS):
        colour = f"C{number}"
        axis.plot(*zip(*table["ops"][op]["points"], strict=True), color=colour, label=op)
        for is_held_out in (False, True):
            calls = [
                call
                for call in run["calls"]
                if call["op"] == op and call["parts"] == "even" and call["held_out"] == is_held_out
            ]
            axis.errorbar(
                [call["bytes"] for call in calls],
                [call["us"] for call in calls],
                yerr=[call["us"] * call["spread"] / 2 for call in calls],
                fmt="o",
                color=colour,
                markerfacecolor="none" if is_held_out else colour,
            )
    axis.set(xscale="log", yscale="log", xlabel="bytes", ylabel="us")
    axis.set_title(
        f"{run['ranks']} ranks on {run['cores']} cores, {run['backend']}; "
        f"error {run['held_out_error']:.0%}, test-retest {run['retest_error']:.0%}"
    )
    axis.legend()
