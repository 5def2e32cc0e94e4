"""Charts of the runs of a simulation: a figure over time, and the distribution of times over jobs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from gpuplan.planner.render.charts.canvas import DASHES, PAGE, figure_of_page, inline_svg, shorten_label
from gpuplan.planner.text_format import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.simulate.outcome import Distribution, ScoreValue


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


# Chart of the distribution of times over jobs, per run: from the median to the 99th percentile.


_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_TICKS: Final = (
    *(1, 2, 5, 10, 20, 30),
    *(_MINUTE * number for number in (1, 2, 5, 10, 20, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 4, 7, 14, 28, 60, 120, 240, 480)),
)
"""Seconds."""
_MOST_TICKS: Final = 5
_LEAST: Final = 1.0
"""Seconds; a logarithmic axis has no 0."""


@dataclass(frozen=True, slots=True)
class WaitDistribution:
    """The distribution of one run, in seconds."""

    name: str
    found: Distribution


def wait_distribution_svg(spreads: Sequence[WaitDistribution], key: str, *, label: str) -> str:
    """A row per run: a line from p50 to p99 with a dot at p95, and a diamond at the mean."""
    if not spreads:
        return ""
    with figure_of_page(0.42 * len(spreads) + 0.55) as (figure, axes):
        for row, spread in enumerate(spreads):
            found, colour = spread.found, PAGE.series[row % len(PAGE.series)]
            p50, p95, p99 = (max(_LEAST, each.value) for each in (found.p50, found.p95, found.p99))
            axes.plot([p50, p99], [-row, -row], color=colour, linewidth=2)
            axes.plot([p50], [-row], marker="|", color=colour, markersize=12, markeredgewidth=2)
            axes.plot([p95], [-row], marker="o", color=colour, markersize=6)
            last = ">" if found.p99.at_least else "|"
            axes.plot([p99], [-row], marker=last, color=colour, markersize=8, markeredgewidth=2)
            axes.plot([max(_LEAST, found.mean.value)], [-row], marker="D", color=PAGE.ink, markersize=4)
            axes.text(
                0, -row + 0.22, shorten_label(spread.name), transform=axes.get_yaxis_transform(), va="bottom"
            )
        axes.set_xscale("log")
        values = [each.value for spread in spreads for each in _figures(spread.found)]
        # The range is wide enough to contain a tick for any values.
        low, high = max(_LEAST, 0.6 * min(values)), max(2 * _LEAST, 1.7 * max(values))
        axes.set_xlim(low, high)
        axes.set_ylim(0.5 - len(spreads), 0.75)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        axes.xaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // _MOST_TICKS) or 1]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_duration(round(value))))
        axes.grid(axis="x")
        told = "; ".join(f"{spread.name}: {wait_distribution_text(spread.found)}" for spread in spreads)
        return inline_svg(figure, key, label=f"{label}. {told}")


def wait_distribution_text(found: Distribution) -> str:
    """`mean 10m, p50 3m, p95 1h, p99 ≥ 4h`."""
    names = ("mean", "p50", "p95", "p99")
    return ", ".join(
        f"{name} {'≥ ' if each.at_least else ''}{format_duration(round(each.value))}"
        for name, each in zip(names, _figures(found), strict=True)
    )


def _figures(found: Distribution) -> tuple[ScoreValue, ScoreValue, ScoreValue, ScoreValue]:
    return found.mean, found.p50, found.p95, found.p99
