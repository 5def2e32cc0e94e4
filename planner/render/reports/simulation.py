"""A simulation as one HTML page: its runs side by side, over time and in tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import SECONDS_PER_HOUR, print_timestamp
from gpuplan.planner.render.canvas import PAGE
from gpuplan.planner.render.charts import (
    Line,
    Unit,
    WaitDistribution,
    over_time_svg,
    wait_distribution_svg,
)
from gpuplan.planner.render.plan.header import percent
from gpuplan.planner.render.reports.page import (
    Block,
    Charts,
    Drawing,
    Figures,
    Fold,
    HeadlineFigure,
    Legend,
    Page,
    PageSection,
    Text,
)
from gpuplan.planner.render.simulation import ending_text, epoch_interval_text, score_table, simulation_notes
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_duration

if TYPE_CHECKING:
    from gpuplan.planner.simulate.outcome import EpochFigures, SimulatedRun, Simulation

_MOST_LINES: Final = len(PAGE.series)
"""Runs per chart; the table shows all."""

_OVER_TIME: Final = (
    ("gpu_allocation_ratio", "GPUs allocated", Unit.SHARE, "After each epoch's plan."),
    ("waiting", "Jobs waiting", Unit.NUMBER, "After each epoch's plan."),
    ("running", "Jobs running", Unit.NUMBER, "After each epoch's plan."),
    ("jain_index", "Fairness", Unit.INDEX, "Jain's index of how far the queues' demands are met."),
    (
        "fragmentation_ratio",
        "Fragmentation",
        Unit.SHARE,
        "Part of the free GPUs not in blocks of 8 on a node.",
    ),
    ("hourly_cost", "Cost per hour", Unit.NUMBER, "Of all ready nodes, in the cluster's currency."),
)
_SPREADS: Final = (
    ("wait", "Wait until the first start"),
    ("completion", "Completion, from submission to the end"),
)


def simulation_report(simulation: Simulation) -> str:
    """The page; all text in it is escaped."""
    runs = simulation.runs
    jobs = format_count(runs[0].scores.jobs, "job")
    place = f"{format_count(simulation.nodes, 'node')} with {format_count(simulation.gpus, 'GPU')}"
    figures: list[Block] = []
    for run in runs:
        figures += [Text(run.name, level=3, remark=ending_text(run, simulation)), Figures(_figures(run))]
    scores = replace(score_table(runs), heads=("Score", *(run.name for run in runs)))
    looks = [(f"series-{number}", run.name) for number, run in enumerate(runs[:_MOST_LINES], 1)]
    charts = Charts([*_spread_charts(simulation), *_time_charts(simulation)])
    tables = [(run.name, _epoch_table(run)) for run in runs]
    epochs = [Fold(f"{name}: {table.title}", [replace(table, title="")]) for name, table in tables]
    notes = [Text(note, "quiet") for note in simulation_notes(simulation)]
    return Page(
        title=f"Simulation of {jobs} on {place}",
        heading="Simulation",
        subject=f"of {jobs} on {place}",
        told=(),
        identity=[
            f"source {simulation.source}",
            f"arrivals {simulation.arrivals or 'none but its own jobs'}",
            f"from {print_timestamp(simulation.began)}, {epoch_interval_text(simulation)}",
            f"seed {simulation.seed}",
        ],
        blocks=(),
        sections=[
            PageSection("runs", "Runs", format_count(len(runs), "run"), figures),
            PageSection("scores", "Scores", "Side by side", [scores, *notes]),
            PageSection("charts", "Charts", "Over time", [Legend(looks, "line"), charts]),
            PageSection("epochs", "Epochs", "Epochs", epochs),
        ],
    ).html()


def _figures(run: SimulatedRun) -> list[HeadlineFigure]:
    """The main figures of a run."""
    card = run.scores
    left = {"running": card.running, "waiting": card.waiting}
    unfinished = ", ".join(f"{count:,} {what}" for what, count in left.items() if count)
    waits = "" if card.wait is None else f"p95 {format_duration(round(card.wait.p95.value))}"
    wait = "none" if card.wait is None else format_duration(round(card.wait.mean.value))
    at_least = "≥ " if card.wait is not None and card.wait.mean.at_least else ""
    return [
        HeadlineFigure(
            "Finished", f"{card.finished:,}", unfinished or f"of {format_count(card.jobs, 'job')}"
        ),
        HeadlineFigure("Mean wait", f"{at_least}{wait}", waits),
        HeadlineFigure("GPUs in use", percent(card.gpu_utilization), f"{card.gpu_hours:,.0f} GPU-hours held"),
        HeadlineFigure("Fairness", f"{card.jain_mean:.2f}", f"{card.jain_min:.2f} at least"),
        HeadlineFigure("Preemptions", f"{card.preemptions:,}", f"{card.lost_gpu_hours:,.1f} GPU-hours lost"),
        HeadlineFigure(
            "Planning", f"{card.planning_seconds:,.1f} s", f"{card.planning_seconds_max:,.2f} s at most"
        ),
    ]


def _spread_charts(simulation: Simulation) -> list[Drawing]:
    charts = []
    for name, title in _SPREADS:
        found = [(run.name, getattr(run.scores, name)) for run in simulation.runs[:_MOST_LINES]]
        spreads = [WaitDistribution(run, spread) for run, spread in found if spread is not None]
        caption = "From the median to the slowest hundredth; the dot is p95, the diamond the mean."
        if any(spread.found.p99.at_least for spread in spreads):
            caption += " An arrow: at least so long."
        charts.append(Drawing.of(wait_distribution_svg(spreads, name, label=title), title, caption))
    return charts


def _time_charts(simulation: Simulation) -> list[Drawing]:
    charts = []
    for field, title, unit, caption in _OVER_TIME:
        lines = [_line(run, field, simulation) for run in simulation.runs[:_MOST_LINES]]
        if any(any(line.values) for line in lines):
            key = field.replace("_", "-")
            svg = over_time_svg(lines, key, label=title, unit=unit)
            charts.append(Drawing.of(svg, title, caption))
    return charts


def _line(run: SimulatedRun, field: str, simulation: Simulation) -> Line:
    hours = [(epoch.at - simulation.began).total_seconds() / SECONDS_PER_HOUR for epoch in run.epochs]
    return Line(run.name, hours, [getattr(epoch, field) for epoch in run.epochs])


def _epoch_table(run: SimulatedRun) -> Table:
    """One line per epoch in which something happened."""
    heads = ("Epoch", "At", "Submitted", "Finished", "Started", "Stopped", "Running", "Waiting", "Allocated")
    rows = [TableRow(_epoch_cells(epoch)) for epoch in run.epochs if _eventful(epoch)]
    title = f"{format_count(len(rows), 'epoch')} in which something happened, of {len(run.epochs):,}"
    return Table(rows, heads, title, right=range(1, len(heads)))


def _eventful(epoch: EpochFigures) -> bool:
    names = ("submitted", "finished", "killed", "interrupted", "started", "preempted", "migrated", "resized")
    return any(getattr(epoch, name) for name in names)


def _epoch_cells(epoch: EpochFigures) -> tuple[str, ...]:
    stopped = epoch.preempted + epoch.interrupted + epoch.killed
    counts = (epoch.submitted, epoch.finished, epoch.started, stopped, epoch.running, epoch.waiting)
    allocated = percent(epoch.gpu_allocation_ratio)
    return (f"{epoch.number}", f"{epoch.at:%d %b %H:%M}", *(f"{count:,}" for count in counts), allocated)
