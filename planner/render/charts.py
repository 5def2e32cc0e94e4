"""All charts: changed amounts, the gap of a search, runs of a simulation, and the combinations of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from gpuplan.planner.render.canvas import (
    DASHES,
    PAGE,
    PAPER,
    Palette,
    figure_in,
    figure_of_page,
    file_bytes,
    inline_svg,
    shorten_label,
)
from gpuplan.planner.render.plan.header import format_gap, gap_or_unknown
from gpuplan.planner.text_format import format_duration
from gpuplan.planner.whatif.measures import RATIOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from gpuplan.models.plan.plan import SolutionSummary
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.planner.io.search_log import SearchFinished, SearchRecord
    from gpuplan.planner.simulate.outcome import Distribution, ScoreValue
    from gpuplan.planner.whatif.grid import Sweep, SweepPoint

# Bars of amounts before and after a change: unchanged part, added part, removed part, and limits.

_ROW: Final = 0.46
"""Height in inches: one line of text and a bar below it."""
_BAR: Final = 0.34
"""Height of the bar as a fraction of the row."""


@dataclass(frozen=True, slots=True)
class ChangedBar:
    """An amount before and after; all bars of a chart share one scale."""

    label: str
    before: float
    after: float
    words: str
    whole: float | None = None
    """Total amount, drawn as a frame around the bar."""
    limit: float | None = None
    """Upper limit, drawn as a line across the bar."""
    owed: float | None = None
    """Guaranteed amount, drawn as a triangle below the bar."""
    judged: bool = False
    """If true, the colour of the change shows `better`; if false, it shows whether the amount grows."""
    better: bool | None = None
    """None: neither better nor worse."""

    @property
    def tint(self) -> str:
        """The colour of the changed part."""
        if self.judged:
            return {True: PAGE.arrives, False: PAGE.leaves, None: PAGE.quiet}[self.better]
        return PAGE.arrives if self.after > self.before else PAGE.leaves


def changed_bars_svg(bars: Sequence[ChangedBar], key: str, *, label: str) -> str:
    """A row per bar with its text above it; an empty string without bars."""
    if not bars:
        return ""
    scale = max(max(bar.before, bar.after, bar.whole or 0, bar.limit or 0, bar.owed or 0) for bar in bars)
    with figure_of_page(_ROW * len(bars) + 0.1) as (figure, axes):
        for row, bar in enumerate(bars):
            _draw_bar(axes, -row, bar, scale or 1.0)
        axes.set_xlim(0, 1.004)
        axes.set_ylim(0.55 - len(bars), 0.8)
        axes.set_axis_off()
        told = "; ".join(f"{bar.label} {bar.words}" for bar in bars)
        return inline_svg(figure, key, label=f"{label}: {told}")


def _draw_bar(axes: Axes, y: float, bar: ChangedBar, scale: float) -> None:
    stays = min(bar.before, bar.after) / scale
    before, after = bar.before / scale, bar.after / scale
    if bar.whole:
        axes.barh(y, bar.whole / scale, _BAR, color=PAGE.shade)
    axes.barh(y, stays, _BAR, color=PAGE.kept)
    if after > stays:
        axes.barh(y, after - stays, _BAR, left=stays, color=bar.tint)
    if before > stays:
        axes.barh(y, before - stays, _BAR, left=stays, facecolor="none", edgecolor=bar.tint, hatch="////")
    if bar.limit is not None:
        axes.plot([bar.limit / scale] * 2, [y - 0.28, y + 0.28], color=PAGE.limit, linewidth=1.6)
    if bar.owed:
        axes.plot(
            bar.owed / scale, y - 0.26, marker="^", color=PAGE.limit, markersize=5, clip_on=False, zorder=4
        )
    axes.text(0, y + 0.3, shorten_label(bar.label), va="bottom")
    axes.text(1, y + 0.3, bar.words, va="bottom", ha="right", color=PAGE.quiet)


# The gap of a search over time.

_LINEAR_BELOW: Final = 0.1
"""Percent. The axis is logarithmic above this value and linear below, down to 0 (proven optimal)."""

_LINEAR_BELOW_POINTS: Final = 1.0
"""The same limit, in points, if the gap is drawn in points."""

_LARGEST: Final = 100.0
"""Percent. Larger gaps are cut off, as they mean that nothing was known yet."""

_TICKS: Final = (0, 0.1, 0.3, 1, 3, 10, 30, 100)


@dataclass(frozen=True, slots=True)
class _Course:
    """Gap of a search by time."""

    seconds: list[float]
    gaps: list[float]
    """In percent of the objective, or in points."""
    words: list[str]
    """The gaps as printed."""
    in_points: bool
    """True if the final gap is given in points, as for a plan of 0 points."""
    milestones: Sequence[Milestone]

    @classmethod
    def of(cls, milestones: Sequence[Milestone], end: SearchFinished | SolutionSummary | None) -> _Course:
        """The course of the milestones; the last known gap holds until the end."""
        ends = () if end is None else (end,)
        known = [
            (each.seconds, each.gap, each.objective)
            for each in (*milestones, *ends)
            if each.gap is not None and each.objective is not None
        ]
        words = [format_gap(objective, gap) for _, gap, objective in known]
        in_points = bool(words) and not words[-1].endswith("%")
        gaps = [gap * (max(1, abs(objective)) if in_points else 100) for _, gap, objective in known]
        return cls([seconds for seconds, *_ in known], gaps, words, in_points, milestones)

    @property
    def end(self) -> float:
        return self.seconds[-1] if self.seconds else 1.0


def gap_chart(search: SearchRecord, kind: str) -> bytes:
    """Draw the gap over time with its stages as `svg` or `png`; the same log gives the same bytes."""
    with figure_in(PAPER, 8.0, 4.0) as (figure, axes):
        course = _Course.of(search.milestones, search.finished)
        _draw_gap(axes, course, PAPER)
        share = "gap: (bound − objective) / |objective|"
        axes.set_ylabel("gap in points: bound − objective" if course.in_points else share)
        axes.set_title(_title(search), loc="left", fontsize=10, pad=16)
        return file_bytes(figure, kind)


def gap_svg(milestones: Sequence[Milestone], end: SolutionSummary) -> str:
    """The same chart for a page; empty if fewer than two gaps are known."""
    course = _Course.of(milestones, end)
    if len(set(course.seconds)) < 2:
        return ""
    with figure_of_page(2.6) as (figure, axes):
        _draw_gap(axes, course, PAGE)
        first, last = course.words[0], course.words[-1]
        label = f"Proven gap over {course.end:.1f} seconds: {first} at first, {last} at the end"
        return inline_svg(figure, "gap", label=label)


def _draw_gap(axes: Axes, course: _Course, palette: Palette) -> None:
    line = palette.arrives
    if seconds := course.seconds:
        gaps = course.gaps
        axes.step(seconds, gaps, where="post", color=line, linewidth=1.6)
        axes.plot(seconds[:-1], gaps[:-1], ".", color=line, markersize=5)
        axes.plot(seconds[-1:], gaps[-1:], "o", color=line, markersize=6, clip_on=False)
    _scale_gap(axes, course)
    axes.set_xlim(0, max(1.01 * course.end, 1e-3))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("seconds since the search began")
    axes.grid(axis="y", linewidth=0.4)
    _draw_stages(axes, course, palette)


def _scale_gap(axes: Axes, course: _Course) -> None:
    """Set up the axis of the gap."""
    largest = 1.5 * max(course.gaps, default=1.0)
    if course.in_points:
        axes.set_yscale("symlog", linthresh=_LINEAR_BELOW_POINTS)
        axes.set_ylim(0, max(_LINEAR_BELOW_POINTS, largest))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        return
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW)
    axes.set_ylim(0, max(_LINEAR_BELOW, min(_LARGEST, largest)))
    axes.set_yticks([tick for tick in _TICKS if tick <= axes.get_ylim()[1]])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))


def _draw_stages(axes: Axes, course: _Course, palette: Palette) -> None:
    """Shade the time span of each stage, and label it if it is wide enough."""
    runs = [
        (stage, next(same).seconds) for stage, same in groupby(course.milestones, lambda each: each.stage)
    ]
    for index, (stage, begin) in enumerate(runs):
        until = runs[index + 1][1] if index + 1 < len(runs) else course.end
        shade = palette.shade if index % 2 else "none"
        axes.axvspan(begin, until, facecolor=shade, edgecolor="none", zorder=0)
        if until - begin > 0.12 * course.end:
            axes.text(
                (begin + until) / 2,
                1.02,
                stage,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                color=palette.quiet,
                fontsize=8,
            )


def _title(search: SearchRecord) -> str:
    end = search.finished
    if end is None:
        return "Search without an end"
    gap = gap_or_unknown(end.objective, end.gap)
    plan = f"Plan {end.plan[:8]} of {end.solver}: objective {end.objective:,}"
    return f"{plan}, {gap} after {end.seconds:.1f} s ({end.how})"


# A figure of the runs of a simulation over time: a line per run.

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
            (drawn,) = axes.step(hours, values, where="post", linewidth=1.4)
            drawn.set(color=PAGE.series[style], linestyle=DASHES[style])
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
_TIME_TICKS: Final = (
    *(1, 2, 5, 10, 20, 30),
    *(_MINUTE * number for number in (1, 2, 5, 10, 20, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 4, 7, 14, 28, 60, 120, 240, 480)),
)
"""Seconds."""
# Labels of more would touch each other.
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
        ticks = [tick for tick in _TIME_TICKS if low <= tick <= high]
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


# The combinations of a sweep by two figures, with the Pareto front.

# Labels of more points would cover each other.
_MOST_LABELS: Final = 40


def sweep_chart(sweep: Sweep, kind: str) -> bytes:
    """Draw a sweep as `svg` or `png`; the same figures give the same bytes."""
    with figure_in(PAPER, 8.0, 5.0) as (figure, axes):
        _draw_sweep(axes, sweep)
        across, up = sweep.weighed
        axes.set_xlabel(across.replace("_", " "))
        axes.set_ylabel(up.replace("_", " "))
        for name, axis in ((across, axes.xaxis), (up, axes.yaxis)):
            if name in RATIOS:
                axis.set_major_formatter(PercentFormatter(1.0))
        names = " and ".join(knob.name for knob in sweep.knobs)
        axes.set_title(f"Sweep of {names}, with its Pareto front", loc="left", fontsize=10)
        axes.grid(linewidth=0.4)
        axes.margins(0.08)
        axes.legend(fontsize=8)
        return file_bytes(figure, kind)


def _draw_sweep(axes: Axes, sweep: Sweep) -> None:
    """A line per value of the first of two knobs, through the values of the second, and the Pareto front."""
    lines: dict[tuple[str, ...], list[SweepPoint]] = {}
    for point in sweep.points:
        lines.setdefault(point.values[:-1], []).append(point)
    for number, (values, points) in enumerate(lines.items()):
        label = ", ".join(f"{knob.name} = {value}" for knob, value in zip(sweep.knobs, values, strict=False))
        style = number % len(DASHES)
        (line,) = axes.plot(*_places(sweep, points), "o", markersize=4, label=label or None)
        line.set(color=PAPER.series[style], linestyle=DASHES[style], linewidth=0.9)
    front = _places(sweep, [point for point in sweep.points if point.on_front])
    (marks,) = axes.plot(*front, "D", color=PAPER.ink, label="Pareto front")
    marks.set(markersize=9, markerfacecolor="none", markeredgewidth=1.4)
    if len(sweep.points) > _MOST_LABELS:
        return
    # The value of the last knob beside each point; values of one point share a label.
    at: dict[tuple[float, float], list[str]] = {}
    for point in sweep.points:
        if (place := _place(sweep, point)) is not None:
            at.setdefault(place, []).append(point.values[-1])
    for place, told in at.items():
        words = ", ".join(dict.fromkeys(told))
        note = axes.annotate(words, place, xytext=(7, 5), textcoords="offset points")
        note.set(fontsize=8, color=PAPER.quiet)


def _places(sweep: Sweep, points: Sequence[SweepPoint]) -> tuple[list[float], list[float]]:
    found = [place for point in points if (place := _place(sweep, point)) is not None]
    return [across for across, _ in found], [up for _, up in found]


def _place(sweep: Sweep, point: SweepPoint) -> tuple[float, float] | None:
    if point.figures is None:
        return None
    across, up = (point.figures.figure(name) for name in sweep.weighed)
    return None if across is None or up is None else (across, up)
