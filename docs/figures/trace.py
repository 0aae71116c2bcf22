"""A trace of a redistribute and its picture: torchrun --nproc-per-node 4 docs/figures/trace.py FOLDER

Writes trace.json and trace.png to the folder: what the ranks did in the quickest of several redistributes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import shardway as sw

_TURNS = 20

Slice = dict[str, Any]


def _trace(path: Path) -> None:
    mesh = sw.Mesh((2, 2), names=("dp", "tp"))
    layout = sw.Layout((2048, 2048), torch.float32, mesh, [sw.Shard(0), sw.Partial()])
    _, shape = layout.box(dist.get_rank())
    before = sw.MeshTensor(torch.ones(shape), layout)
    with sw.trace(path):
        for _ in range(_TURNS):
            sw.redistribute(before, [sw.Replicate(), sw.Replicate()])


def _quickest(slices: list[Slice]) -> list[Slice]:
    """The steps of the turn that took least, from the first rank's start to the last rank's end."""
    steps = sorted((each for each in slices if each["cat"] == "step"), key=lambda each: (each["pid"], each["ts"]))
    per_rank = len(steps) // len({step["pid"] for step in steps})
    per_turn = per_rank // _TURNS
    turns = [[s for i, s in enumerate(steps) if i % per_rank // per_turn == turn] for turn in range(_TURNS)]
    return min(turns, key=lambda turn: max(s["ts"] + s["dur"] for s in turn) - min(s["ts"] for s in turn))


def _is_within(call: Slice, step: Slice) -> bool:
    return call["pid"] == step["pid"] and 0 <= call["ts"] - step["ts"] <= step["dur"] - call["dur"]


def _draw(slices: list[Slice], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    steps = _quickest(slices)
    begin = min(step["ts"] for step in steps)
    calls = [each for each in slices if each["cat"] == "call" and any(_is_within(each, step) for step in steps)]
    names = list(dict.fromkeys(step["name"] for step in steps))
    figure, axis = pyplot.subplots(figsize=(9, 3.6))
    for step in steps:
        colour = f"C{names.index(step['name'])}"
        axis.barh(step["pid"], step["dur"], left=step["ts"] - begin, height=0.55, color=colour)
    for call in calls:
        axis.barh(call["pid"] + 0.36, call["dur"], left=call["ts"] - begin, height=0.12, color="0.35", edgecolor="w")
    for number, name in enumerate(names):
        priced = next(step["args"]["modelled_us"] for step in steps if step["name"] == name)
        axis.barh(0, 0, color=f"C{number}", label=f"{name}, modelled {priced:.0f} us")
    axis.barh(0, 0, color="0.35", label="calls")
    axis.set(xlabel="us", yticks=sorted({step["pid"] for step in steps}), ylabel="rank")
    axis.invert_yaxis()
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def _main(folder: Path) -> None:
    dist.init_process_group("gloo")
    _trace(folder / "trace.json")
    dist.barrier()
    if dist.get_rank() == 0:
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        _draw([event for event in events if event["ph"] == "X"], folder / "trace.png")
    dist.destroy_process_group()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
