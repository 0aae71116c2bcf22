"""docs/environment.md has every variable that the tree reads, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/environment.md"
DOCTOR = ROOT / "cli/doctor/variable_lines.cpp"  # has all names, to know which are misspelt
IN_QUOTES = re.compile(r'"(SHARDWAY_[A-Z0-9_]+)\b')  # macros and options of CMake's stand without
ASSIGNED = re.compile(r"(?<!-D)\b(SHARDWAY_[A-Z0-9_]+)(?==)")
READ = re.compile(r'(?:environ|getenv)[^\n]*"(SHARDWAY_[A-Z0-9_]+)"')


def names(pattern: re.Pattern[str], folders: list[str], suffixes: set[str]) -> Iterator[str]:
    for folder in folders:
        for path in [ROOT / folder, *(ROOT / folder).rglob("*")]:
            if path.is_file() and path.suffix in suffixes and path != DOCTOR:
                yield from pattern.findall(path.read_text())


def test_the_page_has_the_variables_of_the_tree() -> None:
    library = set(
        names(IN_QUOTES, ["src", "cli", "include", "page", "python/shardway", "python/bindings"], {".cpp", ".h", ".py"})
    )
    scripts = set(names(ASSIGNED, ["scripts", "Makefile"], {""}))
    tests = set(names(READ, ["tests", "bench", "examples"], {".cpp", ".h", ".py"}))
    job, development = PAGE.read_text().split("## Of who builds and tests")
    on_page = {part: set(re.findall(r"`(SHARDWAY_[A-Z0-9_]+)`", part)) for part in (job, development)}
    assert {"SHARDWAY_CHECK", "SHARDWAY_TRANSPORT"} <= library and "SHARDWAY_LARGE" in scripts & tests  # they are found
    assert on_page[job] == library
    assert on_page[development] == (scripts | tests) - library


def test_the_doctor_knows_the_variables_of_the_page() -> None:
    known = set(IN_QUOTES.findall(DOCTOR.read_text()))
    assert known == set(re.findall(r"`(SHARDWAY_[A-Z0-9_]+)`", PAGE.read_text()))
