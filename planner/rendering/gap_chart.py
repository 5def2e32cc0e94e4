"""The gap of a search over time as a picture; the only file that knows matplotlib."""

from __future__ import annotations

import io
from itertools import groupby
from typing import TYPE_CHECKING, Final

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from planner.models.solution import Milestone
    from planner.search import Search

_LINEAR_BELOW: Final = 0.1
"""Percent: above, the axis is logarithmic; below, linear down to 0, where a proof ends."""

_LARGEST: Final = 100.0
"""Percent: what lies above is cut off, for it says only that nothing was known yet."""

_TICKS: Final = (0, 0.1, 0.3, 1, 3, 10, 30, 100)
_LINE: Final = "#1f4e79"
_SHADES: Final = ("#ffffff", "#eef2f6")


def gap_chart(search: Search, kind: str) -> bytes:
    """Draw the gap over time, stage by stage, as `svg` or `png`; the same log gives the same bytes."""
    with rc_context({"svg.hashsalt": "gpuplan", "font.size": 9.0}):
        figure = Figure(figsize=(8.0, 4.0), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, search)
        drawn = io.BytesIO()
        figure.savefig(drawn, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return drawn.getvalue()


def _draw(axes: Axes, search: Search) -> None:
    seconds, gaps = _points(search)
    end = seconds[-1] if seconds else 1.0
    if seconds:
        axes.step(seconds, gaps, where="post", color=_LINE, linewidth=1.6)
        axes.plot(seconds[:-1], gaps[:-1], ".", color=_LINE, markersize=5)
        axes.plot(seconds[-1:], gaps[-1:], "o", color=_LINE, markersize=6, clip_on=False)
    top = min(_LARGEST, 1.5 * max(gaps, default=1.0))
    axes.set_yscale("symlog", linthresh=_LINEAR_BELOW)
    axes.set_ylim(0, max(_LINEAR_BELOW, top))
    axes.set_xlim(0, max(1.01 * end, 1e-3))
    axes.set_yticks([tick for tick in _TICKS if tick <= axes.get_ylim()[1]])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set_xlabel("seconds since the search began")
    axes.set_ylabel("gap: (bound − objective) / |objective|")
    axes.grid(axis="y", linewidth=0.4, color="#c8c8c8")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_title(search), loc="left", fontsize=10)
    _stages(axes, search.milestones, end)


def _points(search: Search) -> tuple[list[float], list[float]]:
    """Seconds and gaps in percent; what was last known holds until the end."""
    known = [(each.seconds, 100 * each.gap) for each in search.milestones if each.gap is not None]
    end = search.finished
    if end is not None and end.gap is not None:
        known.append((end.seconds, 100 * end.gap))
    return [seconds for seconds, _ in known], [gap for _, gap in known]


def _stages(axes: Axes, milestones: Sequence[Milestone], end: float) -> None:
    """Shade the time of each stage, and name it where it is wide enough."""
    runs = [(stage, next(same).seconds) for stage, same in groupby(milestones, lambda each: each.stage)]
    for index, (stage, begin) in enumerate(runs):
        until = runs[index + 1][1] if index + 1 < len(runs) else end
        axes.axvspan(begin, until, color=_SHADES[index % 2], zorder=0, linewidth=0)
        if until - begin > 0.08 * end:
            axes.annotate(
                stage,
                ((begin + until) / 2, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -10),
                textcoords="offset points",
                ha="center",
                color="#505050",
                fontsize=8,
            )


def _title(search: Search) -> str:
    end = search.finished
    if end is None:
        return "Search without an end"
    gap = "bound unknown" if end.gap is None else f"gap {100 * end.gap:.2g} %"
    plan = f"Plan {end.plan[:8]} of {end.solver}: objective {end.objective:,}"
    return f"{plan}, {gap} after {end.seconds:.1f} s ({end.how})"
