"""The documentation site: make docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS))  # signatures.py

project = "shardway"
copyright = "the shardway authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "signatures"]
exclude_patterns = ["**.py", "Doxyfile"]
suppress_warnings = ["ref.python"]  # the type bytes and two attributes of that name

highlight_language = "text"
html_theme = "furo"
html_title = "shardway"

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

default_role = "code"  # docstrings write `x` for code, as the pages do
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures.py writes them
napoleon_numpy_docstring = False

# Files outside of docs/ that are pages of the site.
PAGES = {
    "README.md": "start",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
}
# Its text, or the end of an image that is its text; its target; an anchor there.
LINK = re.compile(r"(\[[^\]\n]*(?:\n[^\]\n]+)?\]|(?<=\))\])\(((?!\w+:|#)[^)#\s]+)(#[^)\s]*)?\)")


def site_links(text: str, folder: Path) -> str:
    """Links of a page in `folder` of the repository as links of the site: what is no page of it is a download, and a
    folder is no link at all."""

    def rewritten(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        anchor = link[3] or ""
        if (page := PAGES.get(str(target.relative_to(ROOT)))) is not None:
            return f"{link[1]}(/{page}.md{anchor})"
        if (target / "README.md").is_relative_to(DOCS) and (target / "README.md").exists():
            return f"{link[1]}(/{(target / 'README.md').relative_to(DOCS)}{anchor})"
        if target.is_dir():
            return link[1].strip("[]")
        if target.is_relative_to(DOCS):
            return f"{link[1]}(/{target.relative_to(DOCS)}{anchor})"
        return f"{link[1]}(/../{target.relative_to(ROOT)})"

    return LINK.sub(rewritten, text)


def read_page(app: Sphinx, name: str, content: list[str]) -> None:
    content[0] = site_links(content[0], (DOCS / name).parent)


def read_included(app: Sphinx, path: Path, name: str, content: list[str]) -> None:
    content[0] = site_links(content[0], (DOCS / path).resolve().parent)


def setup(app: Sphinx) -> None:
    app.add_lexer("mermaid", TextLexer)  # repository hosts draw it; here it is its text
    app.connect("source-read", read_page)
    app.connect("include-read", read_included)
