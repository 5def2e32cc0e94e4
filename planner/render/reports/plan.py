"""
The plan as one HTML page for review: no script, no network, light and dark mode, printable.

The page shows what `plan_text` shows, and draws the changes: the cluster before and after, GPU models,
queues and their limits, and the gap over time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.plan.actions import ACTIONS
from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.render.charts.gap import gap_svg
from gpuplan.planner.render.plan.action_groups import (
    SEVERITY,
    group_job_actions,
    group_node_actions,
    group_waits,
    sort_actions,
)
from gpuplan.planner.render.plan.forecast import (
    change_of_promise,
    deadlines_at_risk,
    horizon_parts,
    projections,
)
from gpuplan.planner.render.plan.header import (
    change_counts,
    cost_text,
    format_gap,
    has_free_gpus,
    left_out_text,
    percent,
    search_remarks,
    shown_terms,
    waiting_text,
)
from gpuplan.planner.render.plan.warnings import finding_text, unmet_commitments
from gpuplan.planner.render.reports.cluster_map import MOST_LARGE, group_by_zone
from gpuplan.planner.render.reports.nodes import node_pictures
from gpuplan.planner.render.reports.page import HeadlineFigure, Picture, render, terms_of
from gpuplan.planner.render.reports.usage import model_picture, model_table, queue_picture, queue_table
from gpuplan.planner.text_format import format_count, format_gpus, format_time, gang_size, hostlist

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.plan.actions import NodeAction
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.planner.analysis.projected_schedule import JobInterval
    from gpuplan.planner.render.plan.action_groups import (
        JobActionGroup,
        Moving,
        NodeActionGroup,
        SortedActions,
    )
    from gpuplan.planner.render.reports.cluster_map import Zone


_MOST_LINES: Final = 40
"""Lines of a section; with more, actions are grouped into kinds, and if needed into coarser kinds."""
_MOST_REASONS: Final = 8
"""Reasons shown per reason code; the others are folded."""


def plan_report(plan: Plan, milestones: Sequence[Milestone] = ()) -> str:
    """The page; with the milestones of the search it also draws the gap over time."""
    change, actions = diff(plan), sort_actions(plan.actions)
    starts, disturbances = _job_section(actions.starts, plan), _job_section(actions.disturbances, plan)
    node_actions = _node_section(actions.nodes)
    later, promises, deadlines = projections(plan), _changed_promises(plan), deadlines_at_risk(plan)
    pictures = (model_picture(change), queue_picture(change, plan.snapshot), _gap_picture(plan, milestones))
    few = len(actions.waits) <= _MOST_LINES
    waiting = waiting_text(plan.metrics.jobs.waiting, plan.metrics.jobs.preempted)
    sections = (
        ("cluster", "Cluster", True),
        ("findings", "Findings", plan.findings),
        ("starts", "Starts", True),
        ("disturbances", "Running jobs", disturbances.count),
        ("node-actions", "Nodes", node_actions.count),
        ("waits", "Waiting", True),
        ("later", "Later starts", later),
        ("promises", "Promises", promises),
        ("deadlines", "Deadlines", deadlines),
        ("usage", "Usage", True),
        ("objective", "Objective", True),
    )
    return render(
        "plan.html.j2",
        plan=plan,
        sections=[(key, words) for key, words, there in sections if there],
        title=_title(plan, actions, waiting),
        told=_told(plan, actions, waiting),
        summary=_summary(plan),
        cares=[*search_remarks(plan), *unmet_commitments(plan)],
        cluster=_cluster(plan),
        findings=[(each, finding_text(each)) for each in plan.findings],
        starts=starts,
        disturbances=disturbances,
        node_actions=node_actions,
        queue_of={job.name: job.queue for job in plan.snapshot.jobs},
        size_of={
            job.name: gang_size(job.request, job.gang.minimum, job.gang.maximum) for job in plan.snapshot.jobs
        },
        waits=sorted(actions.waits, key=lambda wait: (SEVERITY[wait.reason.code], wait.job)) if few else (),
        wait_kinds=() if few else group_waits(actions.waits),
        most_lines=_MOST_LINES,
        most_reasons=_MOST_REASONS,
        kept=hostlist(keep.job for keep in actions.keeps),
        counts={"keeps": len(actions.keeps), "waits": len(actions.waits)},
        waiting=waiting,
        charts=[picture for picture in pictures if picture.svg],
        models=model_table(change),
        queues=queue_table(change, plan.snapshot),
        terms=terms_of(shown_terms(plan.solution)),
        proof=_proof(plan),
        timeline=timeline_chart(plan),
        horizon=horizon_parts(plan)[1:],
        projections=later,
        promises=promises,
        deadlines=deadlines,
    )


@dataclass(frozen=True, slots=True)
class _Section:
    """Actions of one type: one per line, or grouped into kinds if there are many."""

    count: int
    few: tuple[Any, ...]
    kinds: tuple[JobActionGroup | NodeActionGroup, ...]


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The drawing of the cluster."""

    zones: Sequence[Zone]
    large: bool
    has_mig: bool
    has_unusable: bool


def _cluster(plan: Plan) -> _Cluster:
    pictures = node_pictures(plan)
    sides = [
        side for node in pictures for device in node.devices for side in (device.before, device.after) if side
    ]
    return _Cluster(
        zones=group_by_zone(pictures),
        large=len(pictures) <= MOST_LARGE,
        has_mig=any(side.mig for side in sides),
        has_unusable=not all(side.usable for side in sides),
    )


def _job_section(actions: Sequence[Moving], plan: Plan) -> _Section:
    if len(actions) <= _MOST_LINES:
        return _Section(len(actions), tuple(actions), ())
    return _Section(len(actions), (), tuple(group_job_actions(actions, plan.snapshot, most=_MOST_LINES)))


def _node_section(actions: Sequence[NodeAction]) -> _Section:
    if len(actions) <= _MOST_LINES:
        return _Section(len(actions), tuple(actions), ())
    return _Section(len(actions), (), tuple(group_node_actions(actions)))


def _title(plan: Plan, actions: SortedActions, waiting: str) -> str:
    """`3 to start, 0 to preempt, 4 waiting, 2 unchanged`."""
    changes = [text for _, text in change_counts(actions)] if plan.has_changes else ["no changes"]
    return ", ".join([*changes, waiting, f"{len(actions.keeps):,} unchanged"])


def _told(plan: Plan, actions: SortedActions, waiting: str) -> list[tuple[str, str, str]]:
    """Sign, CSS class and text of each change."""
    told = [("", "", "no changes")]
    if plan.has_changes:
        told = [
            (ACTIONS[kind].sign, ACTIONS[kind].impact.value, text) for kind, text in change_counts(actions)
        ]
    return [*told, (".", "", waiting), ("=", "", f"{len(actions.keeps):,} unchanged")]


def _summary(plan: Plan) -> list[HeadlineFigure]:
    solution, metrics = plan.solution, plan.metrics
    bound = "no bound proven" if solution.bound is None else f"bound {solution.bound:,}"
    before = percent(metrics.gpu_allocation_ratio_before)
    whole = percent(1 - metrics.fragmentation_ratio) if has_free_gpus(plan) else "none free"
    figures = [
        HeadlineFigure("Objective", f"{solution.objective:,}", f"greedy alone {solution.greedy_objective:,}"),
        HeadlineFigure("Gap", format_gap(solution.objective, solution.gap), bound),
        HeadlineFigure("Solver", solution.solver, f"{solution.status.lower()}, in {solution.seconds:.1f} s"),
        HeadlineFigure("GPUs allocated", percent(metrics.gpu_allocation_ratio), f"{before} before"),
        HeadlineFigure("In whole nodes", whole, "of the free GPUs, in blocks of 8 on a node"),
        HeadlineFigure("Fairness", f"{metrics.jain_index:.2f}", "Jain's index of the queues' met demand"),
    ]
    if metrics.hourly_cost or metrics.hourly_cost_before:
        figures.append(HeadlineFigure("Cost", cost_text(metrics), "per hour, all ready nodes"))
    return figures


def _proof(plan: Plan) -> str:
    """The quality of the plan, in one sentence."""
    solution = plan.solution
    found = f"{solution.objective:,} points by {solution.solver}, in {solution.seconds:.1f} s"
    if solution.bound is None or solution.gap is None:
        return f"{found}; no bound proven"
    if not solution.gap:
        return f"{found}; proven: no plan scores more{left_out_text(solution)}"
    above = f"{solution.bound:,}, {format_gap(solution.objective, solution.gap)} above"
    return f"{found}; proven: no plan scores more than {above}{left_out_text(solution)}"


def _changed_promises(plan: Plan) -> list[Any]:
    return [waiting for waiting in plan.waiting if change_of_promise(waiting)]


def _gap_picture(plan: Plan, milestones: Sequence[Milestone]) -> Picture:
    stages = len({milestone.stage for milestone in milestones})
    caption = (
        f"What was proven when, in {format_count(stages, 'stage')}; "
        f"at the end {plan.solution.objective:,} of at most {plan.solution.bound:,} points."
        if plan.solution.bound is not None
        else ""
    )
    return Picture.of("Gap over time", gap_svg(milestones, plan.solution), caption)


# Timeline of the horizon: for each node with later starts, which jobs it runs from when to when.


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
