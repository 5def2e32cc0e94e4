"""Chart of a sweep: every combination by two figures, with the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.ticker import PercentFormatter

from gpuplan.planner.render.charts.canvas import DASHES, PAPER, figure_of_file, file_bytes
from gpuplan.planner.whatif.measures import RATIOS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpuplan.planner.whatif.sweep import Sweep, SweepPoint

_MOST_LABELS: Final = 40


def sweep_chart(sweep: Sweep, kind: str) -> bytes:
    """Draw a sweep as `svg` or `png`; the same figures give the same bytes."""
    with figure_of_file(8.0, 5.0) as (figure, axes):
        _draw(axes, sweep)
        across, up = sweep.weighed
        axes.set_xlabel(across.replace("_", " "))
        axes.set_ylabel(up.replace("_", " "))
        for name, axis in ((across, axes.xaxis), (up, axes.yaxis)):
            if name in RATIOS:
                axis.set_major_formatter(PercentFormatter(1.0))
        names = " and ".join(knob.name for knob in sweep.knobs)
        axes.set_title(f"Sweep of {names}, with its Pareto front", loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(linewidth=0.4, color=PAPER.line)
        axes.margins(0.08)
        return file_bytes(figure, kind)


def _draw(axes: Axes, sweep: Sweep) -> None:
    """A line per value of the first of two knobs, through the values of the second, and the Pareto front."""
    lines: dict[tuple[str, ...], list[SweepPoint]] = {}
    for point in sweep.points:
        lines.setdefault(point.values[:-1], []).append(point)
    for number, (values, points) in enumerate(lines.items()):
        places = [place for point in points if (place := _place(sweep, point)) is not None]
        colour = PAPER.series[number % len(PAPER.series)]
        label = ", ".join(f"{knob.name} = {value}" for knob, value in zip(sweep.knobs, values, strict=False))
        axes.plot(
            [across for across, _ in places],
            [up for _, up in places],
            color=colour,
            linestyle=DASHES[number % len(DASHES)],
            linewidth=0.9,
            marker="o",
            markersize=4,
            label=label or None,
        )
    front = sorted(
        place for point in sweep.points if point.on_front and (place := _place(sweep, point)) is not None
    )
    axes.plot(
        [across for across, _ in front],
        [up for _, up in front],
        color=PAPER.ink,
        linewidth=0,
        marker="D",
        markersize=9,
        markerfacecolor="none",
        markeredgewidth=1.4,
        label="Pareto front",
    )
    if len(sweep.points) <= _MOST_LABELS:
        _label(axes, sweep)
    axes.legend(frameon=False, fontsize=8)


def _label(axes: Axes, sweep: Sweep) -> None:
    """Write the value of the last knob beside each point; values of one point share a label."""
    at: dict[tuple[float, float], list[str]] = {}
    for point in sweep.points:
        if (place := _place(sweep, point)) is not None:
            at.setdefault(place, []).append(point.values[-1])
    for place, values in at.items():
        axes.annotate(
            ", ".join(dict.fromkeys(values)),
            place,
            xytext=(7, 5),
            textcoords="offset points",
            fontsize=8,
            color=PAPER.quiet,
        )


def _place(sweep: Sweep, point: SweepPoint) -> tuple[float, float] | None:
    if point.figures is None:
        return None
    across, up = (point.figures.figure(name) for name in sweep.weighed)
    return None if across is None or up is None else (across, up)
