"""A comparison as one HTML page: each scenario against the base, as charts and as a table of all figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import print_timestamp
from gpuplan.planner.render.charts import ChangedBar, changed_bars_svg
from gpuplan.planner.render.plan.header import percent, short_id
from gpuplan.planner.render.reports.page import (
    Block,
    Card,
    Cards,
    Charts,
    Drawing,
    Items,
    Legend,
    Page,
    PageSection,
    Text,
)
from gpuplan.planner.render.whatif.comparison import (
    comparison_table,
    comparison_warnings,
    job_outcome_counts,
    job_outcome_table,
    verdicts,
)
from gpuplan.planner.text_format import format_count, format_money
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, Better, MeasureUnit, PlanFigures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.planner.render.table import Table
    from gpuplan.planner.whatif.compare import Comparison, Trial

_VERDICTS: Final = {True: ("start", ", better"), False: ("stop", ", worse"), None: ("", "")}
"""CSS class and text of a figure that is better or worse than in the base, or neither."""
_CAPTION: Final = (
    "Scenarios are told as differences from the base, shares in percentage points; = is the same"
)
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
            return format_money(value)
        case _:
            return f"{value:,.12g}"


_LOOKS: Final = [
    ("kept", "as in the base"),
    ("arrives", "better"),
    ("leaves", "worse"),
    ("neutral", "neither"),
]


def whatif_report(comparison: Comparison) -> str:
    """The page; all text in it is escaped."""
    trials = [trial for trial in comparison.scenarios if trial.figures is not None]
    base = comparison.base.figures
    count = format_count(len(comparison.scenarios), "scenario")
    sign = ("×", "stop") if not comparison.sound else ("✓", "start") if comparison.expected else ("", "")
    failure = comparison.base.failure
    remarks = ([f"The base could not be planned: {failure}"] if failure else []) + [*comparison.base.warnings]
    charts = [chart for name in _TITLES if base and (chart := _chart(name, base, trials)).svg]
    drawn: list[Block] = [Text("No scenario differs from the base in any figure that is drawn.")]
    if charts:
        drawn = [
            Legend(_LOOKS),
            Text("Filled: more than in the base; hatched: less.", "quiet"),
            Charts(charts),
        ]
    figures: Block = Text("Without a base there is nothing to compare with.")
    if base is not None:
        figures = replace(comparison_table(base, trials), title=_CAPTION)
    cards = Cards([_card(trial, comparison.base) for trial in comparison.scenarios])
    jobs = [_job_outcomes(trial) for trial in trials if trial.jobs]
    return Page(
        title=f"What if: {count}",
        heading="What if",
        subject=f"{count} against the base",
        told=[(*sign, verdict) for verdict in verdicts(comparison)],
        identity=[
            f"epoch {print_timestamp(comparison.epoch)}",
            f"snapshot {short_id(comparison.snapshot)}",
            f"policy {short_id(comparison.policy)}",
            f"seed {comparison.seed}",
        ],
        blocks=[Text(remark, "care") for remark in remarks],
        sections=[
            PageSection("scenarios", "Scenarios", "Scenarios", [cards]),
            PageSection("jobs", "Jobs", "Jobs", jobs or [Text("Every job fares as in the base.")]),
            PageSection("charts", "Charts", "Against the base", drawn),
            PageSection("figures", "Figures", "All figures", [figures]),
        ],
    ).html()


def _card(trial: Trial, base_trial: Trial) -> Card:
    """Summary of a scenario: what is wrong with it, and each figure that differs from the base."""
    base = base_trial.figures
    faults = ((f"failed: {trial.failure}",) if trial.failure else ()) + trial.unmet
    warnings = comparison_warnings(trial, base_trial)
    differences = []
    if trial.figures is not None and base is not None:
        for name in _drawn(trial):
            here, there = trial.figures.figure(name), base.figure(name)
            if here is not None and there is not None and here != there:
                look, judged = _VERDICTS[_better(name, base, trial.figures)]
                words = f"{_words(name, there)} → {_with_difference(name, there, here)}"
                differences.append((look, f"{_TITLES[name]} {words}{judged}"))
    blocks: list[Block] = [Text(trial.description, "quiet")] if trial.description else []
    blocks += [Text(f"× {fault}", "stop") for fault in faults]
    blocks += [Text(warning, "care") for warning in warnings]
    if differences:
        blocks.append(Items(differences, "Figures that differ", "lines"))
    elif not faults and not warnings:
        blocks.append(Text("Every figure is that of the base."))
    if trial.jobs:
        blocks.append(Text(f"{job_outcome_counts(trial.jobs)}."))
    return Card(trial.name, "", bool(faults), blocks)


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


def _job_outcomes(trial: Trial) -> Table:
    """The jobs of a scenario with a change against the base, the worst first."""
    rest = f"; the first {_MOST_JOBS}" if len(trial.jobs) > _MOST_JOBS else ""
    title = f"{trial.name}: {job_outcome_counts(trial.jobs)}{rest}"
    return replace(job_outcome_table(trial.jobs[:_MOST_JOBS]), title=title)


def _chart(name: str, base: PlanFigures, trials: Sequence[Trial]) -> Drawing:
    """A bar per scenario beside that of the base; no chart if all are equal or one is negative."""
    title, there = _TITLES[name], base.figure(name)
    found = [
        (trial, trial.figures.figure(name)) for trial in trials if trial.figures and name in _drawn(trial)
    ]
    known = [(trial, value) for trial, value in found if value is not None]
    differing = there is not None and any(value != there for _, value in known)
    if there is None or not differing or min(there, *(value for _, value in known)) < 0:
        return Drawing.of("", title)
    bars = [ChangedBar("base", there, there, _words(name, there))]
    for trial, value in known[:_MOST_BARS]:
        words = _words(name, value) if value == there else _with_difference(name, there, value)
        better = _better(name, base, trial.figures)
        bars.append(ChangedBar(trial.name, there, value, words, judged=True, better=better))
    left_out = len(known) - len(bars) + 1
    caption = f"The first {_MOST_BARS} of {len(known):,} scenarios." if left_out else ""
    svg = changed_bars_svg(bars, name.replace("_", "-"), label=title)
    return Drawing.of(svg, title, caption)


def _with_difference(name: str, base: float, value: float) -> str:
    """`7 (+1)`, `59.4 % (−4.2 points)`."""
    sign = "+" if value > base else "−"
    difference = _words(name, abs(value - base)).replace("%", "points")
    return f"{_words(name, value)} ({sign}{difference})"
