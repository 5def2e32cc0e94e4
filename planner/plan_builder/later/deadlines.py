"""Projected completion of each job with a deadline, and whether it is in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.plan.forecast import DeadlineOutlook, DeadlineState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.job import Job
    from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule


def deadline_outlooks(future: ProjectedSchedule) -> Iterator[DeadlineOutlook]:
    """One outlook for each job of the snapshot that has a deadline, by job."""
    for job in sorted(future.snapshot.jobs, key=lambda job: job.name):
        if job.deadline is not None:
            yield deadline_outlook(job, future)


def deadline_outlook(job: Job, future: ProjectedSchedule) -> DeadlineOutlook:
    """
    Projected completion of one job with a deadline.

    A job without a start in the plan is late if a start at the end of the horizon would be too late. With a
    single slot this is unknown.

    Raises
    ------
    ValueError
        The job has no deadline.
    """
    if job.deadline is None:
        raise ValueError(f"expected a job with a deadline, found {job.name!r}")
    left = future.second(job.deadline)
    stay = future.stays.get(job.name)
    finish = None if stay is None else stay.end
    return DeadlineOutlook(
        job=job.name,
        deadline=job.deadline,
        hard=job.hard_deadline,
        projected_finish=None if finish is None else future.instant_at(finish),
        state=_state(job, finish, left, future),
    )


def _state(job: Job, finish: int | None, left: int, future: ProjectedSchedule) -> DeadlineState:
    # A job is critical if it can wait for less than half of its duration.
    seconds = future.shortest_run_seconds(job)
    stay = future.stays.get(job.name)
    started = stay is not None and stay.slot == 0
    if finish is not None and finish <= left:
        slack = left - (seconds if stay is None else stay.seconds)
        critical = not started and 2 * slack < (seconds if stay is None else stay.seconds)
        return DeadlineState.CRITICAL if critical else DeadlineState.MET
    if (seconds if finish is None or job.running is None else future.durations.remaining(job)) > left:
        return DeadlineState.IMPOSSIBLE
    if finish is not None:
        return DeadlineState.LATE
    if future.slots.count > 1 and future.slots.end + seconds > left:
        return DeadlineState.LATE
    return DeadlineState.CRITICAL if 2 * (left - seconds) < seconds else DeadlineState.MET
