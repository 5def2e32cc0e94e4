"""Chart of a figure of several runs over time, as lines on shared axes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from gpuplan.planner.render.charts.canvas import DASHES, PAGE, figure_of_page, inline_svg

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_POINTS: Final = 400
"""Points per line: a page cannot show more, and more only make the file large."""


class Unit(Enum):
    """Format of the values."""

    NUMBER = auto()
    SHARE = auto()
    """At most 1, shown in percent."""
    INDEX = auto()
    """At most 1, shown as a number."""


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of one run; each value holds until the next."""

    name: str
    hours: Sequence[float]
    values: Sequence[float]


def over_time_svg(lines: Sequence[Line], key: str, *, label: str, unit: Unit = Unit.NUMBER) -> str:
    """Lines on an axis that starts at 0 or at the least negative value; empty without two points in time."""
    lines = [line for line in lines if line.hours]
    if not any(len(line.hours) > 1 for line in lines):
        return ""
    with figure_of_page(2.5) as (figure, axes):
        for number, line in enumerate(lines):
            style = number % len(PAGE.series)
            hours, values = _thinned(line)
            axes.step(
                hours,
                values,
                where="post",
                color=PAGE.series[style],
                linestyle=DASHES[style],
                linewidth=1.4,
                label=line.name,
            )
        axes.yaxis.set_major_locator(MaxNLocator(4))
        least = min(0, *(min(line.values) for line in lines))
        axes.set_ylim(least or 0, None if unit is Unit.NUMBER else 1.02)
        if unit is not Unit.NUMBER:
            axes.yaxis.set_major_locator(FixedLocator((0, 0.25, 0.5, 0.75, 1)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _words(value, unit)))
        axes.set_xlim(0, max(line.hours[-1] for line in lines))
        axes.set_xlabel("hours since the beginning")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.grid(axis="y")
        return inline_svg(figure, key, label=f"{label}: {_told(lines, unit)}")


def _thinned(line: Line) -> tuple[list[float], list[float]]:
    """The line averaged over equal spans, so that it has at most `_MOST_POINTS` points."""
    span = -(-len(line.hours) // _MOST_POINTS)
    starts = range(0, len(line.hours), span)
    values = [line.values[start : start + span] for start in starts]
    return [line.hours[start] for start in starts], [sum(each) / len(each) for each in values]


def _told(lines: Sequence[Line], unit: Unit) -> str:
    """The chart in words, for its label."""
    told = []
    for line in lines:
        mean = sum(line.values) / len(line.values)
        figures = [_words(each, unit) for each in (line.values[0], mean, line.values[-1])]
        told.append(f"{line.name} begins at {figures[0]}, is {figures[1]} on average, ends at {figures[2]}")
    return "; ".join(told)


def _words(value: float, unit: Unit) -> str:
    match unit:
        case Unit.SHARE:
            return f"{100 * value:.0f} %"
        case Unit.INDEX:
            return f"{value:.2f}"
        case Unit.NUMBER:
            return f"{value:,.6g}"
