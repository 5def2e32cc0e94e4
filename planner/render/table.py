"""Tables: rows in aligned columns as lines of text; pages show the same tables in HTML."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.style import Style, Tone

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence


_GAP: Final = "  "
# So that cut names can be told apart.
_NARROWEST: Final = 6


@dataclass(frozen=True, slots=True)
class TableRow:
    """Cells side by side, and a note that goes on the same line if it fits and below if not."""

    cells: tuple[str, ...]
    note: str = ""
    tone: Tone | None = None
    """Tone of the first cell."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title and heads, each of which may be absent."""

    rows: Sequence[TableRow]
    heads: tuple[str, ...] = ()
    title: str = ""
    note: str = ""
    """Head of the notes in a page."""
    right: Collection[int] = ()
    """Columns of numbers."""

    def beside(self, head: str, cell: Callable[[str], str]) -> Table:
        """The table with one more column; `cell` gives its text by the name in the second column."""
        rows = [replace(row, cells=(*row.cells, cell(row.cells[1]))) for row in self.rows]
        return replace(self, rows=rows, heads=(*self.heads, head))

    def lines(
        self,
        style: Style,
        *,
        most: int | None = None,
        more: str = "",
        uncut: bool = False,
        heads: bool = True,
    ) -> list[str]:
        """
        The table as lines, indented by two; nothing without rows.

        Of more than `most` rows only the first are shown, and a line names the command `more` that shows all.
        If the cells together are too wide, the widest are cut; with `uncut` none is.
        """
        if not self.rows:
            return []
        shown = self.rows if most is None or len(self.rows) <= most else self.rows[: most - 1]
        head = [TableRow(self.heads)] if heads and self.heads else []
        lines = _aligned([*head, *shown], style, self.right, uncut=uncut)
        if head:
            lines[0] = style.paint(lines[0], Tone.QUIET)
        if rest := len(self.rows) - len(shown):
            lines += style.wrap(f"… {rest:,} more; each one: {more}", 2)
        return [*style.told(self.title, Tone.STRONG), *lines]


def _aligned(rows: Sequence[TableRow], style: Style, right: Collection[int], *, uncut: bool) -> list[str]:
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
