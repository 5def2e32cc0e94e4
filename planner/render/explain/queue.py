"""The explanation of a queue, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.planner.render.explain.layout import explanation_lines
from gpuplan.planner.render.plan.header import format_signed
from gpuplan.planner.render.style import Style
from gpuplan.planner.text_format import format_count, format_gpus, format_milli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.explain.answers.queue import QueueExplanation, QueueQuotaUse

_LABEL: Final = 14


def queue_text(found: QueueExplanation, *, width: int, colour: bool, ascii_only: bool) -> str:
    """One or more lines per topic of the explanation."""
    style = Style(width=width, colour=colour, ascii_only=ascii_only)
    lines = explanation_lines(f"Queue {found.queue}", found, _entries(found), style, label=_LABEL)
    return "\n".join(lines) + "\n"


def _entries(found: QueueExplanation) -> Iterator[tuple[str, str]]:
    if found.parent:
        yield "part of", found.parent
    if found.children:
        yield "has below it", ", ".join(found.children)
    for quota in found.quotas:
        yield f"{quota.gpu_model or 'GPUs'}", _quota(quota)
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
    parts = [f"uses {format_milli(quota.used_milli)}"]
    parts[0] += " without a limit" if quota.limit_milli is None else f" of {format_milli(quota.limit_milli)}"
    parts.append(f"its own quota is {format_milli(quota.nominal_milli)}")
    if quota.borrowed_milli:
        parts.append(f"borrows {format_milli(quota.borrowed_milli)}")
    if quota.unused_milli:
        parts.append(f"leaves {format_milli(quota.unused_milli)} to others")
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
