"""Consistency of a plan's later slots: planned starts, pending jobs, deadlines, kill times."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import Preempt, Start
from gpuplan.models.plan.forecast import DeadlineState
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import print_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.plan.forecast import DeadlineOutlook
    from gpuplan.models.plan.plan import Plan


def time_contradictions(plan: Plan) -> Iterator[str]:
    """All contradictions about later slots."""
    yield from _planned(plan)
    yield from _projected(plan)
    yield from _kill_times(plan)
    yield from _deadlines(plan)


def _planned(plan: Plan) -> Iterator[str]:
    """Check that each later start is of a job that is not placed, in an existing slot, at the slot's time."""
    slots = TimeSlots.of(plan.policy.horizon, plan.epoch)
    placed = {placement.job for placement in plan.placements}
    for job, count in sorted(Counter(each.job for each in plan.planned).items()):
        known = plan.snapshot.job_by_name.get(job)
        if count > 1:
            yield f"job {job} is planned {count} times"
        if job in placed:
            yield f"job {job} is placed now and planned for later"
        if known is None:
            yield f"job {job} is planned and is not in the snapshot"
        elif known.held:
            yield f"job {job} is planned to start, though it is held"
    for each in plan.planned:
        if each.slot >= slots.count:
            yield f"job {each.job} is planned in slot {each.slot}, the horizon has {slots.count}"
        elif each.start != (begin := plan.epoch + timedelta(seconds=slots.edges[each.slot])):
            yield (
                f"job {each.job} is planned to start at {print_timestamp(each.start)}, "
                f"slot {each.slot} begins at {print_timestamp(begin)}"
            )


def _projected(plan: Plan) -> Iterator[str]:
    """Check that pending jobs and preemptions agree with the planned starts and promises."""
    planned = {each.job: each for each in plan.planned}
    for action in plan.actions:
        start = planned.get(action.job) if isinstance(action, Preempt) else None
        if isinstance(action, Preempt) and action.resumes_at != (start.start if start else None):
            yield f"action {action.id} resumes job {action.job} at another time than the planned start"
    waiting = {waiting.job: waiting for waiting in plan.waiting}
    for job in sorted(planned.keys() - waiting.keys()):
        yield f"job {job} is planned for later and is not among the jobs that wait"
    for job, told in sorted(waiting.items()):
        start = planned.get(job)
        if told.projected_start != (start.start if start else None):
            yield f"job {job} has another start among the jobs that wait than among the planned ones"
        if told.promised != (start is not None and start.promised):
            yield f"job {job} has a promise among the jobs that wait or among the planned starts, not in both"
        known = plan.snapshot.job_by_name.get(job)
        promise = known.promise if known else None
        if told.earlier_promise is not None and told.earlier_promise != (promise.start if promise else None):
            yield f"job {job} has another promise in the snapshot than among the jobs that wait"


def _kill_times(plan: Plan) -> Iterator[str]:
    for action in plan.actions:
        if isinstance(action, Start) and action.kill_at is not None:
            if action.kill_at <= plan.epoch:
                at = print_timestamp(action.kill_at)
                yield f"action {action.id} kills its job at {at}, before it starts"
            if not plan.policy.horizon.backfill.kill:
                yield f"action {action.id} kills its job, though the policy kills no job"
            if (job := plan.snapshot.job_by_name.get(action.job)) is not None and job.promise:
                yield f"action {action.id} kills its job, though that was promised its start"


def _deadlines(plan: Plan) -> Iterator[str]:
    told = Counter(outlook.job for outlook in plan.deadlines)
    for job, count in sorted(told.items()):
        if count > 1:
            yield f"the deadline of job {job} is listed {count} times"
    for outlook in plan.deadlines:
        known = plan.snapshot.job_by_name.get(outlook.job)
        if known is None:
            yield f"job {outlook.job} has a deadline and is not in the snapshot"
        elif (known.deadline, known.hard_deadline) != (outlook.deadline, outlook.hard):
            yield f"job {outlook.job} has another deadline in the snapshot than among the deadlines"
        elif _in_time(outlook) not in (None, outlook.state in (DeadlineState.MET, DeadlineState.CRITICAL)):
            yield f"the deadline of job {outlook.job} is {outlook.state} by its state, not by its finish"


def _in_time(outlook: DeadlineOutlook) -> bool | None:
    """Whether the job completes in time; None if its completion is unknown."""
    return None if outlook.projected_finish is None else outlook.projected_finish <= outlook.deadline
