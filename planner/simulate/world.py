"""
World: a cluster and its jobs in memory, and the snapshot that a planner gets.

A world is immutable: an action or a time step returns a new world.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.policy.policy import Policy
from gpuplan.models.progress import recovering_seconds, unsaved_seconds, working_since
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.timing.durations import Durations
from gpuplan.planner.simulate.simulated_job import SimulatedJob, run_interval

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.dependency import FinishedJob
    from gpuplan.models.job import Job
    from gpuplan.models.queue import Queue
    from gpuplan.planner.simulate.trace import FutureSubmission, Physics, Trace
    from gpuplan.planner.sources.traces.outages import Outage

REMEMBERED: Final = 500
"""Number of recent finished jobs to learn durations from; older ones stay only if a job depends on them."""


@dataclass(frozen=True, slots=True)
class SimulatedWorld:
    """State at one time, with the events still to come, which are independent of the plans."""

    began: datetime
    now: datetime
    cluster: Cluster
    queues: tuple[Queue, ...]
    tasks: dict[str, SimulatedJob]
    """Running and pending jobs, by name."""
    physics: Physics
    coming: tuple[FutureSubmission, ...] = ()
    outages: tuple[Outage, ...] = ()
    finished: tuple[FinishedJob, ...] = ()
    """In the order of their ends."""

    def snapshot(self) -> Snapshot:
        """Snapshot for the planner, without true durations and future events."""
        return Snapshot(
            taken_at=self.now,
            cluster=self.cluster,
            queues=self.queues,
            jobs=tuple(self._seen(self.tasks[name]) for name in sorted(self.tasks)),
            finished=self.finished,
        ).canonical()

    def _seen(self, task: SimulatedJob) -> Job:
        running = task.job.running
        saved_at = task.checkpointed_at(self.now, self.physics.checkpoint_every)
        if running is None or saved_at is None or saved_at == running.last_checkpoint_at:
            return task.job
        return task.job.model_copy(
            update={"running": running.model_copy(update={"last_checkpoint_at": saved_at})}
        )


def initial_world(trace: Trace) -> SimulatedWorld:
    """
    The world at the beginning of a trace.

    The true duration of the snapshot's jobs is their expected duration: the declared one, or that of similar
    finished jobs, or an hour. A job that already exceeds it runs on for a part of the time that it ran.
    """
    start = trace.start
    durations = Durations(start, Policy())
    tasks = {job.name: _task(job, trace, durations) for job in start.jobs}
    return SimulatedWorld(
        began=start.taken_at,
        now=start.taken_at,
        cluster=start.cluster,
        queues=start.queues,
        tasks=tasks,
        physics=trace.physics,
        coming=trace.coming,
        outages=trace.outages,
        finished=tuple(sorted(start.finished, key=lambda job: (job.ended_at, job.name))),
    )


def _task(job: Job, trace: Trace, durations: Durations) -> SimulatedJob:
    kept = job.progress.completed_milli if job.progress else 0
    _, work = durations.work(job)
    task = SimulatedJob(job, need=kept + work, kept=kept, ran=job.has_run)
    running = job.running
    if running is None:
        return task
    now, works = trace.start.taken_at, working_since(running)
    nodes = dict(trace.start.cluster.node_by_name)
    # Saved work counts as done before, so the stretch begins at the last checkpoint.
    safe = max(works, running.last_checkpoint_at or works)
    begins = safe if works <= now else running.started_at
    stretch = run_interval(
        job, running.replicas, nodes, begins=begins, delay=int((safe - begins).total_seconds())
    )
    kept += stretch.rate * int((safe - works).total_seconds())
    # Remaining time without the kill time.
    unbound = job.model_copy(update={"running": running.model_copy(update={"kill_at": None})})
    left = durations.remaining(unbound) - recovering_seconds(job, now) + unsaved_seconds(job, now)
    return replace(task, need=kept + stretch.rate * left, kept=kept, interval=stretch)
