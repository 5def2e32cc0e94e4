"""Style of a text view: width, colour, character set, and aligned columns that fit the width."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.planner.text_format import on_one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


_ASCII: Final = str.maketrans(
    {"×": "x", "…": "...", "→": "->", "−": "-", "±": "*", "Σ": "sum", "≥": ">=", "·": "."}
)


class Tone(StrEnum):
    """What a colour means, with its ANSI code."""

    STRONG = "1"
    QUIET = "2"
    STOP = "31"
    START = "32"
    CARE = "33"


@dataclass(frozen=True, slots=True)
class Style:
    """Layout settings of a text view."""

    width: int
    colour: bool
    ascii_only: bool

    def clean(self, text: str) -> str:
        """The text on one line, without control characters, in ASCII if `ascii_only` is set."""
        shown = on_one_line(text)
        if self.ascii_only:
            shown = shown.translate(_ASCII).encode("ascii", "backslashreplace").decode()
        return shown

    def paint(self, text: str, tone: Tone) -> str:
        """The text in the colour of a tone, if colours are on."""
        return f"\x1b[{tone}m{text}\x1b[0m" if self.colour and text else text

    def cut(self, text: str, width: int) -> str:
        """The text, with its middle cut out if it is too wide: names often differ at their end."""
        if len(text) <= width:
            return text
        dots = self.clean("…")
        tail = max(0, (width - len(dots)) // 2)
        head = max(0, width - len(dots) - tail)
        return f"{text[:head]}{dots}{text[len(text) - tail :]}"[:width]

    def wrap(self, text: str, indent: int, *, hanging: int = 0) -> list[str]:
        """Wrap the text to the width, indented; lines after the first by `hanging` more columns."""
        return textwrap.wrap(
            self.clean(text),
            width=max(self.width, indent + hanging + 20),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hanging),
            break_on_hyphens=False,
        )

    def flow(self, parts: Iterable[str], indent: int = 2) -> list[str]:
        """Place parts side by side without splitting any; lines after the first are indented."""
        lines = [""]
        for part in map(self.clean, parts):
            joined = f"{lines[-1]}  {part}" if lines[-1].strip() else f"{lines[-1]}{part}"
            if len(joined) <= self.width or not lines[-1].strip():
                lines[-1] = joined
            else:
                lines.append(" " * indent + part)
        return lines


# Rows in aligned columns that fit a width.


_GAP: Final = "  "
_NARROWEST: Final = 6


@dataclass(frozen=True, slots=True)
class TableRow:
    """Cells side by side, and a note that goes on the same line if it fits and below if not."""

    cells: tuple[str, ...]
    note: str = ""
    tone: Tone | None = None
    """Tone of the first cell."""


def table(
    rows: Sequence[TableRow], style: Style, *, right: Collection[int] = (), uncut: bool = False
) -> list[str]:
    """
    Format the rows as lines, indented by two; `right` lists the columns to align right (numbers).

    If the cells together are too wide, the widest are cut. With `uncut` no cell is cut.
    """
    if not rows:
        return []
    cells = [[style.clean(cell) for cell in row.cells] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if not uncut:
        _narrow(widths, style.width - len(_GAP) * len(widths))
    lines: list[str] = []
    for row, texts in zip(rows, cells, strict=True):
        fitted = [
            style.cut(text, width).rjust(width) if column in right else style.cut(text, width).ljust(width)
            for column, (text, width) in enumerate(zip(texts, widths, strict=True))
        ]
        note = style.clean(row.note)
        line = _GAP + _GAP.join(fitted)
        # Paint after fitting: colour codes add to the length of a string but not to its printed width.
        painted = style.paint(fitted[0].rstrip(), row.tone) if row.tone else fitted[0].rstrip()
        shown = line.replace(fitted[0].rstrip(), painted, 1) if fitted[0].strip() else line
        if note and len(line) + len(_GAP) + len(note) <= style.width:
            lines.append(f"{shown}{_GAP}{note}")
            continue
        lines.append(shown.rstrip())
        if note:
            lines += style.wrap(row.note, len(_GAP) * 2 + widths[0])
    return lines


def _narrow(widths: list[int], available: int) -> None:
    """Shorten the widest columns until the row fits or all columns are at the minimum width."""
    while sum(widths) > available and (widest := max(widths)) > _NARROWEST:
        widths[widths.index(widest)] -= 1
