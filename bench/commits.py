"""The trees of other commits, to compare this one with."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def unpacked(commit: str) -> Path:
    """The tree of a commit in a folder of its own."""
    sha = subprocess.run(
        ["git", "rev-parse", "--short=12", f"{commit}^{{commit}}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    tree = ROOT / "build" / "before" / sha
    if not tree.exists():
        tree.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", sha], cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x"], cwd=tree, input=archive, check=True)
        (tree / ".venv").symlink_to(ROOT / ".venv")
    return tree
