"""
The actions of a plan as lines: starts, changes of running jobs, changes of nodes, and waiting jobs.

Unchanged jobs are counted, not shown. If the actions exceed one screen, actions of one kind share a line,
and a line names the command that shows each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.placement import MigSlice
from gpuplan.models.plan.actions import (
    ACTIONS,
    Grow,
    Impact,
    Keep,
    Migrate,
    NodeAction,
    PoolAction,
    Preempt,
    Repartition,
    ScaleUp,
    Shrink,
    Start,
    Wait,
)
from gpuplan.models.units import MILLI
from gpuplan.planner.render.plan.action_groups import (
    SEVERITY,
    JobActionGroup,
    Moving,
    NodeActionGroup,
    group_job_actions,
    group_node_actions,
    group_waits,
    placement_gpu_milli,
    reason_number,
)
from gpuplan.planner.render.plan.forecast import kill_note, later_lines, projections
from gpuplan.planner.render.plan.header import lost_text
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import (
    format_count,
    format_cpus,
    format_gib,
    format_gpus,
    format_mig_layout,
    format_milli,
    format_money,
    format_points,
    format_resize,
    gang_size,
    hostlist,
    node_size,
    placement_size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gpuplan.models.placement import GpuShare, Placement, Replica
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot

# One screen; the waiting jobs come below it, and get half of one.
_MOST_LINES: Final = 40
_MOST_KIND_LINES: Final = _MOST_LINES - 2
"""Two lines tell how many kinds are not shown."""
_MOST_WAIT_LINES: Final = 20
_MOST_TIMED_WAIT_LINES: Final = 40
"""The limit if the lines also tell when each job starts."""
_REASON_INDENT: Final = 16

_TONES: Final = {Impact.GAIN: Tone.START, Impact.CHANGE: Tone.CARE, Impact.LOSS: Tone.STOP}

MARKS: Final = {kind.value: (info.sign, _TONES[info.impact]) for kind, info in ACTIONS.items()}
"""Sign and colour per type of action."""

_UNCHANGED: Final = ("=", None)
"""The same of a running job that does not change."""


def job_lines(
    actions: Sequence[Moving], snapshot: Snapshot, style: Style, *, verbose: bool, more: str
) -> list[str]:
    """
    One entry per start, or per change of a running job: grow, shrink, migrate, preempt.

    If there are many, one entry per kind; `more` is the command that shows all.
    """
    if verbose or len(actions) <= _MOST_LINES:
        jobs = snapshot.job_by_name
        table = job_table(actions, snapshot.taken_at).beside("Queue", lambda job: f"queue {jobs[job].queue}")
        lines = table.lines(style, uncut=verbose, heads=False)
        if verbose or len(lines) <= _MOST_LINES:
            return lines
    most = _MOST_KIND_LINES if isinstance(actions[0], Start) else _MOST_KIND_LINES // 2
    kinds = group_job_actions(actions, snapshot, most=most)
    lines = Table([job_kind_row(kind) for kind in kinds[:most]]).lines(style)
    if rest := kinds[most:]:
        left = format_count(sum(len(kind.actions) for kind in rest), "job")
        what = "start" if all(kind.type == "start" for kind in rest) else "change"
        lines += style.wrap(f"… {format_count(len(rest), 'more kind')} of {what}, {left}", 2)
    return lines + style.wrap(f"Grouped by size and queue; each one: {more}", 2)


def node_lines(actions: Sequence[NodeAction], style: Style, *, verbose: bool, more: str) -> list[str]:
    """One entry per GPU or node that changes, or per kind of change if there are many."""
    if verbose or len(actions) <= _MOST_LINES:
        lines = node_table(actions).lines(style, uncut=verbose, heads=False)
        if verbose or len(lines) <= _MOST_LINES:
            return lines
    kinds = group_node_actions(actions)
    lines = Table([node_kind_row(kind) for kind in kinds[:_MOST_KIND_LINES]]).lines(style)
    if rest := kinds[_MOST_KIND_LINES:]:
        left = format_count(sum(len(kind.actions) for kind in rest), "action")
        lines += style.wrap(f"… {format_count(len(rest), 'more kind')} of change, {left}", 2)
    return lines + style.wrap(f"Grouped by pool and layout; each one: {more}", 2)


def wait_lines(waits: Sequence[Wait], plan: Plan, style: Style, *, verbose: bool, more: str) -> list[str]:
    """
    One entry per waiting job, with its later start; `more` is the command that shows all.

    If there are many, one entry per reason, and one per time of the later starts.
    """
    lines = _each_wait(waits, plan, style, verbose=verbose)
    if lines is None:
        lines = _grouped_waits(waits, style) + style.wrap(f"Grouped by reason; each one: {more}", 2)
        return [*lines, *_apart(later_lines(plan, style, more=more))]
    return lines


def _apart(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []


def _each_wait(waits: Sequence[Wait], plan: Plan, style: Style, *, verbose: bool) -> list[str] | None:
    """An entry per waiting job; None if that takes more than one screen."""
    most = _MOST_TIMED_WAIT_LINES if plan.planned else _MOST_WAIT_LINES
    if len(waits) > _MOST_WAIT_LINES and not verbose:
        return None
    jobs = plan.snapshot.job_by_name
    table = wait_table(waits, plan).beside("Queue", lambda job: f"queue {jobs[job].queue}")
    lines = table.lines(style, uncut=verbose, heads=False)
    return lines if verbose or len(lines) <= most else None


def job_table(actions: Sequence[Moving | Keep], epoch: datetime) -> Table:
    """A row per change of a job."""
    rows = [_row(each.type, (each.job, *_size_and_nodes(each)), _why(each, epoch)) for each in actions]
    return Table(rows, ("Action", "Job", "Size", "Nodes"), note="Why")


def places_table(replicas: Sequence[Replica]) -> Table:
    """A row per replica: what it holds on which node."""
    rows = [
        TableRow(
            (
                each.node,
                ", ".join(map(_held_text, each.gpus)) or "–",
                format_cpus(each.cpu_milli),
                format_gib(each.memory_mib),
            )
        )
        for each in replicas
    ]
    return Table(rows, ("NODE", "GPUS BY INDEX", "CPUS", "MEMORY"))


def _held_text(held: GpuShare | MigSlice) -> str:
    """`3` for a whole GPU, `3 (0.5)` for a share, `3 (1g.10gb)` for a MIG instance."""
    if isinstance(held, MigSlice):
        return f"{held.index} ({held.profile})"
    return str(held.index) if held.milli == MILLI else f"{held.index} ({format_milli(held.milli)})"


def node_table(actions: Sequence[NodeAction]) -> Table:
    """A row per change of a node or of the layout of a GPU."""
    rows = [_row(each.type, _node_words(each), each.reason.text) for each in actions]
    return Table(rows, ("Action", "Node", "What"), note="Why")


def wait_table(waits: Sequence[Wait], plan: Plan) -> Table:
    """A row per waiting job, with its later start; the most severe reasons first."""
    jobs, starts = plan.snapshot.job_by_name, projections(plan)
    rows = []
    for wait in sorted(waits, key=lambda wait: (SEVERITY[wait.reason.code], wait.job)):
        job, start = jobs[wait.job], starts.get(wait.job, "")
        size = gang_size(job.request, job.gang.minimum, job.gang.maximum)
        note = f"{start}; {wait.reason.text}" if start else wait.reason.text
        rows.append(TableRow((". wait", wait.job, size), note, Tone.CARE))
    return Table(rows, ("Action", "Job", "Size"), note="Why, and when")


def _why(action: Moving | Keep, epoch: datetime) -> str:
    """The reason of an action, and for a start the time at which the job is killed."""
    note = kill_note(action, epoch) if isinstance(action, Start) else ""
    return f"{action.reason.text}; {note}" if note else action.reason.text


def _size_and_nodes(action: Moving | Keep) -> tuple[str, str]:
    """The size and the nodes of the job, before and after where they differ."""
    match action:
        case Grow() | Shrink():
            return format_resize(action.before, action.after), _hosts(action.after)
        case Migrate():
            before, after = _hosts(action.before), _hosts(action.after)
            moves = f"{before} → {after}" if before != after else f"within {after}"
            return placement_size(action.after), moves
        case Preempt():
            return placement_size(action.before), _hosts(action.before)
        case _:
            return placement_size(action.after), _hosts(action.after)


def _node_words(action: NodeAction) -> tuple[str, str]:
    """The subject of a node action, and what the action does."""
    match action:
        case Repartition():
            layouts = f"{format_mig_layout(action.before)} → {format_mig_layout(action.after)}"
            return f"{action.node} gpu {action.gpu}", layouts
        case ScaleUp():
            return action.node, f"pool {action.pool}, {node_size(action.after)}"
        case _:
            return action.node, f"pool {action.pool}" if isinstance(action, PoolAction) else ""


def job_kind_row(kind: JobActionGroup) -> TableRow:
    """Changes of jobs of one kind."""
    jobs = format_count(len(kind.actions), "job")
    cells = (jobs, kind.size, format_count(kind.nodes, "node"), kind.queue)
    return _row(kind.type, cells, _kind_note(kind))


def _kind_note(kind: JobActionGroup) -> str:
    """The sum of the changes of one kind: GPUs, jobs that get room, lost work and points."""
    parts = [f"{format_gpus(kind.gpu_milli)} in all"] if kind.gpu_milli else []
    if kind.type in ("shrink", "grow"):
        before = sum(placement_gpu_milli(action.before) for action in kind.actions)
        given_up = before - kind.gpu_milli
        what = f"gives up {format_gpus(given_up)}" if given_up > 0 else f"gets {format_gpus(-given_up)}"
        parts = [what, f"{format_gpus(kind.gpu_milli)} left" if given_up > 0 else parts[0]] if before else []
    if kind.type == "start":
        return "; ".join(parts)
    followers = {
        name
        for action in kind.actions
        for name in str(action.reason.numbers.get("makes_room_for", "")).split(", ")
        if name
    }
    if followers:
        waiting = next(iter(followers)) if len(followers) == 1 else format_count(len(followers), "job")
        parts.append(f"makes room for {waiting}")
    if lost := lost_text(kind.actions):
        parts.append(f"loses {lost}")
    points = round(sum(reason_number(action, "points") for action in kind.actions))
    if points:
        disruption = round(sum(reason_number(action, "disruption_points") for action in kind.actions))
        parts.append(format_points(points, disruption, kind.type))
    return "; ".join(parts)


def node_kind_row(kind: NodeActionGroup) -> TableRow:
    """Changes of nodes of one kind."""
    noun = "GPU" if kind.type == "repartition" else "node"
    price = sum(action.after.price_per_hour for action in kind.actions if isinstance(action, ScaleUp))
    cells = (format_count(len(kind.actions), noun), kind.what)
    return _row(kind.type, cells, f"{format_money(price)}/h in all" if price else "")


def _row(type_: str, cells: tuple[str, ...], note: str) -> TableRow:
    sign, tone = MARKS.get(type_, _UNCHANGED)
    return TableRow((f"{sign} {type_}", *cells), note, tone)


def _hosts(placement: Placement) -> str:
    return hostlist(replica.node for replica in placement.replicas)


def _grouped_waits(waits: Sequence[Wait], style: Style) -> list[str]:
    """Each reason code with its most frequent texts."""
    kinds = group_waits(waits)
    # Each code needs one line for its name, and may need one for the remaining reasons.
    words = max(1, (_MOST_WAIT_LINES - 1) // len(kinds) - 2)
    lines: list[str] = []
    for kind in kinds:
        head = TableRow((". wait", format_count(kind.waits, "job"), kind.code.value), tone=Tone.CARE)
        lines += Table([head]).lines(style)
        told = [(f"{len(found):,}", text) for text, found in kind.by_text[:words]]
        if rest := kind.by_text[words:]:
            left = sum(len(found) for _, found in rest)
            told.append(
                (
                    "…",
                    f"{format_count(left, 'more job')} for {format_count(len(rest), 'reason')} of this kind",
                )
            )
        for times, text in told:
            lines += style.beside(f"{style.clean(times):>{_REASON_INDENT - 2}}  ", text)
    return lines
