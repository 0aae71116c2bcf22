"""Every message that docs/troubleshooting.md explains is one that the sources can say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "cli", "python/shardway", "python/bindings")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def said() -> str:
    """The texts in quotes, one after the other: a message that is put together has its words in this order."""
    paths = sorted(
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".h", ".py")
    )
    return "".join(text.replace('\\"', '"') for path in paths for text in LITERAL.findall(path.read_text()))


def messages() -> list[str]:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row) if " " in message]


def test_the_messages_are_those_of_the_sources() -> None:
    sources = said()
    found = messages()
    assert len(found) > 50
    unknown = [
        message
        for message in found
        for words in message.split("…")
        if len(words.strip()) > 3 and words.strip(" :") not in sources
    ]
    assert not unknown
