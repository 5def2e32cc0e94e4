"""A diff as tables: drift, jobs, nodes, MIG layouts, queues and GPU models."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.diff import PromiseChange
from gpuplan.models.plan.plan import NodeChange
from gpuplan.models.units import MILLI, print_timestamp
from gpuplan.planner.render.plan.actions import MARKS
from gpuplan.planner.render.plan.header import percent, short_id, waiting_text
from gpuplan.planner.render.style import TableRow, Tone, table
from gpuplan.planner.text_format import (
    format_mig_layout,
    format_milli,
    format_resize,
    format_time,
    hostlist,
    placement_size,
)

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.plan.diff import Diff, JobDiff, LayoutDiff, QueueDiff
    from gpuplan.planner.render.style import Style

_MOST_LINES: Final = 20
"""Rows per table."""
_INDENT_PER_LEVEL: Final = "  "
DEEPEST_INDENT: Final = 20
"""Queue levels: indenting deeper trees further would fill the width of the table."""


def diff_lines(diff: Diff, style: Style, *, verbose: bool, more: str) -> list[list[str]]:
    """Return the diff as sections, each a list of lines."""
    title = style.paint(style.clean(f"Diff of plan {short_id(diff.plan_id)}"), Tone.STRONG)
    sections = [[title], *_drift(diff, style, verbose=verbose, more=more)]
    stopped = sum(job.change == "preempt" for job in diff.jobs)
    waiting = waiting_text(diff.waiting + stopped, stopped)
    if diff.empty:
        counts = f"{waiting}, {diff.unchanged:,} unchanged."
        sections.append(style.wrap(f"No changes: {counts}", 0))
    else:
        sections += [
            _table(
                f"Jobs: {len(diff.jobs):,} change, {diff.unchanged:,} unchanged, {waiting}",
                ("", "JOB", "SIZE", "NODES", "QUEUE"),
                [_job_row(job) for job in diff.jobs],
                style,
                verbose=verbose,
                more=more,
            ),
            _nodes(diff, style, verbose=verbose, more=more),
            _table(
                f"MIG layouts: {len(diff.layouts):,} change",
                ("NODE", "GPU", "LAYOUT"),
                [_layout_row(layout) for layout in diff.layouts],
                style,
                verbose=verbose,
                more=more,
            ),
        ]
    sections.append(_promises(diff, style, verbose=verbose, more=more))
    by_model = any(queue.gpu_model for queue in diff.queues)
    heads = ("QUEUE", *(("GPU MODEL",) if by_model else ()), "GPUS USED", "LIMIT", "WAITING")
    rows = _queue_rows(diff.queues, by_model=by_model)
    sections.append(_table("Queues", heads, rows, style, verbose=verbose, more=more))
    sections.append(_gpu_models(diff, style))
    return [section for section in sections if section]


def _table(
    title: str, heads: tuple[str, ...], rows: list[TableRow], style: Style, *, verbose: bool, more: str
) -> list[str]:
    if not rows:
        return []
    shown = rows if verbose or len(rows) <= _MOST_LINES else rows[: _MOST_LINES - 1]
    head, *lines = table([TableRow(heads), *shown], style, uncut=verbose)
    lines = [*_title(title, style), style.paint(head, Tone.QUIET), *lines]
    if rest := len(rows) - len(shown):
        lines += _rest(rest, style, more)
    return lines


def _title(text: str, style: Style) -> list[str]:
    return [style.paint(line, Tone.STRONG) for line in style.wrap(text, 0)]


def _rest(left: int, style: Style, more: str) -> list[str]:
    return style.wrap(f"… {left:,} more; each one: {more}", 2)


def _drift(diff: Diff, style: Style, *, verbose: bool, more: str) -> list[list[str]]:
    if diff.live is None:
        return []
    if not diff.drift and not diff.stale:
        return [style.wrap(f"Snapshot {short_id(diff.live)} is as the plan expects it.", 0)]
    title = f"Drift: {len(diff.drift):,} changed since in snapshot {short_id(diff.live)}"
    rows = [
        TableRow(
            ("!" if item.touched else "", item.subject),
            note=item.change,
            tone=Tone.STOP if item.touched else None,
        )
        for item in diff.drift
    ]
    heads = ("", "SUBJECT")
    if not diff.stale:
        title = f"{title}; apply would still accept the plan"
        return [_table(title, heads, rows, style, verbose=verbose, more=more)]
    refused = _title(f"{title}; apply would refuse the plan:", style)
    told = diff.stale if verbose or len(diff.stale) <= _MOST_LINES else diff.stale[: _MOST_LINES - 1]
    for text in told:
        refused += [style.clean(f"  {text}")] if verbose else style.wrap(text, 2, hanging=2)
    if rest := len(diff.stale) - len(told):
        refused += _rest(rest, style, more)
    return [refused, _table("Changed since", heads, rows, style, verbose=verbose, more=more)]


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


def _nodes(diff: Diff, style: Style, *, verbose: bool, more: str) -> list[str]:
    counts = Counter(node.change for node in diff.nodes)
    title = f"Nodes: {counts[NodeChange.KEPT]:,} change"
    for change in (NodeChange.ADDED, NodeChange.REMOVED):
        title += f", {counts[change]:,} {change}" if counts[change] else ""
    left = any(node.leaving for node in diff.nodes)
    marked = counts[NodeChange.ADDED] or counts[NodeChange.REMOVED]
    heads = [
        *([""] if marked else []),
        "NODE",
        "GPUS",
        "FREE GPUS",
        "ARRIVING",
        *(["LEAVING"] if left else []),
    ]
    rows = []
    for node in diff.nodes:
        mark, tone = _NODE_MARKS[node.change]
        free = _change(format_milli(node.free_before_milli), format_milli(node.free_after_milli))
        if node.change is not NodeChange.KEPT:
            free = format_milli(
                node.free_after_milli if node.change is NodeChange.ADDED else node.free_before_milli
            )
        cells = [*([mark] if marked else []), node.node, f"{node.gpus}", free, _names(node.arriving)]
        rows.append(
            TableRow((*cells, *([_names(node.leaving)] if left else [])), tone=tone if marked else None)
        )
    return _table(title, tuple(heads), rows, style, verbose=verbose, more=more)


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


def _promises(diff: Diff, style: Style, *, verbose: bool, more: str) -> list[str]:
    """Table of promised starts; with a newer snapshot, also its start times in column SINCE."""
    counts = Counter(promise.change for promise in diff.promises)
    told = [f"{counts[change]:,} {change}" for change in PromiseChange if counts[change]]
    with_live = diff.live is not None
    rows = [
        TableRow(
            (
                promise.change.value,
                promise.job,
                _instant(promise.before, diff.epoch),
                "now" if promise.change is PromiseChange.STARTED else _instant(promise.after, diff.epoch),
                *([_instant(promise.live, diff.epoch)] if with_live else []),
                promise.queue,
            ),
            note=promise.why,
            tone=_PROMISE_TONES[promise.change],
        )
        for promise in diff.promises
    ]
    heads = ("", "JOB", "PROMISED", "BY THE PLAN", *(["SINCE"] if with_live else []), "QUEUE")
    since = f" (epoch {print_timestamp(diff.epoch)})" if diff.epoch else ""
    return _table(f"Promises{since}: {', '.join(told)}", heads, rows, style, verbose=verbose, more=more)


def _instant(moment: datetime | None, epoch: datetime | None) -> str:
    if moment is None:
        return "none"
    return print_timestamp(moment) if epoch is None else format_time(moment, epoch)


def _layout_row(layout: LayoutDiff) -> TableRow:
    change = f"{format_mig_layout(layout.before)} → {format_mig_layout(layout.after)}"
    return TableRow((layout.node, f"{layout.gpu}", change))


def _queue_rows(queues: tuple[QueueDiff, ...], *, by_model: bool) -> list[TableRow]:
    parents = {queue.queue: queue.parent for queue in queues}
    depth: Counter[str] = Counter()
    rows = []
    for queue in queues:
        parent = parents[queue.queue]
        depth[queue.queue] = 0 if parent is None else min(depth[parent] + 1, DEEPEST_INDENT)
        rows.append(
            TableRow(
                (
                    _INDENT_PER_LEVEL * depth[queue.queue] + queue.queue,
                    *((queue.gpu_model or "all",) if by_model else ()),
                    _change(format_milli(queue.used_before_milli), format_milli(queue.used_after_milli)),
                    "none" if queue.limit_milli is None else format_milli(queue.limit_milli),
                    ""
                    if queue.gpu_model
                    else _change(f"{queue.waiting_before:,}", f"{queue.waiting_after:,}"),
                )
            )
        )
    return rows


def _gpu_models(diff: Diff, style: Style) -> list[str]:
    rows = [
        TableRow(
            (
                model.gpu_model,
                _change(
                    *(
                        f"{usable // MILLI:,}"
                        for usable in (model.usable_before_milli, model.usable_after_milli)
                    )
                ),
                _change(format_milli(model.used_before_milli), format_milli(model.used_after_milli)),
                _change(
                    _part(model.used_before_milli, model.usable_before_milli),
                    _part(model.used_after_milli, model.usable_after_milli),
                ),
            )
        )
        for model in diff.gpu_models
        if model.usable_before_milli or model.usable_after_milli
    ]
    heads = ("GPU MODEL", "USABLE", "GPUS USED", "ALLOCATED")
    return _table("GPU models", heads, rows, style, verbose=True, more="")


def _part(used: int, usable: int) -> str:
    return percent(used / usable) if usable else "none"


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"
