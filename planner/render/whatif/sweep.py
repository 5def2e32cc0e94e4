"""A sweep as text: one line per combination, with a mark on those on the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.plan.header import format_gap, percent, request_lines
from gpuplan.planner.render.style import Style, TableRow, Tone, table
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, RATIOS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.whatif.measures import PlanFigures
    from gpuplan.planner.whatif.sweep import Sweep

_ALWAYS: Final = ("jobs_running", "jobs_waiting", "gpu_allocation_ratio", "objective", "gap")

FRONT_MARK: Final = "*"


def sweep_text(sweep: Sweep, *, width: int, colour: bool, ascii_only: bool) -> str:
    """All combinations, and notes on the mark."""
    style = Style(width=width, colour=colour, ascii_only=ascii_only)
    shown = [*dict.fromkeys((*_ALWAYS[:3], *sweep.weighed, *_ALWAYS[3:]))]
    heads = (*_names(sweep), *(MEASURES[name].head for name in shown), "")
    rows = [TableRow(heads)]
    for point in sweep.points:
        found = point.figures
        cells = ["failed" if found is None else format_figure(found, name) for name in shown]
        rows.append(TableRow((*point.values, *cells, FRONT_MARK if point.on_front else "")))
    lines = request_lines(f"Sweep of {' and '.join(knob.name for knob in sweep.knobs)}", sweep, style)
    lines += ["", *table(rows, style, right=range(len(heads) - 1)), ""]
    for point in sweep.points:
        if point.failure:
            failed = f"{', '.join(point.values)}: failed: {point.failure}"
            lines += [style.paint(line, Tone.STOP) for line in style.wrap(failed, 0, hanging=2)]
    return "\n".join([*lines, *(line for note in _notes(sweep) for line in style.wrap(note, 0))]) + "\n"


def _notes(sweep: Sweep) -> Iterator[str]:
    """What the mark means, and what must not be compared."""
    one, other = sweep.weighed
    if not sweep.same_points:
        yield "Objectives are not compared: jobs are worth something else from line to line."
        if not IN_POINTS.isdisjoint(sweep.weighed):
            yield "So there is no Pareto front of them; --pareto names other figures."
            return
    yield (
        f"{FRONT_MARK} on the Pareto front of {one} and {other}: no other line is better in one of them "
        "and as good in the other."
    )


def _names(sweep: Sweep) -> list[str]:
    """Knobs by the last part of their paths, if these parts differ."""
    names = [knob.name for knob in sweep.knobs]
    ends = [name.rpartition(".")[2] for name in names]
    return ends if len(set(ends)) == len(ends) else names


def format_figure(figures: PlanFigures, name: str) -> str:
    """One figure as printed."""
    value = figures.figure(name)
    if name == "gap" and value is not None:
        return format_gap(figures.objective, value)
    if value is None:
        return "?"
    return percent(value) if name in RATIOS else f"{value:,.12g}"
