"""
The documentation site (`make docs`): README, docs/, and the Python API from its docstrings.

Sphinx takes pages from anywhere in the checkout with links as they are, refuses a link or heading that is
not there, and searches without a server; Furo has no font or script from elsewhere and fits a telephone.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
from functools import reduce
from operator import or_
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

project = "gpuplan"
release = importlib.metadata.version("gpuplan")
root_doc = "README"
include_patterns = ["*.md", "docs/**", "scenarios/*/README.md"]
# Looking for pages everywhere takes longer than reading some of them.
exclude_patterns = [".*", "build", "benchmarks", "deploy", "gpuplan", "models", "planner", "solvers", "tests"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
smartquotes_action = "D"  # dashes only: text is as it was written

myst_heading_anchors = 4
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "model_config"}
toc_object_entries = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"gpuplan {release}"
html_copy_source = False
html_show_sphinx = False

CONTENTS = """
```{toctree}
:hidden:
:maxdepth: 1
:caption: Use

docs/scenarios
docs/operations
docs/running
docs/approval
docs/slurm
docs/nvml
docs/telemetry
docs/local
docs/explaining
docs/whatif
docs/simulation
docs/reports
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Python

docs/api
docs/site/python
docs/embedding
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Reference

docs/releasing
docs/glossary
docs/plan-format
Snapshot <docs/reference/snapshot>
Policy <docs/reference/policy>
Plan <docs/reference/plan>
Scenario <docs/reference/scenario>
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Inside

docs/formulation
docs/architecture
docs/benchmarks
CONTRIBUTING
CHANGELOG
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Decisions
:glob:

docs/decisions/*
```

```{toctree}
:hidden:
:maxdepth: 1
:caption: Shipped scenarios
:glob:

scenarios/*/README
```
"""
"""What the sidebar lists; pages that are in no list are an error."""


def complete_readme(_app: Sphinx, page: str, source: list[str]) -> None:
    """The start page lists all pages; a link to a folder leads to the folder's first one."""
    if page == root_doc:
        text = re.sub(r"\]\((docs/[\w/]+/)\)", lambda link: f"]({first_page(link[1])})", source[0])
        source[0] = text + CONTENTS


def first_page(folder: str) -> str:
    """The first page of a folder, by name."""
    return min(page.relative_to(ROOT).as_posix() for page in (ROOT / folder).glob("*.md"))


def as_restructured_text(
    _app: Sphinx, what: str, _name: str, _item: Any, _options: Any, lines: list[str]
) -> None:
    """Docstrings are plain text with `code`, so that nothing else in them is markup."""
    lines[:] = ["".join(map(escaped, re.split(r"(`+[^`]*`+)", line))) for line in lines]
    if what in ("attribute", "data", "property"):
        # After an empty comment napoleon does not take what stands before a colon for a type.
        lines[:0] = ["..", ""]


def escaped(part: str) -> str:
    """A part of a docstring's line: code, or text without markup but for links to the pages that it names."""
    if part.startswith("`"):
        return f"``{part.strip('`')}``"
    plain = re.sub(r"([*|\\]|_\b)", r"\\\1", part)
    return re.sub(r"\b(docs/[\w/-]+|CHANGELOG)\.md\b", r":doc:`/\1`", plain)


def without_signature(_app: Sphinx, what: str, *_about: Any) -> tuple[str, None] | None:
    """A noun comes without the signature of its class: its fields are listed below it."""
    return ("", None) if what == "class" else None


def with_plain_types(_app: Sphinx, _name: str, noun: Any, *_about: Any) -> None:
    """Fields are of the types that a reader gets; how documents write them is in their own references."""
    if issubclass(noun, BaseModel):
        noun.__annotations__ = {name: plain(field.annotation) for name, field in noun.model_fields.items()}


def plain(kind: Any) -> Any:
    """A type without what pydantic is told beside it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return plain(parts[0])
    if origin in (Union, UnionType):
        return reduce(or_, map(plain, parts))
    if origin in (tuple, dict):
        return origin[tuple(part if part is ... else plain(part) for part in parts)]
    return kind


def start_at_index(app: Sphinx, failure: Exception | None) -> None:
    """A site begins at index.html."""
    if failure is None:
        shutil.copy(app.outdir / "README.html", app.outdir / "index.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", complete_readme)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)
    app.connect("autodoc-process-signature", without_signature)
    app.connect("autodoc-process-bases", with_plain_types)
    app.connect("build-finished", start_at_index)
