"""The pictures of docs/performance.md show the tables of the pages as they are."""

from __future__ import annotations

import pytest
from PIL import Image

from docs.figures.build import PICTURES, ROOT, Picture


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_was_drawn_from_the_table_that_its_page_has(picture: Picture):
    with Image.open(picture.path) as image:
        assert image.info["Description"] == picture.table(), "python -m docs.figures.build draws it again"
    assert picture.path.stat().st_size < 60_000
    assert f"(figures/{picture.path.name})" in (ROOT / "docs/performance.md").read_text()
