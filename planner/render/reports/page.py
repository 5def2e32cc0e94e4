"""
What all reports share: the templates, and the pieces that pages are made of.

A page is one file that fetches nothing and runs nothing; all text in it is escaped, as names come from users.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup

from gpuplan.models.units import print_timestamp
from gpuplan.planner.formatting import counted, node_size
from gpuplan.planner.render.plan.actions import MARKS, kind_note, node_words, size_and_nodes, why_text
from gpuplan.planner.render.plan.header import short
from gpuplan.planner.render.plan.timing import change_of_promise, changed_start, due_text, finish_text
from gpuplan.planner.render.reports.drawing import large_node

if TYPE_CHECKING:
    from collections.abc import Sequence


INDENT: Final = "\u2003"
"""A space that pages and drawings keep."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the figures at the top."""

    name: str
    value: str
    remark: str


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column."""

    text: str
    number: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of words and numbers; the first cell of each names the row."""

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart; without an `svg` there is none."""

    title: str
    svg: Markup
    caption: str

    @classmethod
    def of(cls, title: str, svg: str, caption: str) -> Picture:
        """A chart as `gpuplan.planner.render.charts` draws it, which escapes all text in it."""
        return cls(title, Markup(svg), caption)  # noqa: S704


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the objective, and how long its bar is in percent."""

    name: str
    points: str
    width: float
    negative: bool


def indented(label: str) -> str:
    """A label of the text view, which is indented by two spaces a level."""
    text = label.lstrip()
    return INDENT * ((len(label) - len(text)) // 2) + text


def terms_of(values: Sequence[tuple[str, int]]) -> list[Term]:
    """The parts of an objective on one scale."""
    scale = max((abs(value) for _, value in values), default=0) or 1
    return [
        Term(name, f"{value:+,}" if value else "0", round(100 * abs(value) / scale, 1), value < 0)
        for name, value in values
    ]


def render(template: str, **content: Any) -> str:
    """The page."""
    return _environment().get_template(template).render(**content)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuplan.planner.render", "reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        change_of_promise=change_of_promise,
        changed_start=changed_start,
        counted=counted,
        due=due_text,
        finish=finish_text,
        kind_note=kind_note,
        large=large_node,
        mark=lambda type_: f"{MARKS[type_][0]} {type_}",
        node_words=node_words,
        number=lambda value: f"{value:,}",
        short=short,
        size=node_size,
        size_and_nodes=size_and_nodes,
        timestamp=print_timestamp,
        why=why_text,
    )
    return environment
