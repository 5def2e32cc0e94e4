"""The future in a plan: horizon, projected starts, changed promises, deadlines at risk."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.plan import DeadlineState, Plan, PlannedStart, Waiting
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import print_timestamp
from gpuplan.planner.render.style import Style, Tone
from gpuplan.planner.render.table import Table, TableRow
from gpuplan.planner.text_format import (
    format_count,
    format_duration,
    format_gpus,
    format_time,
    join_jobs,
)

if TYPE_CHECKING:
    from gpuplan.models.plan.actions import Start


_MOST_LINES: Final = 20
"""Lines per section."""

STATE_TONES: Final = {
    DeadlineState.CRITICAL: Tone.CARE,
    DeadlineState.LATE: Tone.STOP,
    DeadlineState.IMPOSSIBLE: Tone.STOP,
}
"""Tones of the deadline states that are at risk."""


def horizon_parts(plan: Plan) -> list[str]:
    """`12 slots of 1h to 2026-11-21T00:00:00Z`, and the number of promised starts; empty for one slot."""
    horizon = plan.policy.horizon
    if horizon.slots == 1:
        return []
    end = plan.epoch + timedelta(seconds=TimeSlots.of(horizon, plan.epoch).end)
    promised = sum(each.promised for each in plan.planned)
    return [
        "horizon",
        f"{horizon.slots} slots of {format_duration(horizon.length)} to {print_timestamp(end)}",
        f"{format_count(promised, 'start')} promised",
        f"{len(plan.planned) - promised:,} foreseen",
    ]


def projection(waiting: Waiting, epoch: datetime) -> str:
    """
    `starts 14:00 (promised), waits until train-a ends`; empty if no start is projected.

    Leaves out what the reason of the job already says.
    """
    if waiting.projected_start is None:
        return ""
    at = format_time(waiting.projected_start, epoch)
    start = f"starts {at} (promised)" if waiting.promised else f"foreseen {at}"
    waits = f"waits {waiting.waits_for}" if waiting.waits_for else ""
    told = waiting.reason.text.startswith(waits) or (
        # The reason of a group already names the other jobs and what they wait for.
        waiting.reason.code is ReasonCode.CO_START and waiting.waits_for.startswith("for its group")
    )
    return start if told else f"{start}, {waits}"


def projections(plan: Plan) -> dict[str, str]:
    """The projection texts by job name."""
    return {waiting.job: text for waiting in plan.waiting if (text := projection(waiting, plan.epoch))}


def kill_note(start: Start, epoch: datetime) -> str:
    """`killed at 15:00 if it still runs`; empty if the job has no kill time."""
    return "" if start.kill_at is None else f"killed at {format_time(start.kill_at, epoch)} if it still runs"


def change_of_promise(waiting: Waiting) -> str:
    """`earlier`, `later` or `withdrawn`; empty if the promise is unchanged or there was none."""
    earlier, start = waiting.earlier_promise, waiting.projected_start
    if earlier is None:
        return ""
    if start is None or not waiting.promised:
        return "withdrawn"
    return "" if start == earlier else "earlier" if start < earlier else "later"


def changed_start(waiting: Waiting, epoch: datetime) -> str:
    """`14:00 → 15:00`, `14:00 → foreseen 15:00`, `14:00 → none`."""
    before = "" if waiting.earlier_promise is None else format_time(waiting.earlier_promise, epoch)
    after = "none" if waiting.projected_start is None else format_time(waiting.projected_start, epoch)
    if waiting.projected_start is not None and not waiting.promised:
        after = f"foreseen {after}"
    return f"{before} → {after}"


def later_lines(plan: Plan, style: Style, *, more: str) -> list[str]:
    """Later starts grouped by time, used where the waiting jobs are grouped by reason."""
    by_start: dict[tuple[datetime, bool], list[PlannedStart]] = defaultdict(list)
    for each in plan.planned:
        by_start[each.start, not each.promised].append(each)
    rows = []
    for (start, foreseen), found in sorted(by_start.items()):
        milli = sum(replica.quota_milli for each in found for replica in each.replicas)
        what = "foreseen" if foreseen else "promised"
        size = format_gpus(milli) if milli else "no GPU"
        names = join_jobs(sorted(each.job for each in found))
        cells = (format_time(start, plan.epoch), what, format_count(len(found), "job"), size)
        rows.append(TableRow(cells, note=names))
    return Table(rows, title="Later starts").lines(style, most=_MOST_LINES, more=more)


def promise_table(plan: Plan) -> Table:
    """
    Changed promises of jobs that continue to wait, and why they changed.

    None of a rollback: it records no promises, so the cluster's stay as they are.
    """
    tones = {"earlier": Tone.START, "later": Tone.CARE, "withdrawn": Tone.STOP}
    waits = () if plan.rollback else plan.waiting
    changed = [(change, waiting) for waiting in waits if (change := change_of_promise(waiting))]
    changed.sort(key=lambda each: (-list(tones).index(each[0]), each[1].job))
    rows = [
        TableRow((change, each.job, changed_start(each, plan.epoch)), each.promise_changed, tones[change])
        for change, each in changed
    ]
    return Table(rows, ("Change", "Job", "Start"), "Promises changed", note="Why")


def promise_and_deadline_lines(plan: Plan, style: Style, *, verbose: bool, more: str) -> list[list[str]]:
    """Changed promises, and deadlines at risk, as lines."""
    most = None if verbose else _MOST_LINES
    return [
        table.lines(style, most=most, more=more, uncut=verbose, heads=False)
        for table in (promise_table(plan), deadline_table(plan))
    ]


def deadline_table(plan: Plan) -> Table:
    """Deadlines that are critical, late or impossible, the worst first."""
    rank = {state: number for number, state in enumerate(DeadlineState)}
    rows = []
    for outlook in sorted(plan.deadlines, key=lambda each: (-rank[each.state], each.deadline, each.job)):
        if outlook.state not in STATE_TONES:
            continue
        due = f"due {format_time(outlook.deadline, plan.epoch)}{' (hard)' if outlook.hard else ''}"
        finish = outlook.projected_finish
        done = "not planned" if finish is None else f"done {format_time(finish, plan.epoch)}"
        rows.append(TableRow((outlook.state.value, outlook.job, due, done), tone=STATE_TONES[outlook.state]))
    return Table(rows, ("State", "Job", "Deadline", "Expected"), "Deadlines at risk")
