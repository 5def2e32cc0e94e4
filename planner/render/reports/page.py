"""
The page of all reports, and the blocks it is made of.

A page is one file without scripts that loads nothing. All text is escaped, because names come from users.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

import jinja2
from markupsafe import Markup

from gpuplan.planner.render.table import Table, TableRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.render.style import Tone


INDENT: Final = "\u2003"
"""An em space, which HTML and SVG do not collapse."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, or a heading of a part of a section."""

    text: str
    look: str = ""
    """CSS class: `quiet`, `names`, `care`, `stop`."""
    level: int = 0
    """Level of a heading; 0 for a paragraph."""
    remark: str = ""
    """Quiet text after a heading."""


@dataclass(frozen=True, slots=True)
class HeadlineFigure:
    """One of the figures at the top of a page."""

    name: str
    value: str
    remark: str


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures side by side."""

    figures: Sequence[HeadlineFigure]


@dataclass(frozen=True, slots=True)
class Drawing:
    """An SVG element, with its title and a caption if it is a chart."""

    svg: Markup
    title: str = ""
    caption: str = ""

    @classmethod
    def of(cls, svg: str, title: str, caption: str = "") -> Drawing:
        """A chart from `gpuplan.planner.render.charts`, which escapes all its text."""
        return cls(Markup(svg), title, caption)  # noqa: S704


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts side by side; those without a drawing are left out."""

    charts: Sequence[Drawing]


@dataclass(frozen=True, slots=True)
class Legend:
    """The looks of a drawing: for each its CSS class and its meaning."""

    looks: Sequence[tuple[str, str]]
    kind: str = "area"
    """`area`, `line` or `span`."""


@dataclass(frozen=True, slots=True)
class Items:
    """Short texts side by side, each with its CSS class."""

    items: Sequence[tuple[str, str]]
    label: str
    look: str = "items"


@dataclass(frozen=True, slots=True)
class Card:
    """A frame with a title and blocks."""

    title: str
    state: str
    stands_out: bool
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards side by side."""

    cards: Sequence[Card]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that a reader can open, under a line of text or under the row that sums them up."""

    summary: str | TableRow
    blocks: Sequence[Block]
    remark: str = ""
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Floor:
    """Racks side by side: for each its description, and the name and drawing of each of its columns."""

    racks: Sequence[tuple[str, Sequence[tuple[str, Markup]]]]


@dataclass(frozen=True, slots=True)
class Bars:
    """Amounts with a bar each: name, text, width in percent, and whether the amount is negative."""

    heads: tuple[str, str, str]
    bars: Sequence[tuple[str, str, float, bool]]


@dataclass(frozen=True, slots=True)
class Span:
    """A job on a node, in percent of the horizon."""

    job: str
    left: float
    width: float
    kind: str
    """CSS class: running, started, promised or foreseen."""
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """Consecutive jobs on a node; jobs that overlap in time are in different lanes."""

    node: str
    """The node name in the first lane of a node; empty in the others."""
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Jobs on nodes over time."""

    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    """Position in percent, and the time of day."""


Block: TypeAlias = (
    Text | Figures | Drawing | Charts | Legend | Items | Cards | Fold | Floor | Bars | Timeline | Table
)


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section with its heading; the link to it is in the navigation."""

    key: str
    link: str
    """Text of the link; empty for no link."""
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """A report."""

    title: str
    heading: str
    subject: str
    told: Sequence[tuple[str, str, str]]
    """The report in short: sign, CSS class and text of each fact."""
    identity: Sequence[str]
    blocks: Sequence[Block]
    """What is shown before the sections."""
    sections: Sequence[PageSection]

    def html(self) -> str:
        """The page as HTML."""
        return _environment().get_template("page.html.j2").render(page=self)


def look_of(tone: Tone | None) -> str:
    """The CSS class of a tone."""
    return "" if tone is None else tone.name.lower()


def _indented(label: str) -> str:
    """The indent of a table's first cell, two spaces per level, as em spaces."""
    text = label.lstrip(" ")
    return INDENT * ((len(label) - len(text)) // 2) + text


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gpuplan.planner.render", "reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(indented=_indented, kind=lambda block: type(block).__name__, look=look_of)
    return environment
