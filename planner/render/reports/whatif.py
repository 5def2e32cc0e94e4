"""A comparison as one HTML page: each scenario against the base, as charts and as a table of all figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.charts.changed_bars import ChangedBar, changed_bars_svg
from gpuplan.planner.render.plan.header import percent
from gpuplan.planner.render.reports.page import Head, Picture, Table, indented, render
from gpuplan.planner.render.whatif.comparison import (
    comparison_lines,
    comparison_warnings,
    job_outcome_cells,
    job_outcome_counts,
    verdicts,
)
from gpuplan.planner.text_format import format_count
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, Better, MeasureUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.whatif.compare import Comparison, Trial
    from gpuplan.planner.whatif.measures import PlanFigures

_VERDICTS: Final = {True: "better", False: "worse", None: ""}
_MOST_JOBS: Final = 200
"""Jobs per scenario; the JSON document has all."""
_MOST_BARS: Final = 24
"""Bars per chart; the table has all scenarios."""


_TITLES: Final = {
    "jobs_running": "Jobs running",
    "jobs_waiting": "Jobs waiting",
    "gpus_held": "GPUs held",
    "gpu_allocation_ratio": "GPUs allocated",
    "fragmentation_ratio": "Fragmentation",
    "jain_index": "Fairness",
    "jobs_preempted": "Jobs preempted",
    "lost_gpu_hours": "GPU-hours lost",
    "lost_by_changes_gpu_hours": "GPU-hours lost by the changes",
    "hourly_cost": "Cost per hour",
    "objective": "Objective",
    "lost_by_changes_points": "Points lost by the changes",
}
"""Measures with a chart."""


def _words(name: str, value: float) -> str:
    match MEASURES[name].unit:
        case MeasureUnit.RATIO:
            return percent(value)
        case MeasureUnit.INDEX:
            return f"{value:.2f}"
        case MeasureUnit.MONEY:
            return f"{value:,.2f}"
        case _:
            return f"{value:,.12g}"


@dataclass(frozen=True, slots=True)
class _Card:
    """Summary of a scenario."""

    name: str
    description: str
    faults: tuple[str, ...]
    differences: tuple[tuple[str, str, str], ...]
    """Name, text and CSS class of each figure that differs from the base."""
    cares: tuple[str, ...]
    """Warnings about its policy."""
    fates: str
    """Counts of jobs by their change against the base, in words; empty if no job changes."""


def whatif_report(comparison: Comparison) -> str:
    """The page; all text in it is escaped."""
    trials = [trial for trial in comparison.scenarios if trial.figures is not None]
    base = comparison.base.figures
    pictures = [] if base is None else [_picture(name, base, trials) for name in _TITLES]
    return render(
        "whatif.html.j2",
        comparison=comparison,
        count=format_count(len(comparison.scenarios), "scenario"),
        verdicts=verdicts(comparison),
        sections=[("scenarios", "Scenarios"), ("jobs", "Jobs"), ("charts", "Charts"), ("figures", "Figures")],
        fates=[_fates(trial) for trial in trials if trial.jobs],
        cards=[_card(trial, comparison.base) for trial in comparison.scenarios],
        charts=[picture for picture in pictures if picture.svg],
        table=None if base is None else _table(base, trials),
    )


def _card(trial: Trial, base_trial: Trial) -> _Card:
    base = base_trial.figures
    faults = ((f"failed: {trial.failure}",) if trial.failure else ()) + trial.unmet
    differences = []
    if trial.figures is not None and base is not None:
        for name in _drawn(trial):
            here, there = trial.figures.figure(name), base.figure(name)
            if here is not None and there is not None and here != there:
                words = f"{_words(name, there)} → {_with_difference(name, there, here)}"
                differences.append((_TITLES[name], words, _VERDICTS[_better(name, base, trial.figures)]))
    told = job_outcome_counts(trial.jobs) if trial.jobs else ""
    told_cares = tuple(comparison_warnings(trial, base_trial))
    return _Card(trial.name, trial.description, faults, tuple(differences), told_cares, told)


def _drawn(trial: Trial) -> list[str]:
    """The figures of a scenario that can be compared with the base."""
    return [name for name in _TITLES if trial.same_points or name not in IN_POINTS]


def _better(name: str, base: PlanFigures, figures: PlanFigures | None) -> bool | None:
    """True if a figure is better than in the base, False if worse; None if equal or neither."""
    better, there = MEASURES[name].better, base.figure(name)
    here = None if figures is None else figures.figure(name)
    if better is Better.NEITHER or figures is None or here is None or there is None:
        return None
    if name == "objective":
        # A job that the changes stop earns points when it starts again: no gain up to the cost of the stop.
        here -= figures.lost_by_changes_points
    return None if here == there else (here > there) is (better is Better.MORE)


def _fates(trial: Trial) -> Table:
    """The jobs of a scenario with a change against the base, the worst first."""
    shown = trial.jobs[:_MOST_JOBS]
    rows = tuple((*job_outcome_cells(each), each.text) for each in shown)
    left = len(trial.jobs) - len(shown)
    caption = f"{trial.name}: {job_outcome_counts(trial.jobs)}" + (
        f"; the first {_MOST_JOBS}" if left else ""
    )
    heads = ("Job", "Queue", "User", "Against the base", "GPUs", "Work", "How")
    return Table(caption, tuple(Head(head, number=head == "GPUs") for head in heads), rows)


def _picture(name: str, base: PlanFigures, trials: Sequence[Trial]) -> Picture:
    """A bar per scenario beside that of the base; no chart if all are equal or one is negative."""
    title, there = _TITLES[name], base.figure(name)
    found = [
        (trial, trial.figures.figure(name)) for trial in trials if trial.figures and name in _drawn(trial)
    ]
    known = [(trial, value) for trial, value in found if value is not None]
    differing = there is not None and any(value != there for _, value in known)
    if there is None or not differing or min(there, *(value for _, value in known)) < 0:
        return Picture.of(title, "", "")
    bars = [ChangedBar("base", there, there, _words(name, there))]
    for trial, value in known[:_MOST_BARS]:
        words = _words(name, value) if value == there else _with_difference(name, there, value)
        better = _better(name, base, trial.figures)
        bars.append(ChangedBar(trial.name, there, value, words, judged=True, better=better))
    left_out = len(known) - len(bars) + 1
    caption = f"The first {_MOST_BARS} of {len(known):,} scenarios." if left_out else ""
    svg = changed_bars_svg(bars, name.replace("_", "-"), label=title)
    return Picture.of(title, svg, caption)


def _with_difference(name: str, base: float, value: float) -> str:
    """`7 (+1)`, `59.4 % (−4.2 points)`."""
    sign = "+" if value > base else "−"
    difference = _words(name, abs(value - base)).replace("%", "points")
    return f"{_words(name, value)} ({sign}{difference})"


def _table(base: PlanFigures, trials: Sequence[Trial]) -> Table:
    """All figures; those of the scenarios as differences from the base."""
    rows = tuple((indented(line.label), line.base, *line.others) for line in comparison_lines(base, trials))
    heads = (Head("Figure", number=False), Head("base"), *(Head(trial.name) for trial in trials))
    caption = "Scenarios are told as differences from the base, shares in percentage points; = is the same"
    return Table(caption, heads, rows)
