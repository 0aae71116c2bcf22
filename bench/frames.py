"""How many of our functions one call goes through, and how often it crosses from one room to another."""

from __future__ import annotations

import argparse
import ctypes
import functools
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench.commits import ROOT, unpacked
from bench.options import parser_of

HELP = """
Builds the tree without optimisation, so that every function is one, with a hook at the entry of each (GCC's
-finstrument-functions), and lets two ranks make the calls: a few times to warm up, and once more for the count. A frame
is a distinct function of src, include or python; a crossing is a distinct pair of functions of two rooms, of which one
calls the other. Rooms are the folders right below src, so that commits with rooms of another cut can be compared.
"""

HOOKS = "-finstrument-functions -finstrument-functions-exclude-file-list=/usr/,/opt/,site-packages"
ELEMENTS = 64 << 10


@dataclass(frozen=True)
class Count:
    frames: int
    crossings: int


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("frames", __doc__, HELP, leaves_output=False)
    parser.add_argument("commit", nargs="?", help="a commit to compare with")
    parser.add_argument("--tree", type=Path, help="in place of a commit: a folder with its sources")
    parser.add_argument("--cmake", nargs="*", default=[], help="further arguments for cmake, without their -D")
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.rank:
        run_rank(int(options.rank[0]), Path(options.rank[1]), Path(options.rank[2]))
        return 0
    before = options.tree or (unpacked(options.commit) if options.commit else None)
    trees = {"before": before, "now": ROOT} if before else {"now": ROOT}
    counts = {name: counted(build(tree.resolve(), options.cmake), tree.resolve()) for name, tree in trees.items()}
    for call in counts["now"]:
        texts = [
            f"{name}: {found[call].frames} frames, {found[call].crossings} crossings" for name, found in counts.items()
        ]
        if before:
            texts.append(f"{counts['now'][call].frames / counts['before'][call].frames:.0%} of the frames")
        print(f"{call:22} {'; '.join(texts)}")
    return 0


def build(tree: Path, cmake: list[str]) -> Path:
    """The library of a tree with the hooks in it."""
    folder = tree / "build" / "frames"
    flags = f"-DCMAKE_CXX_FLAGS=-O0 -g1 {HOOKS}"
    print(f"== building {folder}", flush=True)
    settings = [
        "-DCMAKE_BUILD_TYPE=None",
        f"-DPython_EXECUTABLE={sys.executable}",
        flags,
        *(f"-D{one}" for one in cmake),
    ]
    quiet = subprocess.DEVNULL
    subprocess.run(["cmake", "-G", "Ninja", "-S", tree, "-B", folder, *settings], check=True, stdout=quiet)
    subprocess.run(["cmake", "--build", folder], check=True, stdout=quiet)
    tracer = folder / "libframes_tracer.so"
    source = ROOT / "bench" / "frames_tracer.cpp"
    subprocess.run(["g++", "-O1", "-fPIC", "-shared", "-std=c++20", source, "-o", tracer], check=True)
    return folder


def counted(folder: Path, tree: Path) -> dict[str, Count]:
    with tempfile.TemporaryDirectory() as place:
        environment = {
            **os.environ,
            "LD_PRELOAD": str(folder / "libframes_tracer.so"),
            "PYTHONPATH": f"{folder / 'python'}:{ROOT}",
        }
        command = [sys.executable, "-m", "bench.frames", "--rank"]
        ranks = [
            subprocess.Popen([*command, str(rank), place, str(folder)], env=environment, cwd=ROOT) for rank in range(2)
        ]
        endings = [rank.wait() for rank in ranks]
        if any(endings):
            raise SystemExit("a rank failed")
        traces = sorted(Path(place).glob("*.trace"))
        return {trace.stem.split("-")[1]: count_of(trace, tree) for trace in traces}


def count_of(trace: Path, tree: Path) -> Count:
    """Of the events of one call, and of the Python functions beside them."""
    events = [line.split() for line in trace.read_text().splitlines()]
    places = resolved({address for _, _, address in events}, trace.with_suffix(".maps"))
    frames: set[str] = set(trace.with_suffix(".python").read_text().splitlines())
    crossings: set[tuple[str, str]] = set()
    stacks: dict[str, list[str]] = defaultdict(list)
    for thread, kind, address in events:
        stack = stacks[thread]
        if kind == "<":
            if stack:
                stack.pop()
            continue
        name, file = places[address]
        room = room_of(file, tree)
        if room:
            frames.add(name)
        caller = next((one for one in reversed(stack) if one), "")
        if room and caller and caller.split(" ")[0] != room:
            crossings.add((caller, f"{room} {name}"))
        stack.append(f"{room} {name}" if room else "")
    return Count(len(frames), len(crossings))


def room_of(file: str, tree: Path) -> str:
    """The folder below src; empty for what is not ours, or a public header's."""
    path = os.path.normpath(file)
    for at in range(len(parts := Path(path).parts)):
        if parts[at] in ("src", "python") and str(path).startswith(str(tree)):
            return parts[at + 1]
        if parts[at] == "rooms":  # a room's view of src
            return parts[at + 2]
    return ""


def resolved(addresses: set[str], maps: Path) -> dict[str, tuple[str, str]]:
    """Function and file by address."""
    bases: list[tuple[int, int, int, str]] = []
    first: dict[str, int] = {}
    for line in maps.read_text().splitlines():
        fields = line.split()
        if len(fields) < 6:
            continue
        begin, end = (int(one, 16) for one in fields[0].split("-"))
        first.setdefault(fields[5], begin)
        bases.append((begin, end, first[fields[5]], fields[5]))
    by_library: dict[str, dict[str, str]] = defaultdict(dict)
    for address in addresses:
        value = int(address, 16)
        found = next(((base, path) for begin, end, base, path in bases if begin <= value < end), None)
        if found:
            by_library[found[1]][address] = hex(value - found[0])
    places: dict[str, tuple[str, str]] = dict.fromkeys(addresses, ("?", "?"))
    for library, offsets in by_library.items():
        command = ["addr2line", "-f", "-C", "-e", library, *offsets.values()]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        for index, address in enumerate(offsets):
            places[address] = (lines[2 * index], lines[2 * index + 1].rsplit(":", 1)[0])
    return places


def run_rank(rank: int, place: Path, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    import shardway as sw

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/store", rank=rank, world_size=2)
    ours = dist.new_group(backend="shardway")
    x = torch.ones(ELEMENTS + rank)
    leaf = torch.ones(ELEMENTS + rank, requires_grad=True)
    even = torch.ones(ELEMENTS)
    mesh = sw.Mesh((2,))
    matrix = torch.ones(ELEMENTS // 256, 256)
    sharded = sw.MeshTensor(matrix, sw.Layout((2 * ELEMENTS // 256, 256), torch.float32, mesh, [sw.Shard(0)]))

    def gathered() -> torch.Tensor:
        return sw.all_gather_v(leaf)[0].sum()

    calls: dict[str, tuple[Callable[[], object], Callable[[object], object]]] = {
        "all_gather_v": (lambda: None, lambda _: sw.all_gather_v(x)),
        "its backward": (gathered, lambda total: total.backward()),  # type: ignore[attr-defined]
        "redistribute": (lambda: None, lambda _: sw.redistribute(sharded, [sw.Shard(1)])),
        "dist.all_reduce": (lambda: None, lambda _: dist.all_reduce(even, group=ours)),
        "all_gather_v of a list": (lambda: None, lambda _: sw.all_gather_v([x, x])),
    }
    tracer = ctypes.CDLL(str(folder / "libframes_tracer.so"))
    for index, (name, (prepare, call)) in enumerate(calls.items()):
        for _ in range(3):
            call(prepare())
        prepared = prepare()
        python: set[str] = set()
        dist.barrier()
        sys.setprofile(functools.partial(_see, python))
        tracer.frames_begin()
        call(prepared)
        trace = place / f"{index}-{name}.trace"
        tracer.frames_end(str(trace if rank == 0 else place / "unused").encode())
        sys.setprofile(None)
        if rank == 0:
            trace.with_suffix(".maps").write_text(Path("/proc/self/maps").read_text())
            trace.with_suffix(".python").write_text("\n".join(python))
    dist.destroy_process_group()


def _see(seen: set[str], frame: FrameType, event: str, _: object) -> None:
    code = frame.f_code
    if event == "call" and "/shardway/" in code.co_filename:
        seen.add(f"{Path(code.co_filename).name}:{code.co_qualname}")


if __name__ == "__main__":
    sys.exit(main())
