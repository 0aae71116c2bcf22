"""The ```python blocks of the documentation, and what a comment before a block says about it.

    <!-- run on 2 ranks
    x = torch.ones(2)
    -->                                the block runs on so many ranks; the lines in between run before it
    <!-- run on 2 ranks, no group -->  the ranks begin as torchrun starts them
    <!-- same as examples/hello.py --> it is that file, which another test runs
    <!-- needs: a GPU -->              it does not run

Without a comment a block runs on four ranks. Blocks of one page that run on the same number of ranks follow
one another, as in one program.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_RANKS = 4
FENCE = re.compile(
    r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w{}-]*)[^\n]*\n(?P<text>.*?)^ *(?P=ticks) *$", re.M | re.S
)
COMMENT = re.compile(r"<!--(?P<text>(?:(?!-->).)*)-->\s*\Z", re.S)
RUN = re.compile(r"run on (\d+) ranks?(, no group)?\s*(?:\n(.*))?\Z", re.S)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    text: str
    ranks: int = DEFAULT_RANKS
    without_group: bool = False
    before: str = ""
    same_as: str | None = None
    needs: str | None = None

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    found = []
    for match in FENCE.finditer(text):
        if match["language"] != "python":
            continue
        name = str(page.relative_to(ROOT))
        line = text.count("\n", 0, match.start()) + 2
        comment = COMMENT.search(text, 0, match.start())
        found.append(
            marked(Block(name, line, textwrap.dedent(match["text"])), comment["text"].strip() if comment else "")
        )
    return found


def marked(block: Block, comment: str) -> Block:
    fields = dict(vars(block))
    if run := RUN.match(comment):
        fields.update(ranks=int(run[1]), without_group=bool(run[2]), before=textwrap.dedent(run[3] or ""))
    elif comment.startswith("same as "):
        fields.update(same_as=comment.removeprefix("same as ").strip())
    elif comment.startswith("needs: "):
        fields.update(needs=comment.removeprefix("needs: ").strip())
    return Block(**fields)
