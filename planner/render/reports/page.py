"""
The templates of all reports, and the components of their pages.

A page is one file without scripts that loads nothing. All text is escaped, because names come from users.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import jinja2
from markupsafe import Markup

from gpuplan.models.plan.actions import ACTIONS, ActionKind
from gpuplan.models.units import print_timestamp
from gpuplan.planner.render.plan.actions import kind_note, node_words, reason_text, size_and_nodes
from gpuplan.planner.render.plan.forecast import change_of_promise, changed_start, due_text, finish_text
from gpuplan.planner.render.plan.header import short_id
from gpuplan.planner.render.reports.cluster_map import large_node
from gpuplan.planner.text_format import format_count, node_size

if TYPE_CHECKING:
    from collections.abc import Sequence


INDENT: Final = "\u2003"
"""An em space, which HTML and SVG do not collapse."""


@dataclass(frozen=True, slots=True)
class HeadlineFigure:
    """One of the figures at the top of a page."""

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
    """Rows of text and numbers; the first cell names the row."""

    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart; nothing is shown if `svg` is empty."""

    title: str
    svg: Markup
    caption: str

    @classmethod
    def of(cls, title: str, svg: str, caption: str) -> Picture:
        """A chart from `gpuplan.planner.render.charts`, which escapes all its text."""
        return cls(title, Markup(svg), caption)  # noqa: S704


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the objective, and the width of its bar in percent."""

    name: str
    points: str
    width: float
    negative: bool


def indented(label: str) -> str:
    """Convert the indent of a label of the text view, two spaces per level, to em spaces."""
    text = label.lstrip()
    return INDENT * ((len(label) - len(text)) // 2) + text


def terms_of(values: Sequence[tuple[str, int]]) -> list[Term]:
    """The terms of an objective on one scale."""
    scale = max((abs(value) for _, value in values), default=0) or 1
    return [
        Term(name, f"{value:+,}" if value else "0", round(100 * abs(value) / scale, 1), value < 0)
        for name, value in values
    ]


def render(template: str, **content: Any) -> str:
    """Render the page from a template."""
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
        counted=format_count,
        due=due_text,
        finish=finish_text,
        kind_note=kind_note,
        large=large_node,
        mark=lambda type_: f"{ACTIONS[ActionKind(type_)].sign} {type_}",
        impact=lambda type_: ACTIONS[ActionKind(type_)].impact.value,
        node_words=node_words,
        number=lambda value: f"{value:,}",
        short=short_id,
        size=node_size,
        size_and_nodes=size_and_nodes,
        timestamp=print_timestamp,
        why=reason_text,
    )
    return environment
