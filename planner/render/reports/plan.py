"""
The plan as one HTML page for review: no script, no network, light and dark mode, printable.

The page shows what `plan_text` shows, and draws the changes: the cluster before and after, GPU models,
queues and their limits, and the gap over time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import print_timestamp
from gpuplan.models.validation.input_warnings import oversized_jobs
from gpuplan.planner.analysis.projected_schedule import JobInterval, ProjectedSchedule
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.render.charts import ChangedBar, changed_bars_svg, gap_svg
from gpuplan.planner.render.plan.action_groups import (
    Moving,
    SortedActions,
    group_job_actions,
    group_node_actions,
    group_waits,
    sort_actions,
)
from gpuplan.planner.render.plan.actions import (
    MARKS,
    job_kind_row,
    job_table,
    node_kind_row,
    node_table,
    wait_table,
)
from gpuplan.planner.render.plan.diff import allocated_text, model_table, queue_table, with_depth
from gpuplan.planner.render.plan.forecast import deadline_table, horizon_parts, projections, promise_table
from gpuplan.planner.render.plan.header import (
    change_counts,
    cost_text,
    format_gap_of,
    format_signed,
    has_free_gpus,
    left_out_text,
    percent,
    search_remarks,
    short_id,
    shown_terms,
    waiting_text,
)
from gpuplan.planner.render.plan.measured import (
    busy_text,
    gpu_findings,
    health_table,
    measured_use,
    memory_text,
    queue_use_table,
    scope_text,
)
from gpuplan.planner.render.plan.warnings import findings_table, unmet_commitments
from gpuplan.planner.render.reports.cluster_map import cluster_blocks
from gpuplan.planner.render.reports.nodes import node_pictures
from gpuplan.planner.render.reports.page import (
    INDENT,
    Bars,
    Block,
    Charts,
    Drawing,
    Figures,
    Fold,
    HeadlineFigure,
    Lane,
    Legend,
    Page,
    PageSection,
    Span,
    Text,
    Timeline,
    look_of,
)
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import format_count, format_gpus, format_milli, format_time, hostlist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.plan.actions import NodeAction, Wait
    from gpuplan.models.plan.diff import Diff
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone


_MOST_LINES: Final = 40
"""Lines of a section; with more, actions are grouped into kinds, and if needed into coarser kinds."""
_MOST_REASONS: Final = 8
"""Reasons shown per reason code; the others are folded."""
_MOST_BARS: Final = 24
"""Bars per chart; the table below it shows all rows."""


def plan_report(plan: Plan, milestones: Sequence[Milestone] = ()) -> str:
    """The page; with the milestones of the search it also draws the gap over time."""
    actions = sort_actions(plan.actions)
    jobs = plan.metrics.jobs
    waiting = waiting_text(jobs.waiting, jobs.preempted)
    unchanged = f"{len(actions.keeps):,} unchanged"
    changes = [(*_sign(kind), words) for kind, words in change_counts(actions)] if plan.has_changes else []
    told = [*(changes or [("", "", "no changes")]), (".", "", waiting), ("=", "", unchanged)]
    name = f"Plan {short_id(plan.plan_id)}"
    cluster = plan.snapshot.cluster
    remarks = [*search_remarks(plan), *unmet_commitments(plan)]
    return Page(
        title=f"{name}: {', '.join(words for *_, words in told)}",
        heading=name,
        subject=f"for {cluster.name}, {format_count(len(cluster.nodes), 'node')}",
        told=told,
        identity=[
            f"epoch {print_timestamp(plan.epoch)}",
            f"plan {plan.plan_id}",
            f"snapshot {short_id(plan.base.snapshot)}",
            f"policy {short_id(plan.base.policy)}",
        ],
        blocks=[Figures(_summary(plan)), *(Text(remark, "care") for remark in remarks)],
        sections=list(_sections(plan, actions, waiting, milestones)),
    ).html()


def _sections(
    plan: Plan, actions: SortedActions, waiting: str, milestones: Sequence[Milestone]
) -> Iterator[PageSection]:
    """The sections that are not empty."""
    cluster = cluster_blocks(node_pictures(plan))
    yield PageSection("cluster", "Cluster", "The cluster, before and after", cluster)
    if plan.findings:
        found = findings_table(plan.findings)
        yield PageSection("findings", "Findings", format_count(len(plan.findings), "finding"), [found])
    if measured := measured_blocks(plan):
        yield PageSection("measured", "Measured", "What GPUs were seen to do", measured)
    title = f"{format_count(len(actions.starts), 'job')} to start"
    starts = _job_blocks(actions.starts, plan) or [Text("Nothing starts.")]
    yield PageSection("starts", "Starts", title, starts)
    if changed := _job_blocks(actions.disturbances, plan):
        title = f"{format_count(len(actions.disturbances), 'running job')} to change"
        yield PageSection("disturbances", "Running jobs", title, changed)
    if actions.nodes:
        title = f"{format_count(len(actions.nodes), 'change')} of nodes"
        yield PageSection("node-actions", "Nodes", title, _node_blocks(actions.nodes))
    yield PageSection("waits", "Waiting", f"Jobs: {waiting}", list(_wait_blocks(plan, actions)))
    if later := projections(plan):
        title = format_count(len(later), "later start")
        yield PageSection("later", "Later starts", title, list(_later_blocks(plan, later, actions)))
    if (promises := _with_queues(promise_table(plan), plan)).rows:
        title = f"{format_count(len(promises.rows), 'promise')} changed"
        yield PageSection("promises", "Promises", title, [promises])
    if (deadlines := _with_queues(deadline_table(plan), plan)).rows:
        title = f"{format_count(len(deadlines.rows), 'deadline')} at risk"
        yield PageSection("deadlines", "Deadlines", title, [deadlines])
    usage = _usage_blocks(plan, milestones)
    yield PageSection("usage", "Usage", "Usage, before and after", usage)
    yield PageSection("objective", "Objective", "Objective", _objective_blocks(plan))
    names = hostlist(keep.job for keep in actions.keeps)
    kept = [Fold("Their names", [Text(names, "names")])] if names else []
    yield PageSection("unchanged", "", f"{format_count(len(actions.keeps), 'job')} unchanged", kept)


def _sign(type_: str) -> tuple[str, str]:
    sign, tone = MARKS[type_]
    return sign, look_of(tone)


def _queue_of(plan: Plan) -> Callable[[str], str]:
    jobs = plan.snapshot.job_by_name
    return lambda name: jobs[name].queue


def _with_queues(table: Table, plan: Plan) -> Table:
    return replace(table.beside("Queue", _queue_of(plan)), title="")


def _job_blocks(actions: Sequence[Moving], plan: Plan) -> list[Block]:
    def table(some: Sequence[Moving]) -> Table:
        return _with_queues(job_table(some, plan.epoch), plan)

    if len(actions) <= _MOST_LINES:
        return [table(actions)] if actions else []
    kinds = group_job_actions(actions, plan.snapshot, most=_MOST_LINES)
    return [Fold(job_kind_row(kind), [table(kind.actions)]) for kind in kinds]


def _node_blocks(actions: Sequence[NodeAction]) -> list[Block]:
    if len(actions) <= _MOST_LINES:
        return [node_table(actions)]
    return [Fold(node_kind_row(kind), [node_table(kind.actions)]) for kind in group_node_actions(actions)]


def _wait_blocks(plan: Plan, actions: SortedActions) -> Iterator[Block]:
    waits = actions.waits
    if 0 < len(waits) <= _MOST_LINES:
        codes = {wait.job: wait.reason.code.value for wait in waits}
        yield _with_queues(wait_table(waits, plan), plan).beside("Reason", codes.__getitem__)
    elif not waits:
        stopped = plan.metrics.jobs.preempted
        yield Text("No other job waits." if stopped else "Nothing waits.")
    for kind in group_waits(waits) if len(waits) > _MOST_LINES else ():
        yield Text(kind.code.value, level=3, remark=format_count(kind.waits, "job"))
        yield from (_reason(*each) for each in kind.by_text[:_MOST_REASONS])
        if rest := kind.by_text[_MOST_REASONS:]:
            told = f"{format_count(len(rest), 'more reason')} of this kind"
            yield Fold(told, [_reason(*each) for each in rest])


def _reason(text: str, waits: Sequence[Wait]) -> Fold:
    names = ", ".join(wait.job for wait in waits)
    return Fold(f"{len(waits):,} × {text}", [Text(names, "names")])


def _later_blocks(plan: Plan, later: dict[str, str], actions: SortedActions) -> Iterator[Block]:
    yield Text(", ".join(horizon_parts(plan)[1:]), "quiet")
    if len(actions.waits) > _MOST_LINES:
        queue_of = _queue_of(plan)
        rows = [TableRow((job, queue_of(job)), text) for job, text in later.items()]
        table = Table(rows, ("Job", "Queue"), note="Start")
        yield Fold("What each of them waits for", [table], opened=len(later) <= _MOST_LINES)
    kinds = {"running": "runs", "started": "starts now", "promised": "promised", "foreseen": "foreseen"}
    yield Legend(list(kinds.items()), "span")
    timeline, more = timeline_chart(plan)
    yield timeline
    if more:
        yield Text(f"{format_count(more, 'more node')} with later starts", "quiet")


def _summary(plan: Plan) -> list[HeadlineFigure]:
    solution, metrics = plan.solution, plan.metrics
    bound = "no bound proven" if solution.bound is None else f"bound {solution.bound:,}"
    before = percent(metrics.gpu_allocation_ratio_before)
    whole = percent(1 - metrics.fragmentation_ratio) if has_free_gpus(plan) else "none free"
    figures = [
        HeadlineFigure("Objective", f"{solution.objective:,}", f"greedy alone {solution.greedy_objective:,}"),
        HeadlineFigure("Gap", format_gap_of(solution), bound),
        HeadlineFigure("Solver", solution.solver, f"{solution.status.lower()}, in {solution.seconds:.1f} s"),
        HeadlineFigure("GPUs allocated", percent(metrics.gpu_allocation_ratio), f"{before} before"),
        HeadlineFigure("In whole nodes", whole, "of the free GPUs, in blocks of 8 on a node"),
        *measured_figure(plan),
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
    above = f"{solution.bound:,}, {format_gap_of(solution)} above"
    return f"{found}; proven: no plan scores more than {above}{left_out_text(solution)}"


def _objective_blocks(plan: Plan) -> list[Block]:
    """The proof, the terms on one scale, and the seconds of each phase."""
    values = shown_terms(plan.solution)
    scale = max((abs(value) for _, value in values), default=0) or 1
    bars = [
        (name, format_signed(value), round(100 * abs(value) / scale, 1), value < 0) for name, value in values
    ]
    seconds = ", ".join(f"{name} {seconds:.2f}" for name, seconds in plan.solution.phases.items())
    return [
        Text(f"{_proof(plan)}.", "caption"),
        Bars(("Term", "Points", "share of the largest"), bars),
        *([Text(f"Seconds: {seconds}.", "quiet")] if seconds else []),
    ]


def _usage_blocks(plan: Plan, milestones: Sequence[Milestone]) -> list[Block]:
    change = diff(plan)
    quotas = {
        (queue.name, resource): quota
        for queue in plan.snapshot.queues
        for resource in queue.limited
        if (quota := queue.limits_for(resource))
    }
    title = "Queues, those below others indented; a queue's use counts all below it"
    return [
        Charts([_model_chart(change), _queue_chart(change, plan), _gap_chart(plan, milestones)]),
        model_table(change),
        replace(queue_table(change, quotas or None), title=title),
    ]


def _model_chart(change: Diff) -> Drawing:
    """The allocated part of each GPU model."""
    models = sorted(change.gpu_models, key=lambda model: -model.usable_after_milli)
    bars = [
        ChangedBar(
            label=model.gpu_model,
            before=_ratio(model.used_before_milli, model.usable_before_milli),
            after=_ratio(model.used_after_milli, model.usable_after_milli),
            words=allocated_text(model),
            whole=1.0,
        )
        for model in models
        if model.usable_before_milli or model.usable_after_milli
    ]
    svg = changed_bars_svg(bars[:_MOST_BARS], "models", label="Allocated part of each GPU model")
    return Drawing.of(svg, "Allocated, by GPU model", "Part of the usable GPUs of each model.")


def _ratio(used: int, usable: int) -> float:
    return used / usable if usable else 0.0


def _queue_chart(change: Diff, plan: Plan) -> Drawing:
    """The use of each queue, with its limit and its guarantee."""
    queues = [
        (queue, depth)
        for queue, depth in with_depth(change.queues)
        if queue.resource == "gpus" and not queue.gpu_model
    ]
    most = sorted(queues, key=lambda each: -max(each[0].used_before_milli, each[0].used_after_milli))
    shown = {queue.queue for queue, _ in most[:_MOST_BARS]}
    guarantees = {queue.name: queue.quota.guarantee for queue in plan.snapshot.queues if queue.quota}
    bars = []
    for queue, depth in queues:
        if queue.queue in shown:
            before, after, limit = queue.used_before_milli, queue.used_after_milli, queue.limit_milli
            use = " → ".join(dict.fromkeys((format_milli(before), format_milli(after))))
            bars.append(
                ChangedBar(
                    label=INDENT * depth + queue.queue,
                    before=before,
                    after=after,
                    words=use if limit is None else f"{use} of {format_milli(limit)}",
                    limit=limit,
                    owed=guarantees.get(queue.queue),
                )
            )
    svg = changed_bars_svg(bars, "queues", label="GPUs used by each queue, and its limit")
    caption = "GPUs in use; the line across is the limit, the triangle the guarantee."
    if len(queues) > len(bars):
        caption += f" The {len(bars)} that use most, of {len(queues):,}."
    return Drawing.of(svg, "Used, by queue", caption)


def _gap_chart(plan: Plan, milestones: Sequence[Milestone]) -> Drawing:
    """What was proven when."""
    stages = format_count(len({milestone.stage for milestone in milestones}), "stage")
    most = "" if plan.solution.bound is None else f" of at most {plan.solution.bound:,}"
    caption = f"What was proven when, in {stages}; at the end {plan.solution.objective:,}{most} points."
    return Drawing.of(gap_svg(milestones, plan.solution), "Gap over time", caption)


# Timeline of the horizon: for each node with later starts, which jobs it runs from when to when.


_MOST_NODES: Final = 40


def timeline_chart(plan: Plan) -> tuple[Timeline, int]:
    """Lanes of the nodes with later starts, by name, at most 40 nodes; and how many nodes are left out."""
    future = ProjectedSchedule(plan.snapshot, plan.policy, plan.target)
    names = sorted({replica.node for each in plan.planned for replica in each.replicas})
    lanes = [lane for name in names[:_MOST_NODES] for lane in _lanes(name, future)]
    ticks = tuple(_ticks(future)) if lanes else ()
    return Timeline(tuple(lanes), ticks), max(0, len(names) - _MOST_NODES)


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


def _ticks(future: ProjectedSchedule) -> Iterator[tuple[float, str]]:
    """Starts of slots, at most twelve of them."""
    edges, now = future.slots.edges, future.snapshot.taken_at
    step = -(-future.slots.count // 12)
    for edge in edges[1:-1:step]:
        yield _percent(edge, future.slots.end), f"{now + timedelta(seconds=edge):%H:%M}"


def _percent(seconds: int, whole: int) -> float:
    return round(100 * seconds / whole, 2)


# What was measured of GPUs, as a part of the page of a plan.


def measured_blocks(plan: Plan) -> list[Block]:
    """Use by queue, what the rules of health find, and jobs that could do with less; nothing unmeasured."""
    if measured_use(plan.snapshot) is None:
        return []
    findings = gpu_findings(plan)
    told = health_table(findings) if findings else Text("The rules of health find nothing.", "quiet")
    small = [TableRow((text[0].upper() + text[1:],)) for text in oversized_jobs(plan.snapshot)]
    sized = [Table(small, ("Jobs that could do with less",))] if small else []
    queues = queue_use_table(plan)
    return [told, *([queues] if queues.rows else []), *sized]


def measured_figure(plan: Plan) -> list[HeadlineFigure]:
    """The use of all measured GPUs; nothing unmeasured."""
    use = measured_use(plan.snapshot)
    if use is None:
        return []
    memory = f"{memory_text(use)} of memory in use, " if use.memory is not None else ""
    return [HeadlineFigure("Busy, as measured", busy_text(use), f"{memory}{scope_text(use)}")]
