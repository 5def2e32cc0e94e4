"""Rows in aligned columns that fit a width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuplan.planner.render.style import Style, Tone

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
