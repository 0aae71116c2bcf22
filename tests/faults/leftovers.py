"""What a rank holds of the machine: descriptors, shared mappings, threads, children; and what lies in /dev/shm."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


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
            more = {kind: count - then[kind] for kind, count in now.items()}
            found += [f"{count} {name} of {kind}" for kind, count in sorted(more.items()) if count > 0]
        if self.threads > before.threads + kept_threads:
            found.append(f"{self.threads - before.threads} threads, of which {kept_threads} may stay")
        return found + self.children_beyond(before)

    def children_beyond(self, before: Holdings) -> list[str]:
        return [f"{self.children - before.children} child processes"] if self.children > before.children else []


def _descriptors() -> Counter[str]:
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return Counter(_kind(os.readlink(name)) for name in names if os.path.lexists(name))  # one was for the list itself


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
    files = Path("/proc/self/task").glob("*/children")
    return sum(len(file.read_text().split()) for file in files)


def names_in_shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))
