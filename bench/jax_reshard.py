"""From one sharding to another on one host: shardway on several ranks against JAX on as many CPU devices."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import shardway as sw
from bench.forked_ranks import run_ranks
from bench.mpis import PEERS
from bench.options import parser_of
from bench.report import (
    Claim,
    Row,
    bytes_text,
    not_measured,
    print_about,
    print_claims,
    print_table,
    us_text,
    write_json,
)
from bench.timing import Contender, Effort, Meeting, interleaved

OURS, JAX = "shardway", "JAX"
SIDE = 4096
TIMES_FASTER = 1.5
LIMIT_S = 600.0

HELP = f"""
{SIDE} by {SIDE} f32, on 8 ranks that are processes, and on 8 CPU devices of JAX in one process (build/peers/jax, which
scripts/setup jax makes). JAX reshards by jit with out_shardings and by device_put; its better way counts. Each side
starts from another input in every call and keeps its last three results. The sides take turns of some calls of all
reshardings; the figure is the median of all turns. Ours lasts from the first rank's start to the last rank's end.

Leaves build/bench/jax_reshard.json. Exits 1 when a claim is missed.
"""


@dataclass(frozen=True)
class Reshard:
    """From where to where, in both languages: by mesh dim which tensor dim it splits (None: none)."""

    name: str
    mesh: tuple[int, ...]
    before: tuple[int | None, ...]
    after: tuple[int | None, ...]

    def task(self, side: int, calls: int) -> str:
        specs = {"before": _by_tensor_dim(self.before), "after": _by_tensor_dim(self.after)}
        return json.dumps({"mesh": self.mesh, **specs, "side": side, "calls": calls})


def _by_tensor_dim(splits: Sequence[int | None]) -> list[str | None]:
    """As JAX says it: by tensor dim the name of the mesh dim that splits it."""
    names: list[str | None] = [None, None]
    for name, dim in zip("ab", splits, strict=False):
        if dim is not None:
            names[dim] = name
    return names


RESHARDS = [
    Reshard("S0→S1", (8,), (0,), (1,)),
    Reshard("S1→S0", (8,), (1,), (0,)),
    Reshard("S0→R", (8,), (0,), (None,)),
    Reshard("S0,S1→S1,S0", (2, 4), (0, 1), (1, 0)),
    Reshard("S0,S1→R,R", (2, 4), (0, 1), (None, None)),
    Reshard("R,S0→S1,R", (2, 4), (None, 0), (1, None)),
]
RANKS = math.prod(RESHARDS[0].mesh)


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("jax_reshard", __doc__, HELP)
    parser.add_argument("--quick", action="store_true", help="one turn of few calls, on a tensor of 1024 by 1024")
    parser.add_argument(
        "--peers", type=Path, default=PEERS, help="folder with JAX's environment (default: build/peers)"
    )
    options = parser.parse_args(arguments)
    side, turns, calls = (1024, 1, 3) if options.quick else (SIDE, 3, 5)

    torch.set_num_threads(1)
    us: dict[tuple[str, str], list[float]] = {}
    version = _measure(options.peers / "jax" / "bin" / "python", side, turns, calls, us)
    rows = [
        Row(name, who, RANKS, (side, side), 4 * side * side, round(statistics.median(times), 1), 0.0, len(times))
        for (name, who), times in us.items()
    ]
    claims = claims_of(rows)
    _print_table(rows, side)
    print_about()
    print(f"JAX: {version or 'not there'}")
    print(f"\n{write_json(options.output / 'jax_reshard.json', rows, claims, jax=version)}")
    return print_claims(claims)


def _measure(python: Path, side: int, turns: int, calls: int, us: dict[tuple[str, str], list[float]]) -> str | None:
    """Adds the times of both sides, and gives JAX's version; None where JAX is not there."""
    peer = _start(python) if python.exists() else None
    version = json.loads(_line_of(peer))["jax"] if peer else None
    try:
        for _ in range(turns):
            for name, times in run_ranks(RANKS, _our_turn, Meeting(RANKS), side, calls, timeout_s=LIMIT_S)[0].items():
                us.setdefault((name, OURS), []).append(times)
            for reshard in RESHARDS if peer else []:
                for way, found in _ask(peer, reshard.task(side, calls)).items():
                    us.setdefault((reshard.name, f"{JAX}, {way}"), []).extend(found)
    finally:
        if peer:
            peer.kill()
            peer.wait()
    return version


def _start(python: Path) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("jax_devices.py")
    pipe = subprocess.PIPE
    return subprocess.Popen([str(python), str(program), str(RANKS)], stdin=pipe, stdout=pipe, text=True)


def _line_of(peer: subprocess.Popen[str]) -> str:
    assert peer.stdout is not None
    line = peer.stdout.readline()
    if not line:
        raise RuntimeError(f"JAX ended with exit code {peer.wait()}")
    return line


def _ask(peer: subprocess.Popen[str], task: str) -> dict[str, list[float]]:
    assert peer.stdin is not None
    peer.stdin.write(task + "\n")
    peer.stdin.flush()
    return json.loads(_line_of(peer))  # type: ignore[no-any-return]


def _our_turn(rank: int, ranks: int, meeting: Meeting, side: int, calls: int) -> dict[str, float]:
    """The median of a turn, by resharding."""
    found = {}
    for reshard in RESHARDS:
        contender = _ours(rank, reshard, side)
        effort = Effort(min_rounds=calls, max_rounds=calls, seconds=0.0)
        found[reshard.name] = interleaved(meeting, rank, [contender], effort)[OURS].us
        dist.barrier()
    return found


def _ours(rank: int, reshard: Reshard, side: int) -> Contender:
    mesh = sw.Mesh(reshard.mesh, names=tuple("ab"[: len(reshard.mesh)]))
    before, after = ([_placement(dim) for dim in splits] for splits in (reshard.before, reshard.after))
    whole = torch.arange(side * side, dtype=torch.float32).view(side, side)
    local = _part(whole, rank, reshard.mesh, reshard.before).clone()
    expected = _part(whole, rank, reshard.mesh, reshard.after)
    t = sw.MeshTensor(local, sw.Layout((side, side), torch.float32, mesh, before))

    def rewrite() -> None:
        local.neg_()

    def call() -> Any:
        return sw.redistribute(t, after)

    assert torch.equal(call().local, expected), f"{reshard.name} gives something else"
    return Contender(OURS, rewrite, call)


def _placement(dim: int | None) -> sw.Placement:
    return sw.Replicate() if dim is None else sw.Shard(dim)


def _part(whole: Tensor, rank: int, mesh: Sequence[int], splits: Sequence[int | None]) -> Tensor:
    """What a rank holds: mesh dims split in order, the last mesh dim varying fastest over the ranks."""
    for position, dim in enumerate(splits):
        if dim is not None:
            coordinate = rank // math.prod(mesh[position + 1 :]) % mesh[position]
            whole = whole.chunk(mesh[position], dim)[coordinate]
    return whole


def claims_of(rows: Sequence[Row]) -> list[Claim]:
    claims = []
    for reshard in RESHARDS:
        text = f"{reshard.name} on {RANKS} ranks: at least {TIMES_FASTER:g} times faster than JAX's better way"
        us = {row.contender: row.us for row in rows if row.op == reshard.name}
        theirs = [time for who, time in us.items() if who.startswith(JAX)]
        if OURS not in us or not theirs:
            claims.append(not_measured(text))
            continue
        times = min(theirs) / us[OURS]
        claims.append(Claim(text, f"{times:.2f} times", times >= TIMES_FASTER))
    return claims


def _print_table(rows: Sequence[Row], side: int) -> None:
    us = {(row.op, row.contender): row.us for row in rows}
    whos = list(dict.fromkeys(row.contender for row in rows))
    print(f"\n{side} by {side} f32 ({bytes_text(4 * side * side)}): time of a resharding on {RANKS} ranks")
    print_table(
        ["", *whos],
        [[r.name, *(us_text(us[r.name, w]) if (r.name, w) in us else "-" for w in whos)] for r in RESHARDS],
    )


if __name__ == "__main__":
    sys.exit(main())
