"""GPU models and queues before and after a plan, as tables and as charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.queue import ALL_MODELS
from gpuplan.planner.render.charts.changed_bars import ChangedBar, changed_bars_svg
from gpuplan.planner.render.diff_tables import DEEPEST_INDENT
from gpuplan.planner.render.plan.header import percent
from gpuplan.planner.render.reports.page import INDENT, Head, Picture, Table
from gpuplan.planner.text_format import format_milli

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.plan.diff import Diff, GpuModelDiff, QueueDiff
    from gpuplan.models.snapshot import Snapshot

_MOST_BARS: Final = 24
"""Bars per chart; the table below it shows all rows."""


def model_table(change: Diff) -> Table:
    """Table of all GPU models with usable GPUs."""
    heads = ("GPU model", "Usable", "Used", "Allocated")
    rows = (
        (
            model.gpu_model,
            _change(format_milli(model.usable_before_milli), format_milli(model.usable_after_milli)),
            _change(format_milli(model.used_before_milli), format_milli(model.used_after_milli)),
            _allocated(model),
        )
        for model in _usable(change)
    )
    return Table("GPUs by model", (Head(heads[0], number=False), *map(Head, heads[1:])), tuple(rows))


def model_picture(change: Diff) -> Picture:
    """Chart of the allocated part of each model."""
    models = sorted(_usable(change), key=lambda model: -model.usable_after_milli)[:_MOST_BARS]
    bars = [
        ChangedBar(
            label=model.gpu_model,
            before=_ratio(model.used_before_milli, model.usable_before_milli),
            after=_ratio(model.used_after_milli, model.usable_after_milli),
            words=_allocated(model),
            whole=1.0,
        )
        for model in models
    ]
    svg = changed_bars_svg(bars, "models", label="Allocated part of each GPU model")
    return Picture.of("Allocated, by GPU model", svg, "Part of the usable GPUs of each model.")


def queue_table(change: Diff, snapshot: Snapshot) -> Table:
    """Table of all queues with their quotas, over all models and per model with a quota."""
    quotas = {
        (queue.name, resource): quota
        for queue in snapshot.queues
        for resource in (ALL_MODELS, *queue.gpu_models)
        if (quota := queue.quota_for(resource))
    }
    depth = _depths(change.queues)
    by_model = any(queue.gpu_model for queue in change.queues)
    rows = []
    for queue in change.queues:
        quota = quotas.get((queue.queue, queue.gpu_model))
        waiting = _change(f"{queue.waiting_before:,}", f"{queue.waiting_after:,}")
        rows.append(
            (
                INDENT * depth[queue.queue] + queue.queue,
                *((queue.gpu_model or "all",) if by_model else ()),
                _change(format_milli(queue.used_before_milli), format_milli(queue.used_after_milli)),
                "none" if queue.limit_milli is None else format_milli(queue.limit_milli),
                "" if quota is None else format_milli(quota.nominal),
                "" if quota is None or quota.guarantee is None else format_milli(quota.guarantee),
                "" if queue.gpu_model else waiting,
            )
        )
    heads = (
        Head("Queue", number=False),
        *((Head("GPU model", number=False),) if by_model else ()),
        *map(Head, ("GPUs used", "Limit", "Nominal quota", "Guarantee", "Jobs waiting")),
    )
    return Table("Queues, those below others indented; a queue's use counts all below it", heads, tuple(rows))


def queue_picture(change: Diff, snapshot: Snapshot) -> Picture:
    """Chart of the use of each queue, with its limit and its guarantee."""
    queues = [queue for queue in change.queues if queue.gpu_model == ALL_MODELS]
    most = sorted(queues, key=lambda queue: -max(queue.used_before_milli, queue.used_after_milli))
    shown = {queue.queue for queue in most[:_MOST_BARS]}
    guarantees = {queue.name: queue.quota.guarantee for queue in snapshot.queues if queue.quota}
    depth = _depths(change.queues)
    bars = [
        ChangedBar(
            label=INDENT * depth[queue.queue] + queue.queue,
            before=queue.used_before_milli,
            after=queue.used_after_milli,
            words=_change(format_milli(queue.used_before_milli), format_milli(queue.used_after_milli))
            + ("" if queue.limit_milli is None else f" of {format_milli(queue.limit_milli)}"),
            limit=queue.limit_milli,
            owed=guarantees.get(queue.queue),
        )
        for queue in queues
        if queue.queue in shown
    ]
    svg = changed_bars_svg(bars, "queues", label="GPUs used by each queue, and its limit")
    left_out = len(queues) - len(bars)
    caption = "GPUs in use; the line across is the limit, the triangle the guarantee."
    if left_out:
        caption += f" The {len(bars)} that use most, of {len(queues):,}."
    return Picture.of("Used, by queue", svg, caption)


def _usable(change: Diff) -> list[GpuModelDiff]:
    return [model for model in change.gpu_models if model.usable_before_milli or model.usable_after_milli]


def _depths(queues: Sequence[QueueDiff]) -> dict[str, int]:
    depth: dict[str, int] = {}
    for queue in queues:
        depth[queue.queue] = 0 if queue.parent is None else min(depth[queue.parent] + 1, DEEPEST_INDENT)
    return depth


def _allocated(model: GpuModelDiff) -> str:
    before, after = (
        percent(used / usable) if usable else "none"
        for used, usable in (
            (model.used_before_milli, model.usable_before_milli),
            (model.used_after_milli, model.usable_after_milli),
        )
    )
    return _change(before, after)


def _ratio(used: int, usable: int) -> float:
    return used / usable if usable else 0.0


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"
