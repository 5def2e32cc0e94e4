"""
External events of the simulated cluster: time passes, jobs are submitted, nodes fail and come back.

No plan does these, so they are not operations with a key. A failure or return of a node takes a second.
Otherwise the cluster could have the same state twice at the same time. Its plan would then have the same id,
and all its actions would count as done already.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.dependency import FinishedJob, JobOutcome, RetryWhen
from gpuplan.models.errors import PlannerError, listed
from gpuplan.models.timing.progress import running_speed_milli, working_since
from gpuplan.models.units import MILLI
from gpuplan.models.validation.base import gpu_indices
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.executors.simulated_jobs import interrupt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.calendar import Reservation
    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.planner.executors.simulated_tables import Tables

_MOMENT: Final = 1
"""Seconds that a failure or return of a node takes."""


def advance_clock(tables: Tables, seconds: int) -> datetime:
    """Advance the clock: finish jobs that end by then, and make nodes provisioned by then ready."""
    old = tables.clock()
    new = old + timedelta(seconds=seconds)
    for job, end, killed in tables.ending_by(new):
        at = max(old, datetime.fromtimestamp(end, tz=UTC))
        outcome = JobOutcome.FAILED if killed else JobOutcome.SUCCEEDED
        # A job that is killed so that another one can start is not tried again.
        if killed or not _requeue(tables, job, outcome, at):
            tables.finish(_over(job, at=at, outcome=outcome, pace=_pace(tables, job)))
    for node in tables.nodes_ready_by(new):
        tables.put_node(node.model_copy(update={"ready_at": None}))
    tables.set_clock(new)
    return new


def end_job(tables: Tables, name: str, outcome: JobOutcome) -> bool:
    """End a running job, which takes a second; True if it waits again, as its retry rule says."""
    advance_clock(tables, _MOMENT)
    job = tables.job(name)
    if job is None or job.running is None:
        found = "no such job" if job is None else "it waiting"
        raise PlannerError(
            f"expected job {name} to run, found {found}.\n`gpuplan snapshot --from simulated` lists the jobs."
        )
    if _requeue(tables, job, outcome, tables.clock()):
        return True
    tables.finish(_over(job, at=tables.clock(), outcome=outcome, pace=_pace(tables, job)))
    return False


def _requeue(tables: Tables, job: Job, outcome: JobOutcome, at: datetime) -> bool:
    """
    Let a job that has ended wait again, if its retry rule says so; False if it does not.

    After a failure it keeps what its last checkpoint saved, after a success it begins anew.
    """
    if job.retry is None:
        return False
    if outcome is JobOutcome.SUCCEEDED:
        if job.retry.when is not RetryWhen.ALWAYS:
            return False
        anew = {"progress": None, "failures": 0, "failed_at": None, "submitted_at": at}
        tables.put_running(job.model_copy(update=anew), None, ends_at=None)
        return True
    failures = job.failures + 1
    if job.retry.is_used_up(failures):
        return False
    interrupt(tables, job.model_copy(update={"failures": failures, "failed_at": at}))
    return True


def submit(tables: Tables, jobs: Sequence[Job]) -> None:
    """
    Add pending jobs, all or none.

    Raises
    ------
    PlannerError
        Lists all problems: a job that is running, a name that is taken, a queue that is unknown.
    """
    live = tables.snapshot()
    problems = [f"job {job.name} runs; expected jobs that wait." for job in jobs if job.running is not None]
    waiting = tuple(job for job in jobs if job.running is None)
    # The new jobs are last, so that a problem's location tells whether it concerns one of them.
    whole = live.model_copy(update={"jobs": (*live.jobs, *waiting)})
    problems += [
        problem.message
        for problem in inconsistencies(whole)
        if problem.location[0] == "jobs" and int(problem.location[1]) >= len(live.jobs)
    ]
    if problems:
        raise PlannerError(
            f"the cluster takes none of these jobs:{listed(problems)}\n"
            "Correct them and submit all of them again."
        )
    for job in jobs:
        tables.add_job(job)


def announce(tables: Tables, window: Reservation, *, drains: bool) -> None:
    """Add a reservation window, in place of one of its name; its nodes are to be drained if `drains`."""
    advance_clock(tables, _MOMENT)
    tables.put_reservation(window)
    for name in window.nodes if drains else ():
        tables.put_node(_node(tables, name).model_copy(update={"drain": True}))


def fail_node(tables: Tables, name: str) -> tuple[str, ...]:
    """Take a node down; its jobs are pending again with their saved progress. Returns their names."""
    advance_clock(tables, _MOMENT)
    node = _node(tables, name)
    if not node.ready:
        raise PlannerError(
            f"expected a node that is up, found {name} down already.\n"
            f"`gpuplan simulated return {name}` brings it back."
        )
    # A job that only has places reserved there waits on.
    stopped = [job for job in filter(None, map(tables.job, tables.jobs_on(name))) if job.running]
    for job in stopped:
        interrupt(tables, job)
    tables.put_node(node.model_copy(update={"ready": False}))
    return tuple(job.name for job in stopped)


def fail_gpu(tables: Tables, name: str, index: int) -> tuple[str, ...]:
    """Make a GPU unhealthy; returns the jobs that hold it, which run on until a plan releases them."""
    node = _with_health(tables, name, index, healthy=False)
    tables.put_node(node)
    return tuple(
        job.name
        for job in filter(None, map(tables.job, tables.jobs_on(name)))
        if job.running
        and any(
            replica.node == name and any(held.index == index for held in replica.gpus)
            for replica in job.running.replicas
        )
    )


def repair_gpu(tables: Tables, name: str, index: int) -> None:
    """Make an unhealthy GPU healthy again."""
    tables.put_node(_with_health(tables, name, index, healthy=True))


def _with_health(tables: Tables, name: str, index: int, *, healthy: bool) -> Node:
    """The node with one GPU set to healthy or unhealthy; advances the clock by a second."""
    advance_clock(tables, _MOMENT)
    node = _node(tables, name)
    gpu = node.gpus.by_index.get(index) if node.gpus else None
    if node.gpus is None or gpu is None:
        raise PlannerError(f"node {name} has no GPU {index}; expected {gpu_indices(node.gpu_count)}.")
    if gpu.healthy is healthy:
        state = "healthy" if healthy else "unhealthy"
        raise PlannerError(f"GPU {index} of node {name} is {state} already; there is nothing to change.")
    others = (other for other in node.gpus.details if other.index != index)
    details = sorted(
        (*others, gpu.model_copy(update={"healthy": healthy, "fault": ""})), key=lambda each: each.index
    )
    return node.model_copy(update={"gpus": node.gpus.model_copy(update={"details": tuple(details)})})


def return_node(tables: Tables, name: str) -> None:
    """Bring a node that is down back up."""
    advance_clock(tables, _MOMENT)
    node = _node(tables, name)
    if node.ready:
        raise PlannerError(f"expected a node that is down, found {name} up.\nThere is nothing to bring back.")
    tables.put_node(node.model_copy(update={"ready": True}))


def _over(job: Job, *, at: datetime, outcome: JobOutcome, pace: int) -> FinishedJob:
    """The finished job; its times give the duration of the whole job at the places where it ran last."""
    started_at = min(at, working_since(job.running)) if job.running else at
    if outcome is JobOutcome.SUCCEEDED and job.expected_duration is not None:
        whole = -(-job.expected_duration * MILLI // pace)
        started_at = min(started_at, at - timedelta(seconds=whole))
    return FinishedJob(
        name=job.name,
        queue=job.queue,
        user=job.user,
        outcome=outcome,
        started_at=started_at,
        ended_at=at,
    )


def _pace(tables: Tables, job: Job) -> int:
    return running_speed_milli(job, tables.nodes_of(job.running_replicas))


def _node(tables: Tables, name: str) -> Node:
    node = tables.node(name)
    if node is None:
        raise PlannerError(
            f"expected a node of the cluster, found none named {name!r}.\n"
            "`gpuplan snapshot --from simulated` lists them."
        )
    return node
