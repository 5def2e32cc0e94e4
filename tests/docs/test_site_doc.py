"""The documentation site is whole: each page, each name of the API, no dead link, no network."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import gpuplan

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("sphinx", "furo", "myst_parser"))),
    reason="the site needs the extra `docs`: make setup, or pip install '.[docs]'",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it, where warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    [command] = [line for line in (ROOT / "Makefile").read_text().splitlines() if "sphinx-build" in line]
    options = command.split("sphinx-build ")[1].replace("build/doctrees", f"{folder}/doctrees").split()[:-1]
    build = [sys.executable, "-m", "sphinx", *options, str(folder / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_every_page_is_there_and_the_site_begins_with_the_readme(site):
    pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    pages += [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("**/*.md")]

    assert [page for page in pages if not (site / page).with_suffix(".html").exists()] == []
    assert (site / "index.html").read_text() == (site / "README.html").read_text()


def test_every_name_of_the_api_is_in_the_reference(site):
    page = (site / "docs" / "site" / "python.html").read_text(encoding="utf-8")

    assert [name for name in gpuplan.__all__ if f'id="gpuplan.{name}"' not in page] == []


def test_nothing_is_loaded_from_a_network(site):
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>")
    styled = re.compile(r"@import|url\([\"']?(?:https?:)?//")
    found = [
        (page.name, tag) for page in site.glob("**/*.html") for tag in loaded.findall(page.read_text("utf-8"))
    ]
    found += [
        (sheet.name, tag)
        for sheet in site.glob("**/*.css")
        for tag in styled.findall(sheet.read_text("utf-8"))
    ]

    assert found == []
