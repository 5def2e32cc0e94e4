"""Messages of time-related reasons: dependencies, begin times, data, windows, deadlines, groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.calendar import ReservationKind
from gpuplan.models.dependency import DependencyKind
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.planner.text_format import (
    format_count,
    format_duration,
    format_quota,
    format_time,
    join_first_names,
    join_jobs,
    quota_number,
)
from gpuplan.planner.waiting.messages import make_reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from gpuplan.models.timing.reservation_windows import ReservationWindow
    from gpuplan.planner.analysis.projected_schedule import (
        DependencyState,
        JobInterval,
        ProjectedSchedule,
        SatisfactionEstimate,
    )
    from gpuplan.planner.analysis.quota_headroom import QuotaShortage

DONE: Final = {
    DependencyKind.STARTED: "started",
    DependencyKind.SUCCEEDED: "succeeded",
    DependencyKind.COMPLETED: "ended",
    DependencyKind.CHECKPOINTED: "saved a checkpoint",
}
"""Past participle of each kind of dependency, for "the job has …"."""


def until_done(found: Sequence[SatisfactionEstimate]) -> str:
    """`prep-1 has succeeded`, `prep-1 and prep-2 have ended`, `prep-1 and 5 more are done`."""
    names = join_jobs([each.dependency.job for each in found])
    kinds = sorted({DONE[each.dependency.kind] for each in found})
    if len(kinds) > 1:
        return f"{names} are done"
    return f"{names} {'has' if len(found) == 1 else 'have'} {kinds[0]}"


def never_satisfied(state: DependencyState) -> Reason:
    """Too few of the job's dependencies can still be satisfied."""
    names = sorted(each.dependency.job for each in state.never)
    failed = all(each.failed for each in state.never)
    what = "failed" if failed else "can never be what it waits for"
    possible = len(state.outstanding) + state.satisfied
    wanted, total = state.needed + state.satisfied, possible + len(names)
    text = f"depends on {join_jobs(names)}, which {what}"
    if wanted < total:
        left = f"{possible:,} {'is' if possible == 1 else 'are'} left"
        text = f"depends on {wanted:,} of {format_count(total, 'job')}; {join_jobs(names)} {what}, {left}"
    return make_reason(
        ReasonCode.DEPENDENCY_NEVER,
        text,
        needed=wanted,
        possible=possible,
        jobs=join_first_names(names, most=10),
    )


def unmet_dependencies(state: DependencyState, future: ProjectedSchedule) -> Reason:
    """Some of the job's dependencies are not satisfied yet."""
    open_ = state.outstanding
    if state.needed < len(open_):
        names = join_first_names([each.dependency.job for each in open_])
        text = f"waits for {state.needed:,} more of the {len(open_):,} jobs {names}"
    else:
        text = f"waits until {until_done(open_)}"
    last = state.decisive[-1]
    numbers: dict[str, float | str] = {
        "needed": state.needed,
        "satisfied": state.satisfied,
        "jobs": join_first_names([each.dependency.job for each in open_], most=10),
    }
    if last.second is not None and all(each.second is not None for each in state.decisive):
        text = f"{text}, expected at {format_time(future.instant_at(last.second), future.snapshot.taken_at)}"
        numbers["expected_seconds"] = last.second
    return make_reason(ReasonCode.DEPENDENCY, text, **numbers)


def not_before(moment: datetime, now: datetime) -> Reason:
    """The job's requested start time is in the future."""
    return make_reason(
        ReasonCode.BEGIN_TIME,
        f"waits for its start time, {format_time(moment, now)}",
        seconds=int((moment - now).total_seconds()),
    )


def backing_off(moment: datetime, now: datetime, failures: int) -> Reason:
    """The job failed and is tried again only after its back-off."""
    return make_reason(
        ReasonCode.BEGIN_TIME,
        f"is tried again at {format_time(moment, now)}, after {format_count(failures, 'failure')}",
        seconds=int((moment - now).total_seconds()),
        failures=failures,
    )


def data_to_come(dataset: str, moment: datetime, now: datetime) -> Reason:
    """The job reads a dataset that is not available yet."""
    return make_reason(
        ReasonCode.BEGIN_TIME,
        f"waits for dataset {dataset}, available at {format_time(moment, now)}",
        dataset=dataset,
        seconds=int((moment - now).total_seconds()),
    )


def deadline_impossible(*, begins: int, seconds: int, deadline: int, future: ProjectedSchedule) -> Reason:
    """The job cannot meet its hard deadline; `begins` is the first second at which it may start."""
    now = future.snapshot.taken_at
    by = format_time(future.instant_at(deadline), now)
    start = f"cannot start before {format_time(future.instant_at(begins), now)}, " if begins else ""
    late = begins + seconds - deadline
    return make_reason(
        ReasonCode.DEADLINE_IMPOSSIBLE,
        f"{start}takes {format_duration(seconds)} and must be done by {by}: it would be "
        f"{format_duration(late)} late",
        needed_seconds=seconds,
        left_seconds=max(0, deadline - begins),
        late_seconds=late,
    )


def window_name(window: ReservationWindow) -> str:
    """`maintenance m1`, `reservation r1`, `hold for train`."""
    if window.job is not None:
        return f"hold for {join_jobs([window.job])}"
    kind = "maintenance" if window.reservation.kind is ReservationKind.MAINTENANCE else "reservation"
    return f"{kind} {window.reservation.name}"


def window_text(window: ReservationWindow, future: ProjectedSchedule) -> str:
    """`maintenance m1 on n1 and n2`, `reservation r1 on n1`."""
    return (
        f"{window_name(window)} on "
        f"{join_first_names(sorted(name for name in window.nodes if name in future.nodes))}"
    )


def window_closed(
    window: ReservationWindow, future: ProjectedSchedule, *, every: bool, seconds: int, others: int = 0
) -> Reason:
    """Windows close all matching nodes, or all nodes with capacity, before the job would end."""
    now = future.snapshot.taken_at
    begins, ends = (format_time(future.instant_at(second), now) for second in (window.begins, window.ends))
    span = f"from {begins} to {ends}" if window.begins > 0 else f"until {ends}"
    where = "every matching node is closed" if every else "every node with room is closed"
    more = f", or by {format_count(others, 'other window')}" if others else ""
    takes = f"; takes {format_duration(seconds)}" if window.begins > 0 else ""
    setting = "" if window.job is None else " (horizon.backfill.starving)"
    return make_reason(
        ReasonCode.RESERVED,
        f"{where} by {window_text(window, future)} {span}{setting}{more}{takes}",
        reservation=window.reservation.name,
        begins_seconds=window.begins,
        ends_seconds=window.ends,
    )


def not_ready(moment: datetime, node: str, now: datetime) -> Reason:
    """All matching nodes are still being provisioned."""
    return make_reason(
        ReasonCode.RESOURCES,
        f"no matching node is ready; {node} is expected at {format_time(moment, now)}",
        node=node,
        seconds=int((moment - now).total_seconds()),
    )


def co_start_group_waits(group: str, others: Sequence[tuple[str, Reason]]) -> Reason:
    """The job starts together with other waiting jobs; `others` has the most informative reason first."""
    names = join_jobs(sorted(name for name, _ in others))
    text = f"starts only together with {names} of group {group}"
    first, why = others[0]
    if why.code is not ReasonCode.NOT_CHOSEN:
        text = f"{text}; {join_jobs([first])}: {why.text}"
    return make_reason(
        ReasonCode.CO_START,
        text,
        group=group,
        jobs=join_first_names(sorted(name for name, _ in others), most=10),
    )


def later_start_planned(*, promised: bool) -> Reason:
    """The job would fit now, but the plan starts it later; other output gives the time."""
    what = "the start promised to it" if promised else "its later start"
    return make_reason(ReasonCode.NOT_CHOSEN, f"would fit, but {what} is better for all in sum")


def quota_promised(found: QuotaShortage, future: ProjectedSchedule, slot: int) -> Reason:
    """The job would fit now, but its queue's quota is promised to other jobs before the job would end."""
    at = format_time(future.begin(slot), future.snapshot.taken_at)
    return make_reason(
        ReasonCode.NOT_CHOSEN,
        f"would fit, but from {at} on queue {found.queue} holds "
        f"{format_quota(found.limit, found.resource, used=found.used)} for others",
        queue=found.queue,
        used=quota_number(found.used, found.resource),
        limit=quota_number(found.limit, found.resource),
        needed=quota_number(found.needed, found.resource),
    )


def room_promised(others: Sequence[JobInterval], future: ProjectedSchedule) -> Reason | None:
    """The job would fit now, but its places are promised to `others` before it would end; None if empty."""
    if not others:
        return None
    first, name = others[0], join_jobs([others[0].job.name])
    at = format_time(future.instant_at(first.start), future.snapshot.taken_at)
    more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return make_reason(
        ReasonCode.NOT_CHOSEN,
        f"would fit, but not until it is done: {name} is promised a start at {at} there{more}",
        jobs=join_first_names([stay.job.name for stay in others], most=10),
    )
