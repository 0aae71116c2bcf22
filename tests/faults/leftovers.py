"""What a rank holds of the machine: descriptors, shared mappings, threads, children; and what lies in /dev/shm."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

# A process keeps one record of its calls, from its first call to its end (docs/status.md); two would be a leak.
KEPT_BY_A_PROCESS = {"/memfd:shardway-calls": 1}

OUR_WORDS = ("shardway", "torch", "gloo")


@dataclass(frozen=True)
class Holdings:
    """Each thing by kind, for numbers of descriptors and addresses change from run to run."""

    descriptors: Counter[str]
    mappings: Counter[str]  # shared ones alone: those are what a group makes
    threads: int
    children: int

    @staticmethod
    def now() -> Holdings:
        return Holdings(_descriptors(), _mappings(), len(os.listdir("/proc/self/task")), _children())

    def beyond(self, before: Holdings, kept_threads: int = 0) -> list[str]:
        """What is held now, was not held before, and is not kept for the life of the process."""
        found = []
        for name in ("descriptors", "mappings"):
            now, then = getattr(self, name), getattr(before, name)
            more = {kind: count - max(then[kind], KEPT_BY_A_PROCESS.get(kind, 0)) for kind, count in now.items()}
            found += [f"{count} {name} of {kind}" for kind, count in sorted(more.items()) if count > 0]
        if self.threads > before.threads + kept_threads:
            found.append(f"{self.threads - before.threads} threads, of which {kept_threads} may stay")
        return found + self.children_beyond(before)

    def children_beyond(self, before: Holdings) -> list[str]:
        return [f"{self.children - before.children} child processes"] if self.children > before.children else []


def _descriptors() -> Counter[str]:
    targets = map(_target, os.listdir("/proc/self/fd"))
    return Counter(_kind(target) for target in targets if target is not None)


def _target(descriptor: str) -> str | None:
    """None: it was closed since; one of them was for the list itself."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:
        return None


def _mappings() -> Counter[str]:
    found: Counter[str] = Counter()
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if words[1].endswith("s"):
            found[_kind(words[5] if len(words) > 5 else "nothing")] += 1
    return found


def _kind(target: str) -> str:
    return re.sub(r"\d+", "N", target.removesuffix(" (deleted)"))


def _children() -> int:
    return sum(len(_children_of(thread)) for thread in os.listdir("/proc/self/task"))


def _children_of(thread: str) -> list[str]:
    """None of a thread that has ended since."""
    try:
        return Path(f"/proc/self/task/{thread}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def names_in_shared_memory() -> set[str]:
    """Those that this library, torch or gloo may have made: other programs of the machine come and go too."""
    return {name for name in os.listdir("/dev/shm") if any(word in name for word in OUR_WORDS)}
