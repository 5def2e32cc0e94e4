"""docs/formulation.md and the docstrings state the same formulas."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from gpuplan.models.formulation import FAMILIES
from gpuplan.models.formulation.objective import TERMS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "formulation.md").read_text(encoding="utf-8")


def formulas(function):
    """Indented lines of a docstring that contain a relation or a sum."""
    lines = inspect.getdoc(function).splitlines()
    return [line.strip() for line in lines if line.startswith("    ") and re.search(r"[≤≥=Σ]", line)]


@pytest.mark.parametrize("family", [*FAMILIES, *TERMS], ids=lambda family: family.__name__)
def test_every_formula_of_the_code_stands_in_the_document(family):
    stated = formulas(family)

    assert stated
    for formula in stated:
        assert f"    {formula}\n" in DOCUMENT, formula


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_family_has_its_tag_file_and_test_in_the_document(family):
    tag = re.match(r"\((C\d+)\)", inspect.getmodule(family).__doc__)[0]
    section = DOCUMENT.split(f"### {tag}")[1].split("\n### ")[0]

    assert f"`{inspect.getmodule(family).__name__.replace('.', '/').removeprefix('gpuplan/')}.py`" in section
    test = re.search(r"test `([^`]+)`", section)[1]
    assert (Path(__file__).parents[2] / test).is_file()
