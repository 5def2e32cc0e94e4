"""
The actions of a plan as lines: starts, then waits; what stays is counted, not shown.

Beyond a screenful, actions of one kind share a line, and a line says how to see every one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.rendering.grouping import SEVERITY, StartKind, start_kinds, wait_kinds
from planner.rendering.hostlist import hostlist
from planner.rendering.style import Tone
from planner.rendering.table import Row, table
from planner.wording import counted, gang_size, in_gpus, placement_size

if TYPE_CHECKING:
    from planner.models.job import Job
    from planner.models.plan import Start, Wait
    from planner.models.snapshot import Snapshot
    from planner.rendering.style import Style

_MOST_START_LINES: Final = 40
_MOST_KIND_LINES: Final = _MOST_START_LINES - 2
"""Two lines say what is not shown."""
_MOST_WAIT_LINES: Final = 20
_REASON_INDENT: Final = 16


def start_lines(
    starts: tuple[Start, ...], snapshot: Snapshot, style: Style, *, verbose: bool, more: str
) -> list[str]:
    """One entry for each start, or for each kind of start where they are many; `more` shows all."""
    if verbose or len(starts) <= _MOST_START_LINES:
        jobs = snapshot.job_by_name
        lines = table([_start_row(start, jobs[start.job]) for start in starts], style, uncut=verbose)
        if verbose or len(lines) <= _MOST_START_LINES:
            return lines
    kinds = start_kinds(starts, snapshot, most=_MOST_KIND_LINES)
    lines = table([_kind_row(kind) for kind in kinds[:_MOST_KIND_LINES]], style)
    if rest := kinds[_MOST_KIND_LINES:]:
        left = counted(sum(len(kind.starts) for kind in rest), "job")
        lines += style.wrap(f"… {counted(len(rest), 'more kind')} of start, {left}", 2)
    return lines + style.wrap(f"Grouped by size and queue; each one: {more}", 2)


def wait_lines(
    waits: tuple[Wait, ...], snapshot: Snapshot, style: Style, *, verbose: bool, more: str
) -> list[str]:
    """One entry for each job that waits, or for each reason where they are many; `more` shows all."""
    if verbose or len(waits) <= _MOST_WAIT_LINES:
        jobs = snapshot.job_by_name
        ordered = sorted(waits, key=lambda wait: (SEVERITY[wait.reason.code], wait.job))
        lines = table([_wait_row(wait, jobs[wait.job]) for wait in ordered], style, uncut=verbose)
        if verbose or len(lines) <= _MOST_WAIT_LINES:
            return lines
    return _grouped_waits(waits, style) + style.wrap(f"Grouped by reason; each one: {more}", 2)


def _start_row(start: Start, job: Job) -> Row:
    nodes = hostlist(replica.node for replica in start.after.replicas)
    return Row(
        ("+ start", start.job, placement_size(start.after), nodes, f"queue {job.queue}"),
        note=start.reason.text,
        tone=Tone.START,
    )


def _kind_row(kind: StartKind) -> Row:
    jobs = counted(len(kind.starts), "job")
    return Row(
        ("+ start", jobs, kind.size, counted(kind.nodes, "node"), kind.queue),
        note=f"{in_gpus(kind.gpu_milli)} in all" if kind.gpu_milli else "",
        tone=Tone.START,
    )


def _wait_row(wait: Wait, job: Job) -> Row:
    size = gang_size(job.request, job.gang.minimum, job.gang.maximum)
    return Row((". wait", wait.job, size, f"queue {job.queue}"), note=wait.reason.text, tone=Tone.CARE)


def _grouped_waits(waits: tuple[Wait, ...], style: Style) -> list[str]:
    """Each reason code with its commonest few in words."""
    kinds = wait_kinds(waits)
    # Of the lines of each code one is its name, and one may tell of the rest.
    words = max(1, (_MOST_WAIT_LINES - 1) // len(kinds) - 2)
    lines: list[str] = []
    for kind in kinds:
        lines += table([Row((". wait", counted(kind.waits, "job"), kind.code.value), tone=Tone.CARE)], style)
        told = [(f"{len(found):,}", text) for text, found in kind.by_text[:words]]
        if rest := kind.by_text[words:]:
            left = sum(len(found) for _, found in rest)
            told.append(("…", f"{counted(left, 'more job')} for {counted(len(rest), 'reason')} of this kind"))
        for times, text in told:
            first, *below = style.wrap(text, _REASON_INDENT)
            lines += [f"{style.clean(times):>{_REASON_INDENT - 2}}  {first.strip()}", *below]
    return lines
