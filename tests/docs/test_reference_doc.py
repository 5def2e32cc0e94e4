"""docs/reference/ is what the data model says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuplan.planner.schemas import KINDS, reference_page, schema

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_current(kind):
    """`make reference` writes them anew."""
    assert (FOLDER / f"{kind}.md").read_text(encoding="utf-8") == reference_page(schema(kind))


def test_there_is_a_page_for_each_document_and_no_other():
    assert sorted(page.stem for page in FOLDER.iterdir()) == list(KINDS)
