"""A simulation as text: what was replayed, the scores side by side, and notes on reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.planner.render.plan.header import percent
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_duration, format_money, join_first_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.planner.simulate.outcome import Distribution, Scorecard, ScoreValue, SimulatedRun, Simulation

    Shown: TypeAlias = Callable[[Scorecard], str]

# Columns of the longest label, and of a run.
_LABEL_WIDTH: Final = 24
_RUN_WIDTH: Final = 12
_STOPPED: Final = {
    "finished": "all is over",
    "time": "the time was over",
    "stuck": "nothing would happen any more",
}


def simulation_text(simulation: Simulation, style: Style) -> str:
    """The whole view, lines ending with newlines."""
    lines = [*_head(simulation, style), ""]
    beside = max(1, (style.width - _LABEL_WIDTH - 2) // _RUN_WIDTH)
    if len(simulation.runs) > beside:
        lines += [*_overview(simulation.runs, style), ""]
    for first in range(0, len(simulation.runs), beside):
        lines += [*score_table(simulation.runs[first : first + beside]).lines(style), ""]
    for note in simulation_notes(simulation):
        lines += style.wrap(note, 0, hanging=2)
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(simulation: Simulation, style: Style) -> Iterator[str]:
    jobs = format_count(simulation.runs[0].scores.jobs, "job")
    place = f"{format_count(simulation.nodes, 'node')} with {format_count(simulation.gpus, 'GPU')}"
    yield style.paint(style.clean(f"Simulation of {jobs} on {place}"), Tone.STRONG)
    about = [
        f"source {simulation.source}",
        f"arrivals {simulation.arrivals or 'none but its own jobs'}",
        epoch_interval_text(simulation),
        f"seed {simulation.seed}",
    ]
    yield from style.flow(about)
    for run in simulation.runs:
        yield style.clean(f"{run.name}: {ending_text(run, simulation)}")


def ending_text(run: SimulatedRun, simulation: Simulation) -> str:
    """`288 epochs in 1d, until all is over`."""
    seconds = (run.epochs[-1].at - simulation.began).total_seconds() if run.epochs else 0
    epochs = format_count(len(run.epochs), "epoch")
    return f"{epochs} in {format_duration(int(seconds))}, until {_STOPPED[run.stopped]}"


def epoch_interval_text(simulation: Simulation) -> str:
    """When epochs run, in words."""
    every = format_duration(simulation.every)
    return (
        f"an epoch at each event, at least every {every}"
        if simulation.at_events
        else f"an epoch every {every}"
    )


def _overview(runs: Sequence[SimulatedRun], style: Style) -> list[str]:
    """One line per run, used where the runs do not fit side by side."""
    rows = [TableRow((run.name, *(shown(run.scores) for _, shown in _OVERVIEW))) for run in runs]
    heads = ("", *(label for label, _ in _OVERVIEW))
    return Table(rows, heads, right=range(1, len(heads))).lines(style)


def score_table(runs: Sequence[SimulatedRun]) -> Table:
    """Each score with at least one nonempty cell: its label, and one cell per run."""
    found = ((label, *(shown(run.scores) for run in runs)) for label, shown in _LINES)
    rows = [TableRow(cells) for cells in found if any(cells[1:])]
    return Table(rows, ("", *(run.name for run in runs)), right=range(1, len(runs) + 1))


def simulation_notes(simulation: Simulation) -> Iterator[str]:
    """Notes on reading the scores."""
    cards = [run.scores for run in simulation.runs]
    if any(card.running or card.waiting for card in cards):
        yield (
            "≥ is a lower bound: jobs that were not over at the end count with what they had reached, and "
            "are not left out."
        )
    if simulation.added_queues:
        queues = format_count(len(simulation.added_queues), "queue")
        yield (
            f"SOURCE lacks {queues} of arriving jobs ({join_first_names(simulation.added_queues)}): "
            f"without a quota."
        )


def _count(name: str) -> Shown:
    return lambda card: f"{getattr(card, name):,}"


def _if_any(name: str) -> Shown:
    """A count; empty if 0, so that a line of zeros only is left out."""
    return lambda card: f"{count:,}" if (count := getattr(card, name)) else ""


def _time(name: str, part: str) -> Shown:
    return _figure(name, part, _seconds)


def _ratio(name: str, part: str) -> Shown:
    return _figure(name, part, lambda value: f"{value:,.2f}")


def _figure(name: str, part: str, shown: Callable[[float], str]) -> Shown:
    def cell(card: Scorecard) -> str:
        found: Distribution | None = getattr(card, name)
        return "" if found is None else _bound(getattr(found, part), shown)

    return cell


def _bound(figure: ScoreValue, shown: Callable[[float], str]) -> str:
    return f"≥ {shown(figure.value)}" if figure.at_least else shown(figure.value)


def _optional(figure: ScoreValue | None, shown: Callable[[float], str]) -> str:
    return "" if figure is None else _bound(figure, shown)


def _seconds(value: float) -> str:
    return format_duration(round(value))


_LINES: Final[tuple[tuple[str, Shown], ...]] = (
    ("jobs finished", _count("finished")),
    ("  an hour", lambda card: f"{card.finished_per_hour:,.1f}"),
    ("  still running", _if_any("running")),
    ("  still waiting", _if_any("waiting")),
    ("  killed", _if_any("killed")),
    ("wait, mean", _time("wait", "mean")),
    ("  p50", _time("wait", "p50")),
    ("  p95", _time("wait", "p95")),
    ("  p99", _time("wait", "p99")),
    ("  by worth, mean", lambda card: _optional(card.worth_wait, _seconds)),
    ("completion, mean", _time("completion", "mean")),
    ("  p50", _time("completion", "p50")),
    ("  p95", _time("completion", "p95")),
    ("  p99", _time("completion", "p99")),
    ("slowdown, mean", _ratio("slowdown", "mean")),
    ("  p95", _ratio("slowdown", "p95")),
    ("makespan", lambda card: _optional(card.makespan, _seconds)),
    (
        "finish-time fairness",
        lambda card: _optional(card.finish_time_fairness_max, lambda value: f"{value:,.2f}"),
    ),
    ("  unfair jobs", lambda card: _optional(card.unfair_share, percent)),
    ("GPUs in use", lambda card: percent(card.gpu_utilization)),
    ("GPU-hours held", lambda card: f"{card.gpu_hours:,.1f}"),
    ("  of lost work", lambda card: f"{card.lost_gpu_hours:,.1f}" if card.lost_gpu_hours else ""),
    ("  of coming back", lambda card: f"{card.idle_gpu_hours:,.1f}" if card.idle_gpu_hours else ""),
    ("waiting jobs, mean", lambda card: f"{card.queue_mean:,.1f}"),
    ("  most", _count("queue_max")),
    ("Jain's index, mean", lambda card: f"{card.jain_mean:.3f}"),
    ("  least", lambda card: f"{card.jain_min:.3f}"),
    ("restarts", _count("restarts")),
    ("  preemptions", _count("preemptions")),
    ("  migrations", _if_any("migrations")),
    ("  resizes", _if_any("resizes")),
    ("  stopped by failures", _if_any("interruptions")),
    (
        "deadlines missed",
        lambda card: f"{card.deadline_misses:,} of {card.deadline_jobs:,}" if card.deadline_jobs else "",
    ),
    ("cost", lambda card: format_money(card.cost) if card.cost else ""),
    ("planning, s", lambda card: f"{card.planning_seconds:,.1f}"),
    ("  an epoch, s", lambda card: f"{card.planning_seconds_mean:,.4f}"),
    ("  slowest epoch, s", lambda card: f"{card.planning_seconds_max:,.2f}"),
)
"""Labels, and the function that formats a run's cell; a line with only empty cells is left out."""

_OVERVIEW: Final[tuple[tuple[str, Shown], ...]] = (
    ("wait", _time("wait", "mean")),
    ("completion", _time("completion", "mean")),
    ("p95", _time("completion", "p95")),
    ("slowdown", _ratio("slowdown", "mean")),
    ("unfair", lambda card: _optional(card.unfair_share, percent)),
    ("restarts", _count("restarts")),
)
"""Heads and cells of the overview: means, except p95 of the completion time."""
