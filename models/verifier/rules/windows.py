"""Rules about time: later starts, reservations and maintenance of nodes, and hard deadlines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.verifier.messages import format_count, truncated_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.placement import Replica
    from gpuplan.models.plan.solution import LaterStart
    from gpuplan.models.timing.reservation_windows import ReservationWindow
    from gpuplan.models.verifier.context import Context, Interval


def horizon(case: Context) -> Iterator[Violation]:
    """
    A later start is of a job that is pending or preempted now, once, in a later slot of the horizon.

    It has the minimum number of replicas of its gang, on no node to be removed. Other rules check that its
    resources are free then.
    """
    times = Counter(each.job for each in case.planned)
    placed = {placement.job for placement in case.placements} if case.planned else set()
    for each in case.planned:
        subject = f"job {each.job} in slot {each.slot}"
        if times[each.job] > 1:
            found = format_count(times[each.job], "later start")
            yield Violation(Rule.HORIZON, f"job {each.job}", found, "1 later start")
        if each.job in placed:
            yield Violation(Rule.HORIZON, subject, "a job that is placed now too", "one start")
        for found, allowed in _faults(case, each):
            yield Violation(Rule.HORIZON, subject, found, allowed)


def _faults(case: Context, planned: LaterStart) -> Iterator[tuple[str, str]]:
    """Faults of one later start as (found, allowed)."""
    last = case.time.slots.count - 1
    if not 1 <= planned.slot <= last:
        yield f"slot {planned.slot}", f"slots 1 to {last}" if last else "no later start: there is one slot"
    if removed := sorted({replica.node for replica in planned.replicas} & case.gone):
        yield f"on {truncated_names(removed)}, which is removed", "nodes that stay"
    job = case.jobs.get(planned.job)
    if job is None:
        yield "no such job in the snapshot", "a job of the snapshot"
        return
    if job.withheld:
        yield ("a held job", "a held job waits") if job.held else ("no retry left", "it waits")
    if (count := len(planned.replicas)) != job.gang.minimum:
        yield format_count(count, "replica"), format_count(job.gang.minimum, "replica")


def windows(case: Context) -> Iterator[Violation]:
    """
    No new replica is on a node while a reservation, maintenance, or a hold for a starving job closes it.

    The time checked is from the start of the job, or from now if it migrates or grows, to its expected end.
    Replicas that stay may be there; the term `drain` rewards that they leave.
    """
    if not case.time.windows.all:
        return
    newcomers = [
        (case.time.interval_of_placement(occupant, job), occupant.new_replicas)
        for job, occupant in case.arrivals
    ]
    # All replicas of a later start are new, also those of a job that resumes where it ran.
    newcomers += [(stay, iter(stay.placement.replicas)) for stay in case.time.later]
    for stay, replicas in newcomers:
        yield from _closed_nodes(case, stay, replicas)


def _closed_nodes(case: Context, stay: Interval, replicas: Iterator[Replica]) -> Iterator[Violation]:
    time = case.time
    for name in sorted({replica.node for replica in replicas}):
        if window := time.windows.blocking_window(stay.job, name, stay.start, stay.seconds):
            begins, ends = time.format_instant(stay.start), time.format_instant(stay.start + stay.seconds)
            found = f"there from {begins} to {ends}"
            place = f"job {stay.job.name} on node {name}" + (f" in slot {stay.slot}" if stay.slot else "")
            yield Violation(Rule.WINDOWS, place, found, _instead(case, window))


def _instead(case: Context, window: ReservationWindow) -> str:
    """When a job that is not an owner may be on the nodes of a window."""
    begins, ends = case.time.format_instant(window.begins), case.time.format_instant(window.ends)
    owners = [f"queue {name}" for name in window.reservation.queues]
    owners += [f"user {name}" for name in window.reservation.users]
    if labels := window.reservation.job_labels:
        owners.append(f"jobs with {' and '.join(f'{key}={value}' for key, value in sorted(labels.items()))}")
    if window.job is not None:
        beside = f", or beside it {truncated_names(window.beside)}" if window.beside else ""
        return f"only job {window.job}, which starves{beside}, from {begins} to {ends}"
    allowed = f"only {', '.join(sorted(owners))}" if owners else "no job"
    return f"{allowed} from {begins} to {ends}: {window.reservation.kind} by {window.reservation.name}"


def deadlines(case: Context) -> Iterator[Violation]:
    """A job with a hard deadline starts only if it is expected to end by then."""
    for stay in (*case.time.starting, *case.time.later):
        job = stay.job
        if not job.hard_deadline or job.deadline is None:
            continue
        if case.time.start_value.misses_hard_deadline(job, start=stay.start, seconds=stay.seconds):
            found = f"done at {case.time.format_instant(stay.start + stay.seconds)}"
            allowed = f"done by its deadline, {case.time.format_instant(case.time.seconds_to(job.deadline))}"
            yield Violation(Rule.DEADLINES, stay.subject, found, allowed)
