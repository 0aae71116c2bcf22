"""What is well with shardway and torch here: `python -m shardway.doctor [--json]`.

This is the part of `shardway doctor` that needs torch; the program asks it and adds the rest.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

import shardway as sw
from shardway._built_for import TORCH_VERSION

_ROUND_TRIP_S = 30.0


@dataclass(frozen=True)
class Line:
    subject: str
    health: str  # ok, slow or broken
    what: str
    advice: str = ""


def lines() -> list[Line]:
    """All of them, in the order in which they are printed. Starts processes, and makes no group in this one."""
    ways = [
        _round_trip("shared memory in torch", "gloo", "shm"),
        _round_trip("gloo", "gloo", "c10d"),
        _round_trip('backend "shardway"', "shardway", None),
    ]
    return [_torch_line(), _gpu_line(), *ways]


def _torch_line() -> Line:
    text = f"torch {torch.__version__}; shardway {sw.__version__} was built for torch {TORCH_VERSION}"
    if torch.__version__.split("+")[0] == TORCH_VERSION.split("+")[0]:
        return Line("torch", "ok", text)
    return Line("torch", "slow", text, "build shardway for this torch if something behaves oddly")


def _gpu_line() -> Line:
    if not torch.cuda.is_available():
        return Line("torch's GPUs", "ok", "torch sees none; CPU tensors need none")
    nccl = "with NCCL" if dist.is_nccl_available() else "without NCCL: groups of GPUs need another engine"
    return Line("torch's GPUs", "ok", f"torch sees {torch.cuda.device_count()}, {nccl}; no call was tried on them")


def _round_trip(subject: str, backend: str, transport: str | None) -> Line:
    """Two ranks in processes of their own gather what each brings."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [_forked(partial(_be_rank, rank, folder, backend, transport)) for rank in range(2)]
        said = _awaited(ranks, time.monotonic() + _ROUND_TRIP_S)
    wrong = [f"rank {rank}: {words}" for rank, words in enumerate(said) if words != "ok"]
    if not wrong:
        return Line(subject, "ok", "two ranks exchanged values")
    return Line(subject, "broken", "; ".join(wrong), _ADVICE[transport])


_ADVICE = {
    "shm": "groups of this host use their own engine instead, which is slower; `shardway doctor` tells what is missing",
    "c10d": "gloo finds no network: set GLOO_SOCKET_IFNAME to an interface, such as lo on one host",
    None: 'take the backend "gloo" until this works',
}


def _be_rank(rank: int, folder: str, backend: str, transport: str | None) -> str:
    os.environ.pop("SHARDWAY_TRANSPORT", None)
    os.environ["SHARDWAY_QUIET"] = "1"
    if transport is not None:
        os.environ["SHARDWAY_TRANSPORT"] = transport
    store = torch._C._distributed_c10d.FileStore(f"{folder}/store", 2)
    dist.init_process_group(backend, rank=rank, world_size=2, store=store, timeout=timedelta(seconds=_ROUND_TRIP_S))
    try:
        gathered, sizes = sw.all_gather_v(torch.full((rank + 1,), 10.0 + rank))
        is_right = gathered.tolist() == [10.0, 11.0, 11.0] and sizes == (1, 2)
        return "ok" if is_right else f"it got {gathered.tolist()} instead of [10.0, 11.0, 11.0]"
    finally:
        dist.destroy_process_group()


@dataclass(frozen=True)
class _Rank:
    pid: int
    words: int  # the descriptor that it says them to


def _forked(body: Callable[[], str]) -> _Rank:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid != 0:
        os.close(writing)
        return _Rank(pid, reading)
    try:
        words = body()
    except Exception as error:
        words = str(error).partition("\n")[0] or type(error).__name__
    os.write(writing, words.encode())
    os._exit(0)


def _awaited(ranks: list[_Rank], deadline: float) -> list[str]:
    """What each says, and their end."""
    said = []
    for rank in ranks:
        said.append(_words_of(rank, deadline))
        os.close(rank.words)
    for rank in ranks:
        os.kill(rank.pid, signal.SIGKILL)
        os.waitpid(rank.pid, 0)
    return said


def _words_of(rank: _Rank, deadline: float) -> str:
    if not select.select([rank.words], [], [], max(deadline - time.monotonic(), 0))[0]:
        return f"it did not finish within {_ROUND_TRIP_S:.0f} s"
    return os.read(rank.words, 4096).decode(errors="replace") or "it ended without a word"


def _main(arguments: list[str]) -> int:
    if arguments not in ([], ["--json"]):
        print("usage: python -m shardway.doctor [--json]", file=sys.stderr)
        return 2
    found = lines()
    if arguments:
        print(json.dumps({"version": sw.__version__, "lines": [asdict(line) for line in found]}))
    else:
        for line in found:
            print(f"{line.health:8}{line.subject:24}  {line.what}")
            if line.advice:
                print(" " * 34 + line.advice)
        print("`shardway doctor` also looks at the machine and at the environment", file=sys.stderr)
    return 1 if any(line.health == "broken" for line in found) else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
