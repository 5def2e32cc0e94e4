"""A diff as tables: drift, jobs, nodes, MIG layouts, queues and GPU models."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.diff import Diff, GpuModelDiff, JobDiff, PromiseChange, QueueDiff
from gpuplan.models.plan.plan import NodeChange
from gpuplan.models.queue import ALL_MODELS, AnyQuota, Quota, resource_key
from gpuplan.models.units import MILLI, print_timestamp
from gpuplan.planner.render.plan.actions import MARKS
from gpuplan.planner.render.plan.header import percent, short_id, waiting_text
from gpuplan.planner.render.style import Style, Tone, paragraphs, typed_path
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import (
    format_mig_layout,
    format_milli,
    format_resize,
    format_time,
    format_under_label,
    hostlist,
    placement_size,
    quota_label,
    quota_thousandths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime


_MOST_LINES: Final = 20
"""Rows per table."""
_INDENT_PER_LEVEL: Final = "  "
_DEEPEST_INDENT: Final = 20
"""Queue levels: indenting deeper trees further would fill the width of the table."""


def diff_text(diff: Diff, style: Style, *, verbose: bool, path: str | None = None) -> str:
    """Before against after as tables; the parameters are those of `plan_text` in `text.py`."""
    # The source of the newer snapshot is not known here, and without it the command shows a different diff.
    file = typed_path(path) if diff.live is None else None
    more = f"gpuplan diff {file} --all" if file else "--all"
    return paragraphs(_sections(diff, style, verbose=verbose, more=more))


def _sections(diff: Diff, style: Style, *, verbose: bool, more: str) -> list[list[str]]:
    """Return the diff as sections, each a list of lines."""

    def lines(table: Table, most: int | None = None if verbose else _MOST_LINES) -> list[str]:
        shown = replace(table, heads=tuple(map(str.upper, table.heads)), right=())
        return shown.lines(style, most=most, more=more, uncut=most is None)

    stopped = sum(job.change == "preempt" for job in diff.jobs)
    waiting, unchanged = waiting_text(diff.waiting + stopped, stopped), f"{diff.unchanged:,} unchanged"
    if diff.empty:
        changes = [style.wrap(f"No changes: {waiting}, {unchanged}.", 0)]
    else:
        changes = [
            lines(_job_table(diff, f"{unchanged}, {waiting}")),
            lines(_node_table(diff)),
            lines(_layout_table(diff)),
        ]
    sections = [
        [style.paint(style.clean(f"Diff of plan {short_id(diff.plan_id)}"), Tone.STRONG)],
        _staleness(diff, style, verbose=verbose, more=more),
        lines(_drift_table(diff)),
        *changes,
        lines(_promise_table(diff)),
        lines(queue_table(diff)),
        lines(model_table(diff), most=None),
    ]
    return [section for section in sections if section]


def _staleness(diff: Diff, style: Style, *, verbose: bool, more: str) -> list[str]:
    """Whether a newer snapshot is as the plan expects it, and why apply would refuse the plan if it would."""
    if diff.live is None or (diff.drift and not diff.stale):
        return []
    if not diff.stale:
        return style.wrap(f"Snapshot {short_id(diff.live)} is as the plan expects it.", 0)
    lines = style.told(f"{_drift_title(diff)}; apply would refuse the plan:", Tone.STRONG)
    told = diff.stale if verbose or len(diff.stale) <= _MOST_LINES else diff.stale[: _MOST_LINES - 1]
    for text in told:
        lines += [style.clean(f"  {text}")] if verbose else style.wrap(text, 2, hanging=2)
    if rest := len(diff.stale) - len(told):
        lines += style.wrap(f"… {rest:,} more; each one: {more}", 2)
    return lines


def _drift_title(diff: Diff) -> str:
    return f"Drift: {len(diff.drift):,} changed since in snapshot {short_id(diff.live or '')}"


def _drift_table(diff: Diff) -> Table:
    rows = [
        TableRow(
            ("!" if item.touched else "", item.subject), item.change, Tone.STOP if item.touched else None
        )
        for item in diff.drift
    ]
    accepted = "all of the plan is done" if diff.carried_out else "apply would still accept the plan"
    title = "Changed since" if diff.stale else f"{_drift_title(diff)}; {accepted}"
    return Table(rows, ("", "SUBJECT"), title)


def _job_table(diff: Diff, others: str) -> Table:
    rows = [_job_row(job) for job in diff.jobs]
    return Table(rows, ("", "JOB", "SIZE", "NODES", "QUEUE"), f"Jobs: {len(rows):,} change, {others}")


def _job_row(job: JobDiff) -> TableRow:
    mark, tone = MARKS[job.change]
    before = hostlist(replica.node for replica in job.before.replicas) if job.before else ""
    after = hostlist(replica.node for replica in job.after.replicas) if job.after else ""
    if job.before is None or job.after is None:
        placement = job.after or job.before
        size = placement_size(placement) if placement else ""
        return TableRow((mark, job.job, size, after or before, job.queue), tone=tone)
    size = placement_size(job.after)
    if len(job.before.replicas) != len(job.after.replicas):
        size = format_resize(job.before, job.after)
    return TableRow((mark, job.job, size, _change(before, after), job.queue), tone=tone)


def _node_table(diff: Diff) -> Table:
    counts = Counter(node.change for node in diff.nodes)
    title = f"Nodes: {counts[NodeChange.KEPT]:,} change"
    for change in (NodeChange.ADDED, NodeChange.REMOVED):
        title += f", {counts[change]:,} {change}" if counts[change] else ""
    left = any(node.leaving for node in diff.nodes)
    marked = bool(counts[NodeChange.ADDED] or counts[NodeChange.REMOVED])
    shown = slice(0 if marked else 1, 6 if left else 5)
    rows = []
    for node in diff.nodes:
        mark, tone = _NODE_MARKS[node.change]
        before, after = format_milli(node.free_before_milli), format_milli(node.free_after_milli)
        free = {NodeChange.ADDED: after, NodeChange.REMOVED: before}.get(node.change, _change(before, after))
        cells: tuple[str, ...] = (
            mark,
            node.node,
            f"{node.gpus}",
            free,
            _names(node.arriving),
            _names(node.leaving),
        )
        rows.append(TableRow(cells[shown], tone=tone if marked else None))
    heads: tuple[str, ...] = ("", "NODE", "GPUS", "FREE GPUS", "ARRIVING", "LEAVING")
    return Table(rows, heads[shown], title)


_NODE_MARKS: Final = {
    NodeChange.KEPT: ("", None),
    NodeChange.ADDED: ("+", Tone.START),
    NodeChange.REMOVED: ("-", Tone.STOP),
}


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])}, … {len(names) - 2:,} more"


_PROMISE_TONES: Final = {
    PromiseChange.KEPT: None,
    PromiseChange.MADE: Tone.START,
    PromiseChange.EARLIER: Tone.START,
    PromiseChange.LATER: Tone.CARE,
    PromiseChange.WITHDRAWN: Tone.STOP,
    PromiseChange.STARTED: Tone.START,
}


def _promise_table(diff: Diff) -> Table:
    """Table of promised starts; with a newer snapshot, also its start times in column SINCE."""
    counts = Counter(promise.change for promise in diff.promises)
    told = [f"{counts[change]:,} {change}" for change in PromiseChange if counts[change]]
    with_live = diff.live is not None
    rows = []
    for promise in diff.promises:
        started = promise.change is PromiseChange.STARTED
        cells = (
            promise.change.value,
            promise.job,
            _instant(promise.before, diff.epoch),
            "now" if started else _instant(promise.after, diff.epoch),
            *([_instant(promise.live, diff.epoch)] if with_live else []),
            promise.queue,
        )
        rows.append(TableRow(cells, promise.why, _PROMISE_TONES[promise.change]))
    heads = ("", "JOB", "PROMISED", "BY THE PLAN", *(["SINCE"] if with_live else []), "QUEUE")
    since = f" (epoch {print_timestamp(diff.epoch)})" if diff.epoch else ""
    return Table(rows, heads, f"Promises{since}: {', '.join(told)}")


def _instant(moment: datetime | None, epoch: datetime | None) -> str:
    if moment is None:
        return "none"
    return print_timestamp(moment) if epoch is None else format_time(moment, epoch)


def _layout_table(diff: Diff) -> Table:
    rows = [
        TableRow(
            (each.node, f"{each.gpu}", f"{format_mig_layout(each.before)} → {format_mig_layout(each.after)}")
        )
        for each in diff.layouts
    ]
    return Table(rows, ("NODE", "GPU", "LAYOUT"), f"MIG layouts: {len(rows):,} change")


def queue_table(diff: Diff, quotas: Mapping[tuple[str, str], AnyQuota] | None = None) -> Table:
    """Use of all queues, in all and by resource with a quota; with the quotas by resource if given."""
    by_model = any(queue.gpu_model for queue in diff.queues)
    others = any(queue.resource != "gpus" for queue in diff.queues)
    rows = []
    for queue, depth in with_depth(diff.queues):
        resource = resource_key(queue.resource, queue.gpu_model)
        quota = (quotas or {}).get((queue.queue, resource))
        guarantee = quota.guarantee if isinstance(quota, Quota) else None
        amount = partial(format_under_label, resource=resource)
        used = _change(amount(queue.used_before_milli), amount(queue.used_after_milli))
        first = resource == ALL_MODELS
        nominal = None if quota is None else quota_thousandths(quota.nominal, resource)
        cells = (
            _INDENT_PER_LEVEL * depth + queue.queue,
            *((quota_label(resource),) if others else ()),
            *((queue.gpu_model or "all",) if by_model and not others else ()),
            used,
            "none" if queue.limit_milli is None else amount(queue.limit_milli),
            *(("" if nominal is None else amount(nominal), _amount(guarantee)) if quotas is not None else ()),
            _change(f"{queue.waiting_before:,}", f"{queue.waiting_after:,}") if first else "",
        )
        rows.append(TableRow(cells))
    heads = (
        "Queue",
        *(("Resource",) if others else ("GPU model",) if by_model else ()),
        "Used" if others else "GPUs used",
        "Limit",
        *(("Nominal quota", "Guarantee") if quotas is not None else ()),
        "Waiting",
    )
    return Table(rows, heads, "Queues", right=range(2 if by_model or others else 1, len(heads)))


def _amount(milli: int | None) -> str:
    return "" if milli is None else format_milli(milli)


def with_depth(queues: Sequence[QueueDiff]) -> Iterator[tuple[QueueDiff, int]]:
    """The queues, each with the number of levels above it; deeper trees are not indented further."""
    depth: dict[str, int] = {}
    for queue in queues:
        depth[queue.queue] = 0 if queue.parent is None else min(depth[queue.parent] + 1, _DEEPEST_INDENT)
        yield queue, depth[queue.queue]


def model_table(diff: Diff) -> Table:
    """Use of all GPU models with usable GPUs."""
    rows = [
        TableRow(
            (
                model.gpu_model,
                _change(f"{model.usable_before_milli // MILLI:,}", f"{model.usable_after_milli // MILLI:,}"),
                _change(format_milli(model.used_before_milli), format_milli(model.used_after_milli)),
                allocated_text(model),
            )
        )
        for model in diff.gpu_models
        if model.usable_before_milli or model.usable_after_milli
    ]
    return Table(rows, ("GPU model", "Usable", "GPUs used", "Allocated"), "GPU models", right=(1, 2, 3))


def allocated_text(model: GpuModelDiff) -> str:
    """`33.5 % → 77.4 %` of the usable GPUs of a model."""
    before = _part(model.used_before_milli, model.usable_before_milli)
    return _change(before, _part(model.used_after_milli, model.usable_after_milli))


def _part(used: int, usable: int) -> str:
    return percent(used / usable) if usable else "none"


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"
