"""docs/surface.md says what is so."""

from __future__ import annotations

from tests.support import surface


def test_the_page_says_what_the_calls_do():
    assert surface.PAGE.read_text() == surface.page(), "make surface writes it anew"
