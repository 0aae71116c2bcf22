"""The gallery's text is what the program says today."""

from __future__ import annotations

import pytest

from docs.gallery import build


@pytest.mark.skipif(not build.PROGRAM.exists(), reason="the program is not built: make test builds it")
def test_the_readme_has_todays_plans() -> None:
    assert (build.HERE / "README.md").read_text() == build.readme(), "if this is meant: make gallery"


def test_every_exhibit_has_a_picture() -> None:
    assert [e.name for e in build.EXHIBITS if not (build.HERE / f"{e.name}.png").exists()] == []
    assert len(build.EXHIBITS) == 11
