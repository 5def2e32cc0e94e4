"""
Figures for charts: in files with fixed colours, and inline in pages with the colours of the page.

A page is read in light and dark mode, on phones and on desktops. A chart of a page is therefore drawn in
placeholder colours, each of which becomes a CSS variable of the page. Its text stays text, and it is as
narrow as a phone; a desktop shows several charts side by side.
"""

from __future__ import annotations

import io
import re
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

_WIDTH: Final = 4.6
"""Width in inches of a chart in a page: 331 units at 72 per inch, the width of a phone."""
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

_VARIABLES: Final = (
    *("ink", "quiet", "line", "shade", "kept", "arrives", "leaves", "limit"),
    *(f"series-{number}" for number in range(1, 7)),
)
_PLACEHOLDERS: Final = tuple(f"#0d00{number:02x}" for number in range(1, len(_VARIABLES) + 1))
PAGE: Final = Palette(**dict(zip(_VARIABLES[:8], _PLACEHOLDERS[:8], strict=True)), series=_PLACEHOLDERS[8:])
"""Placeholder colours for the CSS variables of a page."""

DASHES: Final = ("solid", (0, (5, 2)), (0, (1, 1.4)), (0, (6, 2, 1, 2)), (0, (3, 3)), (0, (9, 2)))
"""Dashes of the series, so that colour is not the only difference between them."""


@contextmanager
def figure_in(palette: Palette, width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure, sizes in inches, and its axes."""
    in_page = palette is PAGE
    look = {
        "svg.hashsalt": "gpuplan",  # The same figures give the same bytes.
        "svg.fonttype": "none" if in_page else "path",
        "text.parse_math": False,  # A name may hold dollar signs.
        "font.size": 10.0 if in_page else 9.0,
        "hatch.linewidth": 1.2,
        "text.color": palette.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": palette.line,
        "axes.labelcolor": palette.quiet,
        "axes.facecolor": "none",
        "figure.facecolor": "none" if in_page else "white",
        "grid.color": palette.line,
        "grid.linewidth": 0.5,
        "xtick.color": palette.line,
        "ytick.color": palette.line,
        "xtick.labelcolor": palette.quiet,
        "ytick.labelcolor": palette.quiet,
        "legend.frameon": False,
        "legend.labelcolor": palette.ink,
    }
    with rc_context(look):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


def figure_of_page(height: float) -> AbstractContextManager[tuple[Figure, Axes]]:
    """A figure for a page, `height` inches high, and its axes."""
    return figure_in(PAGE, _WIDTH, height)


def inline_svg(figure: Figure, key: str, *, label: str) -> str:
    """
    The figure as an HTML element; call it inside `figure_of_page`.

    `key` is unique in the page and is the prefix of all ids; `label` describes the picture in words.
    """
    text = file_bytes(figure, "svg").decode()
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 :].rsplit("</svg>", 1)[0]
    # A style element would apply to the whole page; the metadata name the drawing program and its address.
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    # Several pictures share a page: prefix the ids that are referenced and drop the others.
    used = set(re.findall(r"#([\w-]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda id_: f' id="{key}-{id_[1]}"' if id_[1] in used else "", body)
    body = body.replace('href="#', f'href="#{key}-').replace("url(#", f"url(#{key}-")
    # Use the font and the colours of the page.
    body = re.sub(r" font-family: [^;]*;", "", body)
    for colour, name in zip(_PLACEHOLDERS, _VARIABLES, strict=True):
        body = body.replace(colour, f"var(--{name})")
    body = re.sub(r"\s*\n\s*", "\n", body)
    view = box[1] if box else ""
    return f'<svg class="chart" role="img" aria-label="{escape(label)}" viewBox="{view}">{body}</svg>'


def file_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as `svg` or `png`; the same figure gives the same bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return drawn.getvalue()


def shorten_label(label: str) -> str:
    """A label with space for figures beside it, its middle cut out: names often differ at their end."""
    if len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[: _LONGEST_LABEL - 9]}…{label[-8:]}"
