"""A simulation as one HTML page: its runs side by side, over time and in tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.planner.render.charts.canvas import PAGE
from gpuplan.planner.render.charts.simulation import (
    Line,
    Unit,
    WaitDistribution,
    over_time_svg,
    wait_distribution_svg,
)
from gpuplan.planner.render.reports.page import Head, HeadlineFigure, Picture, Table, indented, render
from gpuplan.planner.render.simulation import STOPPED, epoch_interval_text, score_lines, simulation_notes
from gpuplan.planner.text_format import format_count, format_duration

if TYPE_CHECKING:
    from gpuplan.planner.simulate.outcome import EpochFigures, SimulatedRun, Simulation

_SECONDS_PER_HOUR: Final = 3600
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
    pictures = [*_spread_pictures(simulation), *_time_pictures(simulation)]
    jobs = format_count(simulation.runs[0].scores.jobs, "job")
    place = f"{format_count(simulation.nodes, 'node')} with {format_count(simulation.gpus, 'GPU')}"
    return render(
        "simulation.html.j2",
        simulation=simulation,
        subject=f"{jobs} on {place}",
        cadence=epoch_interval_text(simulation),
        sections=[("runs", "Runs"), ("scores", "Scores"), ("charts", "Charts"), ("epochs", "Epochs")],
        runs=[(run.name, _ending(run, simulation), _figures(run)) for run in simulation.runs],
        drawn=[run.name for run in simulation.runs[:_MOST_LINES]],
        charts=[picture for picture in pictures if picture.svg],
        scores=_score_table(simulation),
        notes=list(simulation_notes(simulation)),
        epochs=[(run.name, _epoch_table(run)) for run in simulation.runs],
    )


def _ending(run: SimulatedRun, simulation: Simulation) -> str:
    """`288 epochs in 1d, until all is over`."""
    seconds = (run.epochs[-1].at - simulation.began).total_seconds() if run.epochs else 0
    return (
        f"{format_count(len(run.epochs), 'epoch')} in {format_duration(int(seconds))}, until "
        f"{STOPPED[run.stopped]}"
    )


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
        HeadlineFigure(
            "GPUs in use", f"{100 * card.gpu_utilization:.1f} %", f"{card.gpu_hours:,.0f} GPU-hours held"
        ),
        HeadlineFigure("Fairness", f"{card.jain_mean:.2f}", f"{card.jain_min:.2f} at least"),
        HeadlineFigure("Preemptions", f"{card.preemptions:,}", f"{card.lost_gpu_hours:,.1f} GPU-hours lost"),
        HeadlineFigure(
            "Planning", f"{card.planning_seconds:,.1f} s", f"{card.planning_seconds_max:,.2f} s at most"
        ),
    ]


def _spread_pictures(simulation: Simulation) -> list[Picture]:
    pictures = []
    for name, title in _SPREADS:
        found = [(run.name, getattr(run.scores, name)) for run in simulation.runs[:_MOST_LINES]]
        spreads = [WaitDistribution(run, spread) for run, spread in found if spread is not None]
        caption = "From the median to the slowest hundredth; the dot is p95, the diamond the mean."
        if any(spread.found.p99.at_least for spread in spreads):
            caption += " An arrow: at least so long."
        pictures.append(Picture.of(title, wait_distribution_svg(spreads, name, label=title), caption))
    return pictures


def _time_pictures(simulation: Simulation) -> list[Picture]:
    pictures = []
    for field, title, unit, caption in _OVER_TIME:
        lines = [_line(run, field, simulation) for run in simulation.runs[:_MOST_LINES]]
        if any(any(line.values) for line in lines):
            key = field.replace("_", "-")
            svg = over_time_svg(lines, key, label=title, unit=unit)
            pictures.append(Picture.of(title, svg, caption))
    return pictures


def _line(run: SimulatedRun, field: str, simulation: Simulation) -> Line:
    hours = [(epoch.at - simulation.began).total_seconds() / _SECONDS_PER_HOUR for epoch in run.epochs]
    return Line(run.name, hours, [getattr(epoch, field) for epoch in run.epochs])


def _score_table(simulation: Simulation) -> Table:
    runs = simulation.runs
    rows = tuple((indented(label), *cells) for label, cells in score_lines(runs))
    return Table("All scores", (Head("Score", number=False), *(Head(run.name) for run in runs)), rows)


def _epoch_table(run: SimulatedRun) -> Table:
    """One line per epoch in which something happened."""
    heads = ("Epoch", "At", "Submitted", "Finished", "Started", "Stopped", "Running", "Waiting", "Allocated")
    rows = tuple(_epoch_row(epoch) for epoch in run.epochs if _eventful(epoch))
    caption = f"{format_count(len(rows), 'epoch')} in which something happened, of {len(run.epochs):,}"
    return Table(caption, tuple(map(Head, heads)), rows)


def _eventful(epoch: EpochFigures) -> bool:
    names = ("submitted", "finished", "killed", "interrupted", "started", "preempted", "migrated", "resized")
    return any(getattr(epoch, name) for name in names)


def _epoch_row(epoch: EpochFigures) -> tuple[str, ...]:
    stopped = epoch.preempted + epoch.interrupted + epoch.killed
    counts = (epoch.submitted, epoch.finished, epoch.started, stopped, epoch.running, epoch.waiting)
    allocated = f"{100 * epoch.gpu_allocation_ratio:.1f} %"
    return (f"{epoch.number}", f"{epoch.at:%d %b %H:%M}", *(f"{count:,}" for count in counts), allocated)
