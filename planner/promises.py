"""Promises of a plan: the step that makes a cluster keep them, and how they reach a snapshot without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.effects import changes_of
from planner.models.plan import Start
from planner.models.promise import Promise
from planner.wording import counted

if TYPE_CHECKING:
    from planner.models.job import Job, Running
    from planner.models.plan import Change, Plan
    from planner.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PromiseStep:
    """The last step of a plan that looks ahead: waiting jobs are promised what it says, and nothing else."""

    promises: dict[str, Promise]
    """By job, sorted; who waits and is not here is promised nothing any more."""
    id: str = "promises"
    type: str = "promise"

    def __str__(self) -> str:
        return counted(len(self.promises), "promise")


Step: TypeAlias = "Change | PromiseStep"
"""What apply does one after the other."""

SUBJECT: Final = "waiting jobs"
"""What the step is about, in the audit log."""


def promises_of(plan: Plan) -> dict[str, Promise]:
    """What a plan promises, by job, sorted."""
    promised = {each.job: each for each in plan.planned if each.promised}
    return {
        job: Promise(start=promised[job].start, replicas=promised[job].replicas) for job in sorted(promised)
    }


def promise_step(plan: Plan) -> PromiseStep | None:
    """
    The step in which the promises are made.

    None where a plan of this instant alone was asked of a cluster without promises, and where there is
    nothing to do at all.
    """
    promises = promises_of(plan)
    earlier = any(job.promise for job in plan.snapshot.jobs)
    looks_ahead = plan.policy.horizon.slots > 1 and plan.has_changes
    return PromiseStep(promises) if promises or earlier or looks_ahead else None


def steps_of(plan: Plan) -> list[Step]:
    """The actions that change the cluster, in their order, and at last the step of the promises."""
    step = promise_step(plan)
    return [*changes_of(plan.actions), *([step] if step else [])]


def carry_over(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """
    The snapshot with what an earlier plan left in force that the cluster itself does not remember.

    Waiting jobs without a promise get the plan's; jobs that run where the plan started them are killed when
    it said.
    """
    promises = promises_of(plan)
    starts = {action.job: action for action in plan.actions if isinstance(action, Start) and action.kill_at}
    jobs = tuple(
        _reminded(job, promise=promises.get(job.name), start=starts.get(job.name)) for job in snapshot.jobs
    )
    return snapshot.model_copy(update={"jobs": jobs})


def _reminded(job: Job, *, promise: Promise | None, start: Start | None) -> Job:
    if job.running is None:
        return job if promise is None or job.promise else job.model_copy(update={"promise": promise})
    if start is None or not _is_of(job.running, start):
        return job
    running = job.running.model_copy(update={"kill_at": start.kill_at})
    return job.model_copy(update={"running": running})


def _is_of(running: Running, start: Start) -> bool:
    """True if a job runs as a plan started it and nobody has said when it is killed."""
    if running.kill_at is not None or start.kill_at is None or start.kill_at <= running.started_at:
        return False
    here, there = (
        [replica.node for replica in replicas] for replicas in (running.replicas, start.after.replicas)
    )
    return sorted(here) == sorted(there)
