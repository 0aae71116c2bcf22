"""What a benchmark leaves behind: rows, claims, a JSON file and an exit code."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

OUTPUT_FOLDER = Path(__file__).resolve().parent.parent / "build" / "bench"


FIELDS = {
    "shape": "of the gathered tensor or of the input",
    "bytes": "of a rank, on average",
    "us": "median of the samples, from the first rank's start to the last rank's end",
    "spread": "third quartile minus first, as a share of the median",
}


@dataclass(frozen=True)
class Row:
    """One contender at one op, number of ranks and size."""

    op: str
    contender: str
    ranks: int
    shape: tuple[int, ...]
    bytes: int
    us: float
    spread: float  # third quartile minus first, as a share of the median
    samples: int


@dataclass(frozen=True)
class Claim:
    text: str
    figure: str
    met: bool | None  # None: not measured


def not_measured(text: str) -> Claim:
    """A claim whose rows are not in this run: an option left them out, or nobody answered."""
    return Claim(text, "not measured", None)


def about() -> dict[str, Any]:
    """The day, the machine and the versions that the figures belong to."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def write_json(
    path: Path, rows: Iterable[Any], claims: Sequence[Claim], fields: Mapping[str, str] = FIELDS, **more: Any
) -> Path:
    """`rows` are dataclasses; `fields` says what is not plain from their fields' names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "about": about(),
        "fields": fields,
        "rows": [asdict(row) for row in rows],
        **more,
        "claims": [asdict(c) for c in claims],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def print_claims(claims: Sequence[Claim]) -> int:
    """Prints each claim with its figure; the exit code is 1 when one is missed or was not measured."""
    print("\nClaims")
    words = {True: "met   ", False: "MISSED", None: "OPEN  "}
    for claim in claims:
        print(f"  {words[claim.met]}  {claim.text}: {claim.figure}")
    return 0 if all(claim.met for claim in claims) else 1


def print_about() -> None:
    """The line under tables that says when and where their figures were measured."""
    found = about()
    print(f"\n{found['cores']} cores of {found['cpu']}, {found['date']}, torch {found['torch']}")


class Progress:
    """One line per row measured; on a terminal also what is being measured now."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._live = sys.stderr.isatty()

    def starting(self, what: str) -> None:
        if self._live:
            print(f"\r\033[K  {self._count(self._done + 1)} measuring {what} ...", end="", file=sys.stderr, flush=True)

    def finished(self, line: str) -> None:
        self._done += 1
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(f"  {self._count(self._done)} {line}", flush=True)

    def _count(self, done: int) -> str:
        width = len(str(self._total))
        return f"{done:{width}}/{self._total}"


def print_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Plain text, right-aligned but for the first column."""
    table = [header, *lines]
    widths = [max(len(line[column]) for line in table) for column in range(len(header))]
    for line in table:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def bytes_text(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:g} {unit}"
    return f"{count} B"


def us_text(us: float) -> str:
    """Three digits, in the unit that keeps them readable."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if us >= scale:
            return f"{us / scale:.3g} {unit}" if us < 100 * scale else f"{us / scale:.0f} {unit}"
    return f"{us:.3g} µs" if us < 100 else f"{us:.0f} µs"


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
