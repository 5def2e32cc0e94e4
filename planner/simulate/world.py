"""
World: a cluster and its jobs in memory, the snapshot that a planner gets, and the advance of time.

A world is immutable: an action or a time step returns a new world.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from gpuplan.models.dependency import FinishedJob, JobOutcome
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.learnt_speeds import with_learnt_scaling
from gpuplan.models.timing.progress import recovering_seconds, unsaved_seconds, working_since
from gpuplan.planner.analysis.metrics import gpus_in_use, hourly_cost
from gpuplan.planner.simulate.simulated_job import (
    NOTHING,
    GpuTimeFlow,
    JobEvent,
    JobEventKind,
    SimulatedJob,
    run_interval,
)
from gpuplan.planner.sources.traces.arrivals import NodeEvent

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.job import Job
    from gpuplan.models.queue import Queue
    from gpuplan.planner.simulate.trace import FutureSubmission, Physics, Trace
    from gpuplan.planner.sources.traces.arrivals import Outage


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
        """Snapshot for the planner, with learnt scaling, without true durations and future events."""
        seen = Snapshot(
            taken_at=self.now,
            cluster=self.cluster,
            queues=self.queues,
            jobs=tuple(self._seen(self.tasks[name]) for name in sorted(self.tasks)),
            finished=self.finished,
        )
        return with_learnt_scaling(seen).canonical()

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
    # A stretch that began before the simulation fails only after its start.
    fails = trace.physics.failure_after(job, max(now, stretch.works), len(running.replicas))
    stretch = replace(stretch, fails=fails)
    # Remaining time without the kill time.
    unbound = job.model_copy(update={"running": running.model_copy(update={"kill_at": None})})
    left = durations.remaining(unbound) - recovering_seconds(job, now) + unsaved_seconds(job, now)
    return replace(task, need=kept + stretch.rate * left, kept=kept, interval=stretch)


# Advance of time in a world: jobs end, nodes fail and return, further jobs are submitted.


_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Elapsed:
    """A world after some time."""

    world: SimulatedWorld
    happened: tuple[JobEvent, ...]
    """In order of time; at the same time, ends come first."""
    flow: GpuTimeFlow = NOTHING


def advance_world(world: SimulatedWorld, until: datetime) -> Elapsed:
    """Advance time; each event happens at its own second, not at the next epoch."""
    happened: list[JobEvent] = []
    flow = GpuTimeFlow()
    for moment in _moments(world, until):
        passed = _work(world, moment)
        world, flow = passed.world, flow + passed.flow
        happened += passed.happened
        world, interrupted = _outages(_nodes_up(world))
        happened += interrupted
    world, submitted = _submissions(world)
    return Elapsed(world, (*happened, *submitted), flow)


def _moments(world: SimulatedWorld, until: datetime) -> list[datetime]:
    """Times at which nodes change, and the end."""
    failing = (world.began + timedelta(seconds=each.after) for each in world.outages)
    coming_up = (node.ready_at for node in world.cluster.nodes if node.ready_at is not None)
    changes = {at for at in (*failing, *coming_up) if world.now < at < until}
    return sorted({*changes, until})


def _work(world: SimulatedWorld, until: datetime) -> Elapsed:
    """Advance all jobs in a span without node changes; jobs that end or are killed are removed."""
    ended: list[tuple[datetime, str, JobEventKind]] = []
    held = 0
    for name, task in world.tasks.items():
        if task.interval is None or task.job.running is None:
            continue
        at = max(task.ends_at(), world.now)
        if at <= until:
            ended.append((at, name, task.end_kind()))
        held += task.interval.gpu_milli * _overlap(max(task.interval.begins, world.now), min(at, until))
    seconds = _overlap(world.now, until)
    up = tuple(node for node in world.cluster.nodes if node.ready_at is None or node.ready_at <= world.now)
    _, usable = gpus_in_use(world.cluster.model_copy(update={"nodes": up}), ())
    cost = hourly_cost(world.cluster) * seconds / _SECONDS_PER_HOUR
    tasks, happened, finished = dict(world.tasks), list[JobEvent](), list(world.finished)
    for at, name, kind in sorted(ended):
        task = tasks.pop(name)
        if kind is JobEventKind.INTERRUPTED:
            tasks[name], stretch = task.failed(at, world.physics)
            happened.append(JobEvent(at, kind, name, stretch))
        else:
            happened.append(JobEvent(at, kind, name, task.ended(at)))
            finished.append(_over(task, happened[-1], began=world.began))
    later = replace(world, now=until, tasks=tasks)
    later = replace(later, finished=_remembered(later, tuple(finished)))
    return Elapsed(later, tuple(happened), GpuTimeFlow(held=held, usable=usable.total() * seconds, cost=cost))


def _over(task: SimulatedJob, end: JobEvent, *, began: datetime) -> FinishedJob:
    """
    The finished job; its times give the duration of the whole job at the places where it ran last.

    A job that was there from the beginning takes as long as it declared, so its size teaches nothing.
    """
    whole = timedelta(seconds=-(-task.need // task.begun.rate))
    killed = end.kind is JobEventKind.KILLED
    running = task.job.running
    return FinishedJob(
        name=task.job.name,
        queue=task.job.queue,
        user=task.job.user,
        outcome=JobOutcome.FAILED if killed else JobOutcome.SUCCEEDED,
        started_at=min(task.begun.begins, end.at) if killed else end.at - whole,
        ended_at=end.at,
        replicas=len(running.replicas) if running and task.job.submitted_at >= began else None,
        gpu_model=task.begun.gpu_model,
    )


def _remembered(world: SimulatedWorld, finished: tuple[FinishedJob, ...]) -> tuple[FinishedJob, ...]:
    """The most recent finished jobs, and those that other jobs depend on."""
    forgotten = finished[:-REMEMBERED]
    if not forgotten:
        return finished
    needed = {each.job for task in world.tasks.values() for each in task.job.depends_on}
    return (*(each for each in forgotten if each.name in needed), *finished[-REMEMBERED:])


def _nodes_up(world: SimulatedWorld) -> SimulatedWorld:
    """Mark nodes as ready once they are provisioned."""
    up = [node for node in world.cluster.nodes if node.ready_at is not None and node.ready_at <= world.now]
    return _with_nodes(world, [node.model_copy(update={"ready_at": None}) for node in up])


def _outages(world: SimulatedWorld) -> tuple[SimulatedWorld, tuple[JobEvent, ...]]:
    """Apply due outages: nodes fail, and their jobs are pending again; other nodes return."""
    due = _due(world)
    if not due:
        return world, ()
    ready = {outage.node: outage.event is NodeEvent.RETURNS for outage in due}
    down = {outage.node for outage in due if outage.event is NodeEvent.FAILS}
    tasks, happened = dict(world.tasks), []
    for name, task in sorted(tasks.items()):
        running = task.job.running
        if running is not None and any(replica.node in down for replica in running.replicas):
            tasks[name], held = task.stopped(world.now, world.physics)
            happened.append(JobEvent(world.now, JobEventKind.INTERRUPTED, name, held))
    nodes = world.cluster.node_by_name
    changed = [nodes[name].model_copy(update={"ready": up}) for name, up in ready.items() if name in nodes]
    left = replace(world, tasks=tasks, outages=world.outages[len(due) :])
    return _with_nodes(left, changed), tuple(happened)


def _due(world: SimulatedWorld) -> tuple[Outage, ...]:
    passed = (world.now - world.began).total_seconds()
    return tuple(outage for outage in world.outages if outage.after <= passed)


def _submissions(world: SimulatedWorld) -> tuple[SimulatedWorld, tuple[JobEvent, ...]]:
    """Add the jobs that are submitted by now."""
    number = next(
        (index for index, each in enumerate(world.coming) if each.job.submitted_at > world.now),
        len(world.coming),
    )
    if not number:
        return world, ()
    new = world.coming[:number]
    tasks = world.tasks | {each.job.name: SimulatedJob.of(each.job, each.duration) for each in new}
    happened = tuple(JobEvent(each.job.submitted_at, JobEventKind.SUBMITTED, each.job.name) for each in new)
    return replace(world, tasks=tasks, coming=world.coming[number:]), happened


def _with_nodes(world: SimulatedWorld, changed: list[Node]) -> SimulatedWorld:
    """The world with changed nodes; the cluster object stays the same if there are none."""
    if not changed:
        return world
    nodes = world.cluster.node_by_name | {node.name: node for node in changed}
    cluster = world.cluster.model_copy(update={"nodes": tuple(nodes[name] for name in sorted(nodes))})
    return replace(world, cluster=cluster)


def _overlap(begin: datetime, end: datetime) -> int:
    return max(0, int((end - begin).total_seconds()))
