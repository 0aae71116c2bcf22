"""Builds the gallery: pages into build/gallery, README.md and pictures beside this file. `make gallery` runs it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from html import escape
from pathlib import Path
from textwrap import fill

from docs.gallery.plans import EXHIBITS, Exhibit
from tests.support.browser import Browser, browser, why_not

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAM = ROOT / ".venv/bin/shardway"

INTRODUCTION = """# Gallery

Eleven plans, and what each teaches. `make gallery` builds their pages into `build/gallery`, where every step plays; the
pictures here are taken from them half-way.
"""

INDEX_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 760px; margin: 48px auto; padding: 0 20px; font: 16px/1.55 system-ui, "DejaVu Sans", sans-serif;
  background: light-dark(#faf9f6, #15171a); color: light-dark(#1f2328, #e6e4df); }
a { color: light-dark(#9a3b26, #f0997f); font-weight: 600; text-decoration: none; }
li { margin: 22px 0; } code { font-size: 13px; overflow-wrap: anywhere; }
"""


def explanation_of(exhibit: Exhibit, *more: str) -> str:
    """What the program says, without its drawing."""
    command = [str(PROGRAM), "plan", *shlex.split(exhibit.call), *more]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return text[text.index("f32[") :]


def summary_of(exhibit: Exhibit) -> str:
    """From, to, figures and steps, without what lost."""
    return "\n\n".join(explanation_of(exhibit).split("\n\n")[:2])


def chapter_of(exhibit: Exhibit) -> str:
    call = f"shardway plan {exhibit.call}"
    picture = f"![{exhibit.title}]({exhibit.name}.png)"
    block = f"```\n$ {call}\n{summary_of(exhibit)}\n```"
    return f"\n## {exhibit.title}\n\n{fill(exhibit.lesson, 120)}\n\n{picture}\n\n{block}\n"


def readme() -> str:
    return INTRODUCTION + "".join(chapter_of(exhibit) for exhibit in EXHIBITS)


def index() -> str:
    items = "".join(
        f'<li><a href="{e.name}.html">{escape(e.title)}</a><br>{escape(e.lesson)}<br>'
        f"<code>shardway plan {escape(e.call)}</code></li>"
        for e in EXHIBITS
    )
    head = '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    return f"{head}<title>shardway gallery</title><style>{INDEX_STYLE}</style><h1>Gallery</h1><ol>{items}</ol>\n"


def take_picture(page: Browser, source: Path, target: Path, moment: float) -> None:
    """The headline, both ends and the stage at a moment of the plan."""
    page.open(source, width=1000)
    page.evaluate(f"(() => {{ seek.value = {1000 * moment}; seek.dispatchEvent(new Event('input')); }})()")
    for part in ("loads", "memory", "others", "theme"):
        page.evaluate(f"document.getElementById('{part}').style.display = 'none'")
    page.screenshot(target)


def main() -> None:
    folder = ROOT / "build/gallery"
    folder.mkdir(parents=True, exist_ok=True)
    for exhibit in EXHIBITS:
        explanation_of(exhibit, "--html", str(folder / f"{exhibit.name}.html"))
    (folder / "index.html").write_text(index())
    (HERE / "README.md").write_text(readme())
    if reason := why_not():
        print(f"gallery: the pictures stay as they are; {reason}", file=sys.stderr)
    else:
        with browser() as page:
            for exhibit in EXHIBITS:
                take_picture(page, folder / f"{exhibit.name}.html", HERE / f"{exhibit.name}.png", exhibit.moment)
    print(f"the gallery is {folder.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    main()
