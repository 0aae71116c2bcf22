"""Collectives among hundreds of hosts, by the plans that would run: two levels, a flat exchange, and the least."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.hosts_simulated_plot import draw
from bench.options import parser_of
from bench.report import Claim, bytes_text, print_claims, print_table, us_text, write_json

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "release" / "bench" / "hosts_simulated"
MIB, GIB = 2**20, 2**30
OURS, FLAT, LEAST = "two levels", "flat", "least"
PLAN_LIMIT_US = 1e6

HELP = """
A program makes every rank's plan and counts what it moves; nothing is sent. The time of a call is that of the busiest
rank: its messages, the bytes of its host by the bandwidth that the ranks of a host share, and what it reads of their
memory.

  two levels  the plans that run between hosts
  flat        every rank sends to every rank; inside a host too it is messages
  least       the bytes that a host has to send or receive, whatever the algorithm, and one message

The measured figures are fitted to bench/hosts.py on 2 hosts of 4 ranks, 8 ranks on 2 cores: bandwidth and messages to
its flat exchange of equal parts of 64 KiB and 1 MiB, memory to its two levels at 1 MiB. The assumed ones are those of a
data centre.

Leaves build/bench/hosts_simulated.json and a picture. Exits 1 when a claim is missed.
"""

FIELDS = {
    "bytes": "of a rank in all_gather_v and reduce_scatter_v, else of the tensor",
    "bytes_per_host": "over its border, the larger of both ways, on the busiest host",
    "bytes_per_rank": "read from other ranks of the host, on the busiest rank",
    "messages": "of the busiest rank, the larger of both ways",
    "plan_us": "to make the plan of one rank",
    "us": "of a call, by network",
}


@dataclass(frozen=True)
class Network:
    name: str
    gib_per_s: float  # of a host, each way
    message_us: float
    memory_gib_per_s: float  # of a rank that reads another's memory

    def us_of(self, row: SimulatedRow) -> float:
        across = row.messages * self.message_us + row.bytes_per_host / (self.gib_per_s * GIB) * 1e6
        return across + row.bytes_per_rank / (self.memory_gib_per_s * GIB) * 1e6


@dataclass
class SimulatedRow:
    op: str
    hosts: int
    way: str
    bytes: int
    bytes_per_host: int
    bytes_per_rank: int
    messages: int
    peers: int
    plan_us: float
    us: dict[str, float] = field(default_factory=dict)


NETWORKS = (
    Network("measured, 1 Gbit/s", gib_per_s=0.094, message_us=160, memory_gib_per_s=0.5),
    Network("assumed, 100 Gbit/s", gib_per_s=11.6, message_us=10, memory_gib_per_s=5),
)


def least_of(row: SimulatedRow, ranks_per_host: int) -> SimulatedRow:
    """A host misses the rows of all others, and has addends of theirs; a tensor reaches every host once."""
    others = {
        "all_gather_v": (row.hosts - 1) * ranks_per_host * row.bytes,
        "reduce_scatter_v": (row.hosts - 1) * ranks_per_host * row.bytes,
        "all_reduce": 2 * (row.hosts - 1) * row.bytes // row.hosts,
        "broadcast": row.bytes,
    }[row.op]
    return SimulatedRow(row.op, row.hosts, LEAST, row.bytes, others, 0, 1, 0, 0)


def simulate(hosts: list[int], ranks_per_host: int, part_bytes: int, whole_bytes: int) -> list[SimulatedRow]:
    sizes = [str(n) for n in (ranks_per_host, part_bytes, whole_bytes, *hosts)]
    lines = subprocess.run([PROGRAM, *sizes], check=True, capture_output=True, text=True).stdout.splitlines()
    rows = []
    for line in lines:
        row = SimulatedRow(**json.loads(line))
        rows.append(row)
        if row.way == FLAT:
            rows.append(least_of(row, ranks_per_host))
    for row in rows:
        row.us = {network.name: network.us_of(row) for network in NETWORKS}
    return rows


def _claims(rows: list[SimulatedRow]) -> list[Claim]:
    least = {(row.op, row.hosts): row.bytes_per_host for row in rows if row.way == LEAST}
    ours = [row for row in rows if row.way == OURS]
    most, row = max(
        ((row.bytes_per_host / least[row.op, row.hosts], row) for row in ours if row.op != "broadcast"),
        key=lambda entry: entry[0],
    )
    slowest = max(ours, key=lambda row: row.plan_us)
    return [
        Claim(
            "all_gather_v, reduce_scatter_v, all_reduce: a host sends at most 1.01 times the least",
            f"{most:.3f} ({row.op}, {row.hosts} hosts)",
            most <= 1.01,
        ),
        Claim(
            f"a rank makes its plan in under {us_text(PLAN_LIMIT_US)}",
            f"{us_text(slowest.plan_us)} ({slowest.op}, {slowest.hosts} hosts)",
            slowest.plan_us < PLAN_LIMIT_US,
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = parser_of("hosts_simulated", __doc__, HELP)
    parser.add_argument("--hosts", nargs="+", type=int, default=[8, 32, 128, 512], help="default: 8 32 128 512")
    parser.add_argument("--ranks-per-host", type=int, default=8, help="default: 8")
    parser.add_argument("--part", type=int, default=MIB, help="bytes of a rank that is gathered (default: 1 MiB)")
    parser.add_argument("--whole", type=int, default=64 * MIB, help="bytes of other tensors (default: 64 MiB)")
    options = parser.parse_args(arguments)
    rows = simulate(options.hosts, options.ranks_per_host, options.part, options.whole)
    print_table(
        ["call", "hosts", "way", "bytes/host", "messages/rank", "plan", *(network.name for network in NETWORKS)],
        [
            [
                f"{row.op}, {bytes_text(row.bytes)}",
                str(row.hosts),
                row.way,
                f"{row.bytes_per_host / MIB:.0f} MiB",
                str(row.messages),
                us_text(row.plan_us) if row.way == OURS else "",
                *(us_text(us) for us in row.us.values()),
            ]
            for row in rows
        ],
    )
    claims = _claims(rows)
    print(f"\n{write_json(options.output / 'hosts_simulated.json', rows, claims, FIELDS)}")
    names = [network.name for network in NETWORKS]
    print(draw(rows, names, options.ranks_per_host, options.output / "hosts_simulated.png"))
    return print_claims(claims)


if __name__ == "__main__":
    sys.exit(main())
