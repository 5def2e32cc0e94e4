"""The explanation of a node or a queue as text, and the layout that all explanations share."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.queue import resource_key
from gpuplan.models.units import MILLI, print_timestamp
from gpuplan.planner.render.plan.header import format_signed, short_id
from gpuplan.planner.render.style import Tone
from gpuplan.planner.text_format import (
    format_count,
    format_cpus,
    format_gib,
    format_gpus,
    format_milli,
    format_money,
    format_time,
    format_under_label,
    quota_label,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.planner.explain.explanation import Explanation
    from gpuplan.planner.explain.node import GpuUse, NodeExplanation
    from gpuplan.planner.explain.queue import QueueExplanation, QueueQuotaUse
    from gpuplan.planner.render.style import Style


def explanation_lines(
    head: str,
    found: Explanation | NodeExplanation | QueueExplanation,
    entries: Iterable[tuple[str, str]],
    style: Style,
    *,
    label: int,
) -> list[str]:
    """The lines of an explanation; labels are `label` columns wide, and a continued label is empty."""
    where = f"(plan {short_id(found.plan_id)}, epoch {print_timestamp(found.epoch)})"
    lines = [style.paint(style.clean(head), Tone.STRONG), *style.wrap(where, 0)]
    for name, text in entries:
        lines += style.beside(f"  {style.clean(name):<{label}}", text)
    return lines


# The explanation of a node, as text.


_LABEL: Final = 14
_MOST_REASONS: Final = 6


def node_text(found: NodeExplanation, style: Style) -> str:
    """One or more lines per topic of the explanation."""
    lines = explanation_lines(f"Node {found.node}", found, _node_entries(found), style, label=_LABEL)
    return "\n".join(lines) + "\n"


def _node_entries(found: NodeExplanation) -> Iterator[tuple[str, str]]:
    now = found.epoch
    pool = f"; pool {found.pool}" if found.pool else ""
    price = f"; {format_money(found.price_per_hour)}/h" if found.price_per_hour else ""
    place = f"; in {found.place}" if found.place else ""
    yield (
        "is",
        f"{found.size}, {format_cpus(found.cpu_milli)}, {format_gib(found.memory_mib)}{place}{pool}{price}",
    )
    if found.state:
        why = f": {found.state_reason}" if found.state_reason else ""
        yield "state", ", ".join(found.state) + why
    first = True
    for text, same in groupby(found.gpus, key=_gpu):
        indices = [gpu.index for gpu in same]
        numbers = f"{indices[0]}" if len(indices) == 1 else f"{indices[0]}-{indices[-1]}"
        yield ("GPU" if first else ""), f"{numbers}: {text}"
        first = False
    yield "free", f"{format_cpus(found.free_cpu_milli)}, {format_gib(found.free_memory_mib)}"
    for number, tenant in enumerate(found.tenants):
        until = f"until {format_time(tenant.ends_at, now)}{', starts now' if tenant.starts else ''}"
        owner = f"user {tenant.user}, queue {tenant.queue}, priority {tenant.priority:,}"
        yield ("" if number else "jobs"), f"{tenant.job} {until}; {owner}"
    for number, booking in enumerate(found.bookings):
        how = "promised" if booking.promised else "foreseen"
        yield ("" if number else "later"), f"{booking.job} from {format_time(booking.starts_at, now)} ({how})"
    for number, window in enumerate(found.closures):
        span = f"from {format_time(window.begins_at, now)} to {format_time(window.ends_at, now)}"
        yield ("" if number else "closed"), f"{span} ({window.reservation})"
    told = found.stranded[:_MOST_REASONS]
    for number, each in enumerate(told):
        such = f" such as {each.example}" if each.jobs > 1 else f", {each.example}"
        jobs = f"{format_count(each.jobs, 'waiting job')}{such}"
        yield ("" if number else "not used by"), f"{jobs}: {each.why}"
    if rest := len(found.stranded) - len(told):
        yield "", f"… {format_count(rest, 'more reason')}"


def _gpu(gpu: GpuUse) -> str:
    """The state of one GPU, and what jobs do there; adjacent GPUs with equal text share a line."""
    busy = [] if gpu.utilization is None else [f"{gpu.utilization} % busy"]
    used = [] if gpu.memory_mib is None else [f"{format_gib(gpu.memory_mib)} in use"]
    return "; ".join([_held(gpu), *(busy + used if gpu.holders else ())])


def _held(gpu: GpuUse) -> str:
    if not gpu.healthy:
        return f"unhealthy: {gpu.fault}" if gpu.fault else "unhealthy"
    held = ", ".join(f"{each.job} ({each.holds})" for each in gpu.holders)
    if gpu.layout is not None:
        return f"MIG {gpu.layout}; {held or 'no job'}"
    whole = all(each.holds == format_gpus(MILLI) for each in gpu.holders)
    if held and whole:
        return ", ".join(each.job for each in gpu.holders)
    if not held:
        return "free"
    free = f"{format_gpus(gpu.free_milli)} free" if gpu.free_milli else ""
    return "; ".join(part for part in (held, free) if part)


# The explanation of a queue, as text.


def queue_text(found: QueueExplanation, style: Style) -> str:
    """One or more lines per topic of the explanation."""
    lines = explanation_lines(f"Queue {found.queue}", found, _queue_entries(found), style, label=_LABEL)
    return "\n".join(lines) + "\n"


def _queue_entries(found: QueueExplanation) -> Iterator[tuple[str, str]]:
    if found.parent:
        yield "part of", found.parent
    if found.children:
        yield "has below it", ", ".join(found.children)
    for quota in found.quotas:
        yield quota_label(resource_key(quota.resource, quota.gpu_model)), _quota(quota)
        if quota.guarantee_milli is not None:
            yield "guarantee", _guarantee(quota, found.guarantee_note)
    yield "runs", f"{format_count(found.running, 'job')}, {found.started:,} of them started by this plan"
    for number, each in enumerate(found.waiting):
        jobs = (
            f"{format_count(each.jobs, 'job')} for {each.code.value}, {format_gpus(each.gpu_milli)} at least"
        )
        yield ("" if number else "waiting"), jobs
    if found.may_be_reclaimed:
        yield (
            "owes",
            "holds more than its own quota: queues below theirs may take it back, whatever the priority",
        )
    if found.reclaimable_in_all:
        yield "may reclaim", _reclaimable(found)
    if found.one_more is not None:
        brings = f", for {format_signed(found.one_more_points)} points" if found.one_more_points else ""
        yield "1 GPU more", f"of quota would start {found.one_more}{brings}"
    elif found.one_more_tried == 1:
        yield "1 GPU more", "of quota would not start the job that waits for it"
    elif found.one_more_tried:
        yield "1 GPU more", f"of quota would start none of the {_tried(found)} that wait for it"


def _tried(found: QueueExplanation) -> str:
    """`4 jobs`, or `30 worthiest jobs` if only some were tried."""
    for_quota = (ReasonCode.WAITING_FOR_QUOTA, ReasonCode.EXCEEDS_MAX_QUOTA)
    waiting = sum(each.jobs for each in found.waiting if each.code in for_quota)
    return format_count(found.one_more_tried, "worthiest job" if found.one_more_tried < waiting else "job")


def _quota(quota: QueueQuotaUse) -> str:
    amount = partial(format_under_label, resource=resource_key(quota.resource, quota.gpu_model))
    parts = [f"uses {amount(quota.used_milli)}"]
    parts[0] += " without a limit" if quota.limit_milli is None else f" of {amount(quota.limit_milli)}"
    parts.append(f"its own quota is {amount(quota.nominal_milli)}")
    if quota.borrowed_milli:
        parts.append(f"borrows {amount(quota.borrowed_milli)}")
    if quota.unused_milli:
        parts.append(f"leaves {amount(quota.unused_milli)} to others")
    return "; ".join(parts)


def _guarantee(quota: QueueQuotaUse, note: str) -> str:
    owed = format_gpus(quota.guarantee_milli or 0)
    if not quota.missing_milli:
        return f"{owed}: met"
    return f"{owed}: {format_milli(quota.missing_milli)} missing; {note}"


def _reclaimable(found: QueueExplanation) -> str:
    told = ", ".join(
        f"{each.job} ({each.queue}, {format_gpus(each.gpu_milli)})" for each in found.reclaimable
    )
    rest = found.reclaimable_in_all - len(found.reclaimable)
    return f"{told}{f' and {rest:,} more' if rest else ''}"
