"""A diff as tables: drift, jobs, nodes, queues and GPU models."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from planner.models.units import MILLI
from planner.rendering.header import percent, short
from planner.rendering.hostlist import hostlist
from planner.rendering.style import Tone
from planner.rendering.table import Row, table
from planner.wording import decimal, placement_size

if TYPE_CHECKING:
    from planner.models.diff import Diff, JobDiff, NodeDiff, QueueDiff
    from planner.rendering.style import Style

_MOST_LINES: Final = 20
"""Of one table."""
_INDENT_PER_LEVEL: Final = "  "


def diff_lines(diff: Diff, style: Style, *, verbose: bool, more: str) -> list[list[str]]:
    """Sections of lines."""
    title = style.paint(style.clean(f"Diff of plan {short(diff.plan_id)}"), Tone.STRONG)
    sections = [[title], *_drift(diff, style, verbose=verbose, more=more)]
    if diff.empty:
        counts = f"{diff.waiting:,} waiting, {diff.unchanged:,} unchanged."
        sections.append(style.wrap(f"No changes: {counts}", 0))
    else:
        sections += [
            _table(
                f"Jobs: {len(diff.jobs):,} change, {diff.unchanged:,} unchanged, {diff.waiting:,} waiting",
                ("", "JOB", "SIZE", "NODES", "QUEUE"),
                [_job_row(job) for job in diff.jobs],
                style,
                verbose=verbose,
                more=more,
            ),
            _table(
                f"Nodes: {len(diff.nodes):,} change",
                ("NODE", "GPUS", "FREE GPUS", "ARRIVING"),
                [_node_row(node) for node in diff.nodes],
                style,
                verbose=verbose,
                more=more,
            ),
        ]
    by_model = any(queue.gpu_model for queue in diff.queues)
    heads = ("QUEUE", *(("GPU MODEL",) if by_model else ()), "GPUS USED", "LIMIT", "WAITING")
    rows = _queue_rows(diff.queues, by_model=by_model)
    sections.append(_table("Queues", heads, rows, style, verbose=verbose, more=more))
    sections.append(_gpu_models(diff, style))
    return [section for section in sections if section]


def _table(
    title: str, heads: tuple[str, ...], rows: list[Row], style: Style, *, verbose: bool, more: str
) -> list[str]:
    if not rows:
        return []
    shown = rows if verbose or len(rows) <= _MOST_LINES else rows[: _MOST_LINES - 1]
    head, *lines = table([Row(heads), *shown], style, uncut=verbose)
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
        return [style.wrap(f"Snapshot {short(diff.live)} is as the plan expects it.", 0)]
    title = f"Drift: {len(diff.drift):,} changed since in snapshot {short(diff.live)}"
    rows = [
        Row(
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


def _job_row(job: JobDiff) -> Row:
    placement = job.after or job.before
    size = placement_size(placement) if placement else ""
    before = hostlist(replica.node for replica in job.before.replicas) if job.before else ""
    after = hostlist(replica.node for replica in job.after.replicas) if job.after else ""
    if not job.before:
        return Row(("+", job.job, size, after, job.queue), tone=Tone.START)
    if not job.after:
        return Row(("-", job.job, size, before, job.queue), tone=Tone.STOP)
    return Row(("±", job.job, size, f"{before} → {after}", job.queue), tone=Tone.CARE)


def _node_row(node: NodeDiff) -> Row:
    free = _change(decimal(node.free_before_milli), decimal(node.free_after_milli))
    jobs = ", ".join(node.arriving)
    if len(node.arriving) > 3:
        jobs = f"{', '.join(node.arriving[:2])}, … {len(node.arriving) - 2:,} more"
    return Row((node.node, f"{node.gpus}", free, jobs))


def _queue_rows(queues: tuple[QueueDiff, ...], *, by_model: bool) -> list[Row]:
    parents = {queue.queue: queue.parent for queue in queues}
    depth: Counter[str] = Counter()
    rows = []
    for queue in queues:
        parent = parents[queue.queue]
        depth[queue.queue] = 0 if parent is None else depth[parent] + 1
        rows.append(
            Row(
                (
                    _INDENT_PER_LEVEL * depth[queue.queue] + queue.queue,
                    *((queue.gpu_model or "all",) if by_model else ()),
                    _change(decimal(queue.used_before_milli), decimal(queue.used_after_milli)),
                    "none" if queue.limit_milli is None else decimal(queue.limit_milli),
                    ""
                    if queue.gpu_model
                    else _change(f"{queue.waiting_before:,}", f"{queue.waiting_after:,}"),
                )
            )
        )
    return rows


def _gpu_models(diff: Diff, style: Style) -> list[str]:
    rows = [
        Row(
            (
                model.gpu_model,
                f"{model.usable_milli // MILLI:,}",
                _change(decimal(model.used_before_milli), decimal(model.used_after_milli)),
                _change(
                    percent(model.used_before_milli / model.usable_milli),
                    percent(model.used_after_milli / model.usable_milli),
                ),
            )
        )
        for model in diff.gpu_models
        if model.usable_milli
    ]
    heads = ("GPU MODEL", "USABLE", "GPUS USED", "ALLOCATED")
    return _table("GPU models", heads, rows, style, verbose=True, more="")


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"
