"""Timeline of the horizon: for each node with later starts, which jobs it runs from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
from gpuplan.planner.text_format import format_count, format_gpus, format_time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.analysis.projected_schedule import JobInterval

_MOST_NODES: Final = 40


@dataclass(frozen=True, slots=True)
class Span:
    """A job on a node, in percent of the horizon."""

    job: str
    left: float
    width: float
    kind: str
    """CSS class: running, started, promised or foreseen."""
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """Consecutive jobs on a node; jobs that overlap in time are in different lanes."""

    node: str
    """The node name in the first lane of a node; empty in the others."""
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class TimelineChart:
    """The timeline of a plan; without lanes nothing is drawn."""

    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    """Position in percent, and the time of day."""
    more: str
    """What is not shown; empty if nothing is left out."""


def timeline_chart(plan: Plan) -> TimelineChart:
    """Lanes of the nodes with later starts, by name; at most 40 nodes."""
    future = ProjectedSchedule(plan.snapshot, plan.policy, plan.target)
    names = sorted({replica.node for each in plan.planned for replica in each.replicas})
    shown = names[:_MOST_NODES]
    lanes = [lane for name in shown for lane in _lanes(name, future)]
    rest = len(names) - len(shown)
    more = f"{format_count(rest, 'more node')} with later starts" if rest else ""
    return TimelineChart(tuple(lanes), tuple(_ticks(future)) if lanes else (), more)


def _lanes(name: str, future: ProjectedSchedule) -> list[Lane]:
    """The fewest lanes in which no two jobs overlap, filled in the order of starts."""
    lanes: list[list[JobInterval]] = []
    for stay in sorted(future.on_node[name], key=lambda stay: (stay.start, stay.end, stay.job.name)):
        # A job holds its place until the end of its last slot.
        free = next((lane for lane in lanes if lane[-1].until <= stay.slot), None)
        if free is None:
            lanes.append([stay])
        else:
            free.append(stay)
    return [
        Lane("" if number else name, tuple(_span(stay, name, future) for stay in lane))
        for number, lane in enumerate(lanes)
    ]


def _span(stay: JobInterval, name: str, future: ProjectedSchedule) -> Span:
    horizon, now = future.slots.end, future.snapshot.taken_at
    planned = future.planned.get(stay.job.name)
    kind = "running" if stay.job.running else "started"
    if planned is not None:
        kind = "promised" if planned.promised else "foreseen"
    milli = sum(replica.quota_milli for replica in stay.replicas if replica.node == name)
    size = format_gpus(milli) if milli else "no GPU"
    begins, ends = (format_time(now + timedelta(seconds=second), now) for second in (stay.start, stay.end))
    return Span(
        job=stay.job.name,
        left=_percent(stay.start, horizon),
        width=_percent(min(stay.end, horizon) - stay.start, horizon),
        kind=kind,
        title=f"{stay.job.name}: {size}, {begins} to {ends}, {kind}",
    )


def _ticks(future: ProjectedSchedule, most: int = 12) -> Iterable[tuple[float, str]]:
    """Starts of slots, at most `most` of them."""
    edges, now = future.slots.edges, future.snapshot.taken_at
    step = -(-future.slots.count // most)
    for edge in edges[1:-1:step]:
        yield _percent(edge, future.slots.end), f"{now + timedelta(seconds=edge):%H:%M}"


def _percent(seconds: int, whole: int) -> float:
    return round(100 * seconds / whole, 2)
