"""Promises of a plan: the step that records them in a cluster, and their transfer to later snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.placement import Promise
from gpuplan.models.plan.actions import Start, changes_of
from gpuplan.models.timing.durations import Durations
from gpuplan.planner.action_marks import PROMISES
from gpuplan.planner.text_format import format_count

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Running
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PromiseStep:
    """Last step of a plan with later slots: it replaces all promises of pending jobs."""

    promises: dict[str, Promise]
    """By job, sorted; pending jobs that are not listed lose their promise."""
    id: str = PROMISES
    type: str = "promise"

    @property
    def label(self) -> str:
        """Short text of what it does."""
        return (
            f"record {format_count(len(self.promises), 'promise')}" if self.promises else "clear all promises"
        )

    @property
    def account(self) -> str:
        """Short text of what it did."""
        return (
            f"{format_count(len(self.promises), 'promise')} recorded" if self.promises else "promises cleared"
        )


Step: TypeAlias = "Change | PromiseStep"
"""One step of an apply."""

SUBJECT: Final = "waiting jobs"
"""Subject of the promise step in the audit log."""


def promises_of(plan: Plan) -> dict[str, Promise]:
    """
    Promises of a plan, by job, sorted.

    If a start is delayed by no more than the policy's `max_delay`, the original promise is kept. Otherwise
    every plan could delay it again by the same amount.
    """
    promised = {each.job: each for each in plan.planned if each.promised}
    backfill, jobs = plan.policy.horizon.backfill, plan.snapshot.job_by_name
    found = {}
    for job, planned in sorted(promised.items()):
        earlier = jobs[job].promise if job in jobs else None
        late = timedelta(0) if earlier is None else planned.start - earlier.start
        keeps = earlier is not None and timedelta(0) < late <= timedelta(seconds=backfill.max_delay)
        start = earlier.start if earlier is not None and keeps else planned.start
        found[job] = Promise(start=start, replicas=planned.replicas)
    return found


def promise_step(plan: Plan) -> PromiseStep | None:
    """
    The step that records the promises.

    None if there are no promises in the plan and none in its snapshot, and in a rollback, which leaves
    promises as they are.
    """
    if plan.rollback is not None:
        return None
    promises = promises_of(plan)
    earlier = any(job.promise for job in plan.snapshot.jobs)
    return PromiseStep(promises) if promises or earlier else None


def steps_of(plan: Plan) -> list[Step]:
    """The actions that change the cluster, in their order, then the promise step."""
    step = promise_step(plan)
    return [*changes_of(plan.actions), *([step] if step else [])]


def without_promises(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which no job is promised a start."""
    jobs = tuple(job.model_copy(update={"promise": None}) if job.promise else job for job in snapshot.jobs)
    return snapshot.model_copy(update={"jobs": jobs})


def carry_over_promises(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """
    The snapshot with an earlier plan's promises, kill times and progress, where the cluster stores none.

    Pending jobs without a promise get the plan's. Jobs that run as the plan started them get its kill time;
    jobs that ran before get the kill time of the plan's snapshot. Jobs that were preempted before or since
    get the progress that follows from the plan's snapshot.
    """
    promises, known = promises_of(plan), plan.snapshot.job_by_name
    durations = Durations(plan.snapshot, plan.policy)
    starts = {action.job: action for action in plan.actions if isinstance(action, Start) and action.kill_at}
    jobs = tuple(
        _with_promise(
            _with_progress(job, known.get(job.name), durations, plan.snapshot.taken_at),
            promise=promises.get(job.name),
            start=starts.get(job.name),
            before=known[job.name].running if job.name in known else None,
        )
        for job in snapshot.jobs
    )
    return snapshot.model_copy(update={"jobs": jobs})


def with_promises_of(live: Snapshot, base: Snapshot) -> Snapshot:
    """
    The cluster with the promises, kill times and progress of a plan's snapshot, where it has none itself.

    A cluster may not store these, while the plan knows them from the plan before it.
    """
    known = {
        job.name: job
        for job in base.jobs
        if job.promise or job.progress or (job.running and job.running.kill_at is not None)
    }
    if not known:
        return live
    jobs = tuple(
        _as_known(job, known[job.name], base.taken_at) if job.name in known else job for job in live.jobs
    )
    return live.model_copy(update={"jobs": jobs})


def _as_known(job: Job, before: Job, then: datetime) -> Job:
    if job.progress is None and _same_run(job, before, then):
        job = job.model_copy(update={"progress": before.progress})
    return _with_promise(job, promise=before.promise, start=None, before=before.running)


def _with_progress(job: Job, before: Job | None, durations: Durations, then: datetime) -> Job:
    """The job with progress derived from its earlier state, unless it reports progress itself."""
    if job.progress is not None or before is None or job.submitted_at != before.submitted_at:
        return job
    same = _same_run(job, before, then)
    if before.running is None and not same:
        return job
    waits = before if same else durations.stopped(before)
    return job if waits.progress is None else job.model_copy(update={"progress": waits.progress})


def _same_run(job: Job, before: Job, then: datetime) -> bool:
    """
    True if a job has not been stopped since `then`.

    It runs since before `then`, or is pending as before, or was started since. A job that is pending in the
    earlier snapshot but started before `then` has lost places that are not released yet.
    """
    if before.running is None:
        return job.running is None or job.running.started_at >= then
    if job.running is None:
        return False
    return job.running.started_at == before.running.started_at


def _with_promise(job: Job, *, promise: Promise | None, start: Start | None, before: Running | None) -> Job:
    """The job with a plan's promise or kill time, unless it has one itself."""
    if job.running is None:
        return job if promise is None or job.promise else job.model_copy(update={"promise": promise})
    if job.running.kill_at is not None:
        return job
    if start is not None and _is_of(job.running, start):
        kill_at = start.kill_at
    elif before is not None and job.running.started_at == before.started_at:
        kill_at = before.kill_at
    else:
        return job
    return job.model_copy(update={"running": job.running.model_copy(update={"kill_at": kill_at})})


def _is_of(running: Running, start: Start) -> bool:
    """True if a job runs as a plan started it."""
    if start.kill_at is None or start.kill_at <= running.started_at:
        return False
    here, there = (
        [replica.node for replica in replicas] for replicas in (running.replicas, start.after.replicas)
    )
    return sorted(here) == sorted(there)
