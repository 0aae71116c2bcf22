"""What a soak has counted: what was done, and what must be zero."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.soak.script import Script
from tests.stress.crew import Outcome
from tests.stress.usage import Usage

WARM_UP_WORLDS = 10
# What a finding begins with, and what it is counted as.
ZEROS = {
    "wrong value": "wrong results",
    "hang": "hangs",
    "crash": "crashes",
    "left": "leaks",
    "grown": "leaks",
    "untold": "survivors not told in time",
    "slow": "shrinks that waited for the dead",
    "unshrunk": "shrunk groups of other ranks",
    "disagreement": "disagreements without one error",
    "disunity": "disagreements without one error",
    "no error": "children of fork that were let in",
    "failure": "other failures",
}
NO_CALLS = ("fork", "disagreement", "scarcity", "shrink", "told of a death anywhere")


@dataclass
class Tally:
    worlds: int = 0
    ranks: int = 0
    kills: int = 0
    stops: int = 0
    bytes: int = 0
    rounds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    told_s: dict[str, list[float]] = field(default_factory=dict)
    shrunk_s: list[float] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    slowest_world_s: tuple[float, int] = (0.0, 0)  # and its seed
    usage: list[Usage] = field(default_factory=list)  # of the parent, after each world

    def add(self, script: Script, outcome: Outcome, stops: int, was_struck: bool, seconds: float) -> None:
        self.slowest_world_s = max(self.slowest_world_s, (seconds, script.seed))
        self.worlds += 1
        self.ranks += script.ranks
        self.kills += was_struck
        self.stops += stops
        self.bytes += outcome.bytes
        self.rounds += outcome.rounds
        self.counts += outcome.counts
        for transport, times in outcome.told_s.items():
            self.told_s.setdefault(transport, []).extend(times)
        self.shrunk_s += outcome.shrunk_s
        self.findings += outcome.findings
        self.usage.append(Usage.now())

    def close(self) -> None:
        if len(self.usage) > WARM_UP_WORLDS:
            grown = self.usage[-1].growth_since(self.usage[WARM_UP_WORLDS])
            self.findings += [f"grown in the process that starts the worlds: {line}" for line in grown]

    @property
    def calls(self) -> int:
        return sum(count for op, count in self.counts.items() if op not in NO_CALLS)

    @property
    def zeros(self) -> dict[str, int]:
        found = dict.fromkeys(ZEROS.values(), 0)
        for finding in self.findings:
            title = next((title for word, title in ZEROS.items() if finding.startswith(word)), "other failures")
            found[title] += 1
        return found

    @property
    def told(self) -> int:
        return sum(map(len, self.told_s.values())) + self.counts["told of a death anywhere"]

    @property
    def slope_bytes(self) -> float:
        """By how much the parent's own memory grows in a world, as a line through all worlds after the first ones."""
        sizes = [usage.private_bytes for usage in self.usage[WARM_UP_WORLDS:]]
        if len(sizes) < 2:
            return 0.0
        middle, mean = (len(sizes) - 1) / 2, sum(sizes) / len(sizes)
        spread = sum((at - middle) ** 2 for at in range(len(sizes)))
        return sum((at - middle) * (size - mean) for at, size in enumerate(sizes)) / spread

    def line(self) -> str:
        slowest = max((s for of_one in self.told_s.values() for s in of_one), default=0.0)
        wrong = ", ".join(f"{count} {title}" for title, count in self.zeros.items() if count) or "nothing wrong"
        return (
            f"{self.worlds} worlds, {self.calls:,} calls, {_size(self.bytes)}, {self.kills} kills "
            f"(slowest told {slowest:.2f} s), {self.counts['shrink']} shrinks, "
            f"{self.counts['disagreement']} disagreements, {self.counts['fork']} forks, "
            f"{self.counts['scarcity']} of scarcity; {wrong}"
        )

    def table(self) -> str:
        rows = [
            ("worlds, and ranks in them", f"{self.worlds:,}, {self.ranks:,}"),
            ("  slowest", f"{self.slowest_world_s[0]:.1f} s, world {self.slowest_world_s[1]}"),
            ("calls of ranks", f"{self.calls:,}"),
            ("bytes that they gave", _size(self.bytes)),
            ("ranks killed", f"{self.kills:,}"),
            ("survivors told", f"{self.told:,}"),
            *(
                (f"  slowest by {name}", f"{max(s):.3f} s of {len(s):,}")
                for name, s in sorted(self.told_s.items())
                if s
            ),
            ("groups shrunk, by rank", f"{self.counts['shrink']:,}"),
            ("  slowest", f"{max(self.shrunk_s, default=0.0):.3f} s"),
            ("ranks stopped for a moment", f"{self.stops:,}"),
            ("disagreements, by rank", f"{self.counts['disagreement']:,}"),
            ("children of fork", f"{self.counts['fork']:,}"),
            ("groups begun in scarcity, by rank", f"{self.counts['scarcity']:,}"),
            ("memory of the parent", f"{self.usage[-1]}" if self.usage else "–"),
            ("  its growth per world", f"{self.slope_bytes / 1024:+.1f} KiB"),
            *self.zeros.items(),
        ]
        calls = sorted((op, count) for op, count in self.counts.items() if op not in NO_CALLS)
        rows += [(f"  {op}", f"{count:,}") for op, count in calls]
        return "\n".join(f"{name:36} {value}" for name, value in rows)

    def as_json(self) -> dict[str, Any]:
        return {
            "worlds": self.worlds,
            "ranks": self.ranks,
            "calls": self.calls,
            "bytes": self.bytes,
            "kills": self.kills,
            "stops": self.stops,
            "told": self.told,
            "slowest_told_s": {name: max(seconds) for name, seconds in self.told_s.items() if seconds},
            "slowest_shrink_s": max(self.shrunk_s, default=0.0),
            "growth_bytes_per_world": self.slope_bytes,
            "counts": dict(self.counts),
            "rounds": dict(self.rounds),
            "zeros": self.zeros,
            "findings": self.findings,
        }


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
