"""
Figures for charts: in files with fixed colours, and inline in pages with the colours of the page.

A page is read in light and dark mode, on phones and on desktops. A chart of a page is therefore drawn in
placeholder colours, each of which becomes a CSS variable of the page. Its text stays text, and it is as
narrow as a phone; a desktop shows several charts side by side.
"""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

_STYLE: Final = {
    "svg.hashsalt": "gpuplan",  # The same figures give the same bytes.
    "svg.fonttype": "none",
    "text.parse_math": False,  # A name may hold dollar signs.
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 1.2,
}
_WIDTH: Final = 4.6
"""Width in inches of a chart in a page: 331 units at 72 per inch, the width of a phone."""
_FONT: Final = 10.0
_LONGEST_LABEL: Final = 26


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours by meaning."""

    ink: str
    quiet: str
    line: str
    shade: str
    kept: str
    arrives: str
    leaves: str
    limit: str
    series: tuple[str, ...]
    """Colours of lines; dashes also distinguish the lines."""


PAPER: Final = Palette(
    ink="#1c2126",
    quiet="#59636e",
    line="#c8cdd3",
    shade="#eef2f6",
    kept="#8391a0",
    arrives="#0b63b5",
    leaves="#c2500a",
    limit="#1c2126",
    series=("#0b63b5", "#c2500a", "#00795c", "#8a4a9e", "#7a6200", "#59636e"),
)
"""Colours of a chart in its own file, on white."""

_VARIABLES: Final = {
    f"#0d00{number:02x}": name
    for number, name in enumerate(
        (
            *("ink", "quiet", "line", "shade", "kept", "arrives", "leaves", "limit"),
            *(f"series-{number}" for number in range(1, 7)),
        ),
        start=1,
    )
}
_STAND_IN: Final = {name: colour for colour, name in _VARIABLES.items()}

PAGE: Final = Palette(
    **{name: colour for name, colour in _STAND_IN.items() if not name.startswith("series")},
    series=tuple(colour for name, colour in _STAND_IN.items() if name.startswith("series")),
)
"""Placeholder colours for the CSS variables of a page."""

DASHES: Final = ("solid", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1, 2)), (0, (3, 3)), (0, (9, 2)))
"""Dashes of the series, so that colour is not the only difference between them."""


@contextmanager
def figure_of_page(height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure for a page, `height` inches high, and its axes in the colours of `PAGE`."""
    colours = {
        "font.size": _FONT,
        "text.color": PAGE.ink,
        "axes.edgecolor": PAGE.line,
        "axes.labelcolor": PAGE.quiet,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "grid.color": PAGE.line,
        "grid.linewidth": 0.5,
        "xtick.color": PAGE.line,
        "ytick.color": PAGE.line,
        "xtick.labelcolor": PAGE.quiet,
        "ytick.labelcolor": PAGE.quiet,
        "legend.frameon": False,
        "legend.labelcolor": PAGE.ink,
    }
    with rc_context(_STYLE | colours):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.add_subplot()


def inline_svg(figure: Figure, key: str, *, label: str) -> str:
    """
    The figure as an HTML element; call it inside `figure_of_page`.

    `key` is unique in the page and is the prefix of all ids; `label` describes the picture in words.
    """
    with io.StringIO() as drawn:
        figure.savefig(drawn, format="svg", metadata={"Date": None})
        text = drawn.getvalue()
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 :].rsplit("</svg>", 1)[0]
    # A style element would apply to the whole page; the metadata name the drawing program and its address.
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = _own_ids(body.replace("xlink:href", "href"), key)
    # Use the font of the page.
    body = re.sub(r" font-family: [^;]*;", "", body)
    body = re.sub(r"#0d00[0-9a-f]{2}", lambda found: f"var(--{_VARIABLES[found[0]]})", body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    view = box[1] if box else ""
    return f'<svg class="chart" role="img" aria-label="{escape(label)}" viewBox="{view}">{body}</svg>'


def _own_ids(body: str, key: str) -> str:
    """Prefix the ids that are referenced with the key and drop the others: several pictures share a page."""
    used = set(re.findall(r"#([\w-]+)", body))
    return (
        re.sub(r' id="([^"]*)"', lambda found: f' id="{key}-{found[1]}"' if found[1] in used else "", body)
        .replace('href="#', f'href="#{key}-')
        .replace("url(#", f"url(#{key}-")
    )


def shorten_label(label: str) -> str:
    """A label with space for figures beside it, its middle cut out: names often differ at their end."""
    if len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[: _LONGEST_LABEL - 9]}…{label[-8:]}"


@contextmanager
def figure_of_file(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure for its own file, sizes in inches, and its axes."""
    with rc_context({"svg.hashsalt": "gpuplan", "font.size": 9.0}):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def file_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as `svg` or `png`; the same figure gives the same bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return drawn.getvalue()
