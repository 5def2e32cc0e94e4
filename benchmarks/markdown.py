"""Tables as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table that ends with a newline."""
    return "".join(line_of(cells) for cells in (head, ["---"] * len(head), *rows))


def line_of(cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |\n"


def seconds(value: float | None) -> str:
    """Two decimals below ten seconds, none above; a dash if not measured."""
    if value is None:
        return "–"
    return f"{value:.0f} s" if value >= 10 else f"{value:.2f} s"


def percent(ratio: float | None, digits: int = 2) -> str:
    """A ratio in percent; a dash for None."""
    return "–" if ratio is None else f"{100 * ratio:.{digits}f} %"


def mebibytes(value: float) -> str:
    """Whole MiB."""
    return f"{value:.0f} MiB"
