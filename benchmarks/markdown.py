"""Tables as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table that ends with a line break."""
    return "".join(line_of(cells) for cells in (head, ["---"] * len(head), *rows))


def line_of(cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |\n"


def seconds(value: float | None) -> str:
    """Two digits below ten seconds, one above; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.0f} s" if value >= 10 else f"{value:.2f} s"


def percent(ratio: float | None, digits: int = 2) -> str:
    """A ratio in percent; a dash for none."""
    return "–" if ratio is None else f"{100 * ratio:.{digits}f} %"


def mebibytes(value: float) -> str:
    """Whole MiB."""
    return f"{value:.0f} MiB"
