"""Chart of the gap of a search over time, in a file or in a page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FuncFormatter, NullLocator

from gpuplan.planner.render.charts.canvas import (
    PAGE,
    PAPER,
    figure_of_file,
    figure_of_page,
    file_bytes,
    inline_svg,
)
from gpuplan.planner.render.plan.header import format_gap, gap_or_unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from gpuplan.models.plan.plan import SolutionSummary
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.planner.io.search_log import SearchFinished, SearchRecord
    from gpuplan.planner.render.charts.canvas import Palette

_LINEAR_BELOW: Final = 0.1
"""Percent. The axis is logarithmic above this value and linear below, down to 0 (proven optimal)."""

_LINEAR_BELOW_POINTS: Final = 1.0
"""The same limit, in points, if the gap is drawn in points."""

_SHARE: Final = "gap: (bound − objective) / |objective|"

_LARGEST: Final = 100.0
"""Percent. Larger gaps are cut off, as they mean that nothing was known yet; not if all gaps are larger."""

_TICKS: Final = (0, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000)


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
    with figure_of_file(8.0, 4.0) as (figure, axes):
        course = _Course.of(search.milestones, search.finished)
        _draw(axes, course, PAPER)
        axes.set_ylabel("gap in points: bound − objective" if course.in_points else _SHARE)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(_title(search), loc="left", fontsize=10)
        return file_bytes(figure, kind)


def gap_svg(milestones: Sequence[Milestone], end: SolutionSummary) -> str:
    """The same chart for a page; empty if fewer than two gaps are known."""
    course = _Course.of(milestones, end)
    if len(set(course.seconds)) < 2:
        return ""
    with figure_of_page(2.6) as (figure, axes):
        _draw(axes, course, PAGE)
        first, last = course.words[0], course.words[-1]
        label = f"Proven gap over {course.end:.1f} seconds: {first} at first, {last} at the end"
        return inline_svg(figure, "gap", label=label)


def _draw(axes: Axes, course: _Course, palette: Palette) -> None:
    line = palette.arrives
    if seconds := course.seconds:
        gaps = course.gaps
        axes.step(seconds, gaps, where="post", color=line, linewidth=1.6)
        axes.plot(seconds[:-1], gaps[:-1], ".", color=line, markersize=5)
        axes.plot(seconds[-1:], gaps[-1:], "o", color=line, markersize=6, clip_on=False)
    _scale(axes, course)
    axes.set_xlim(0, max(1.01 * course.end, 1e-3))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("seconds since the search began")
    axes.grid(axis="y", linewidth=0.4, color=palette.line)
    _stages(axes, course, palette)


def _scale(axes: Axes, course: _Course) -> None:
    """Set up the axis of the gap."""
    largest = 1.5 * max(course.gaps, default=1.0)
    if course.in_points:
        axes.set_yscale("symlog", linthresh=_LINEAR_BELOW_POINTS)
        axes.set_ylim(0, max(_LINEAR_BELOW_POINTS, largest))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        return
    top = min(max(_LARGEST, 1.2 * min(course.gaps, default=0.0)), largest)
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW)
    axes.set_ylim(0, max(_LINEAR_BELOW, top))
    axes.set_yticks([tick for tick in _TICKS if tick <= axes.get_ylim()[1]])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))


def _stages(axes: Axes, course: _Course, palette: Palette) -> None:
    """Shade the time span of each stage, and label it if it is wide enough."""
    runs = [
        (stage, next(same).seconds) for stage, same in groupby(course.milestones, lambda each: each.stage)
    ]
    for index, (stage, begin) in enumerate(runs):
        until = runs[index + 1][1] if index + 1 < len(runs) else course.end
        shade = palette.shade if index % 2 else "none"
        axes.axvspan(begin, until, facecolor=shade, edgecolor="none", zorder=0)
        if until - begin > 0.12 * course.end:
            axes.annotate(
                stage,
                ((begin + until) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -10),
                textcoords="offset points",
                ha="center",
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
