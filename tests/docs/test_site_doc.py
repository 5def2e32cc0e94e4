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


def built(folder):
    """The site as `make docs` builds it, where warnings are errors."""
    [command] = [line for line in (ROOT / "Makefile").read_text().splitlines() if "sphinx-build" in line]
    options = command.split("sphinx-build ")[1].replace("build/doctrees", f"{folder}/doctrees").split()[:-1]
    build = [sys.executable, "-m", "sphinx", *options, str(folder / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_the_site_is_whole(tmp_path):
    """One test, as a site takes ten seconds to build."""
    site = built(tmp_path)

    assert missing_pages(site) == []
    assert missing_names(site) == []
    assert loaded_from_a_network(site) == []
    assert (site / "index.html").read_text("utf-8") == (site / "README.html").read_text("utf-8")


def missing_pages(site):
    pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    pages += [page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("**/*.md")]
    return [page for page in pages if not (site / page).with_suffix(".html").exists()]


def missing_names(site):
    page = (site / "docs" / "site" / "python.html").read_text("utf-8")
    return [name for name in gpuplan.__all__ if f'id="gpuplan.{name}"' not in page]


def loaded_from_a_network(site):
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>")
    styled = re.compile(r"@import|url\([\"']?(?:https?:)?//")
    return [
        (file.name, found)
        for kind, pattern in (("html", loaded), ("css", styled))
        for file in site.glob(f"**/*.{kind}")
        for found in pattern.findall(file.read_text("utf-8"))
    ]
