"""The explanation of a node, as text."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import MILLI
from gpuplan.planner.render.explain.layout import explanation_lines
from gpuplan.planner.render.style import Style
from gpuplan.planner.text_format import (
    format_count,
    format_cpus,
    format_gib,
    format_gpus,
    format_money,
    format_time,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.explain.answers.node import GpuUse, NodeExplanation

_LABEL: Final = 14
_MOST_REASONS: Final = 6


def node_text(found: NodeExplanation, *, width: int, colour: bool, ascii_only: bool) -> str:
    """One or more lines per topic of the explanation."""
    style = Style(width=width, colour=colour, ascii_only=ascii_only)
    lines = explanation_lines(f"Node {found.node}", found, _entries(found), style, label=_LABEL)
    return "\n".join(lines) + "\n"


def _entries(found: NodeExplanation) -> Iterator[tuple[str, str]]:
    now = found.epoch
    pool = f"; pool {found.pool}" if found.pool else ""
    price = f"; {format_money(found.price_per_hour)}/h" if found.price_per_hour else ""
    place = f"; in {found.place}" if found.place else ""
    yield (
        "is",
        f"{found.size}, {format_cpus(found.cpu_milli)}, {format_gib(found.memory_mib)}{place}{pool}{price}",
    )
    if found.state:
        yield "state", ", ".join(found.state)
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
        jobs = f"{format_count(each.jobs, 'waiting job')} such as {each.example}"
        yield ("" if number else "not used by"), f"{jobs}: {each.why}"
    if rest := len(found.stranded) - len(told):
        yield "", f"… {format_count(rest, 'more reason')}"


def _gpu(gpu: GpuUse) -> str:
    """The state of one GPU; adjacent GPUs with equal text share a line."""
    if not gpu.healthy:
        return "unhealthy"
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
