"""The axes of the benchmarks' pictures: time against size, both logarithmic."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from bench.report import bytes_text, us_text


def dress(axis: Axes) -> None:
    axis.set_xscale("log", base=4)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: bytes_text(int(size)).replace(" ", "\n")))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda us, _: us_text(us)))
    axis.minorticks_off()
    axis.tick_params(labelsize=8)
    axis.grid(color="#e4e4e4", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
