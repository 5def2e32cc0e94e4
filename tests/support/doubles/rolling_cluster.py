"""
Rolling planning: a world is planned, the plan is carried out, some time passes, and it is planned again.

Pure: no files, no executor. Jobs end when their true durations are over, whatever they declared; promises of
a plan stay with the jobs that wait, and every promise ever made is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from gpuplan.models.dependency import FinishedJob, JobOutcome
from gpuplan.models.placement import Running
from gpuplan.models.plan.actions import Migrate, Preempt, Start, changes_of
from gpuplan.models.timing.durations import Durations
from gpuplan.planner.analysis.effects import ClusterView, apply_action
from gpuplan.planner.apply.promises import promises_of
from gpuplan.planner.epoch import plan_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True)
class Told:
    """One promise of one plan."""

    epoch: int
    start: datetime


@dataclass
class Rolling:
    """A world over time, with all that its jobs were promised."""

    snapshot: Snapshot
    policy: Policy
    factor: Callable[[Job], float] = lambda _: 1.0
    """True duration of a job, as a multiple of the one that it declares."""
    epoch: int = 0
    ends: dict[str, datetime] = field(default_factory=dict)
    """When each running job truly ends."""
    told: dict[str, list[Told]] = field(default_factory=dict)
    """Promises ever made to each job that waits, in the order they were made."""
    started: dict[str, datetime] = field(default_factory=dict)
    """When each job started, the last time."""
    late: list[tuple[str, Told, datetime]] = field(default_factory=list)
    """Promises that were not met: (job, promise, when it started, or that it waits still)."""
    met: int = 0
    """Promises that were met."""

    def __post_init__(self) -> None:
        for job in self.snapshot.jobs:
            if job.running:
                self._runs(job)

    @property
    def now(self) -> datetime:
        return self.snapshot.taken_at

    def plan(self, policy: Policy | None = None) -> Plan:
        """The plan of this instant; raises PlannerError where it breaks a rule."""
        return plan_epoch(self.snapshot, policy or self.policy, seed=0, created_at=self.now)

    def step(self, seconds: int, arrivals: tuple[Job, ...] = ()) -> Plan:
        """Plan, carry it out, and let some time pass; then further jobs arrive."""
        plan = self.plan()
        self.apply(plan)
        self.advance(seconds, arrivals)
        return plan

    def apply(self, plan: Plan) -> None:
        """Carry out a plan at this instant."""
        promises, jobs, view = promises_of(plan), {}, ClusterView(self.snapshot)
        nodes = view.nodes
        for change in changes_of(plan.actions):
            apply_action(view, change)
            # A node that comes up takes its pool's time for that.
            if change.type == "scale_up" and change.provisioning:
                up = self.now + timedelta(seconds=change.provisioning)
                nodes[change.node] = nodes[change.node].model_copy(update={"ready_at": up})
        changes = {each.job: each for each in changes_of(plan.actions) if hasattr(each, "job")}
        placed = {each.job: each.replicas for each in plan.placements}
        for job in self.snapshot.jobs:
            jobs[job.name] = self._changed(job, changes.get(job.name), placed.get(job.name), nodes)
            if jobs[job.name].running is None:
                promise = promises.get(job.name)
                jobs[job.name] = jobs[job.name].model_copy(update={"promise": promise})
        cluster = self.snapshot.cluster.model_copy(update={"nodes": tuple(nodes.values())})
        update = {"jobs": tuple(jobs.values()), "cluster": cluster}
        self.snapshot = self.snapshot.model_copy(update=update).canonical()
        for job in self.snapshot.jobs:
            if job.running and (job.name in changes):
                self._runs(job)
            self._keep_account(job, changes.get(job.name), promises)
        self.epoch += 1

    def advance(self, seconds: int, arrivals: tuple[Job, ...] = ()) -> None:
        """Let some time pass: jobs end; then others arrive."""
        now = self.now + timedelta(seconds=seconds)
        jobs, finished = [], list(self.snapshot.finished)
        for job in self.snapshot.jobs:
            end = self.ends.get(job.name)
            if job.running is None or end is None or end > now:
                jobs.append(job)
                continue
            killed = job.running.kill_at is not None and job.running.kill_at < self._true_end(job)
            finished.append(
                FinishedJob(
                    name=job.name,
                    queue=job.queue,
                    user=job.user,
                    outcome=JobOutcome.FAILED if killed else JobOutcome.SUCCEEDED,
                    started_at=min(job.running.started_at, end),
                    ended_at=end,
                )
            )
            del self.ends[job.name]
        jobs += arrivals
        needed = {each.job for job in jobs for each in job.depends_on}
        update = {
            "taken_at": now,
            "jobs": tuple(jobs),
            "finished": tuple(each for each in finished if each.name in needed),
        }
        self.snapshot = self.snapshot.model_copy(update=update).canonical()

    def change_cluster(self, **update) -> None:
        """Replace parts of the cluster."""
        cluster = self.snapshot.cluster.model_copy(update=update)
        self.snapshot = self.snapshot.model_copy(update={"cluster": cluster}).canonical()

    def fail_node(self, name: str, *, gone: bool) -> Node:
        """A node is gone, or not ready any more; its jobs wait again. The node as it was."""
        jobs = []
        for job in self.snapshot.jobs:
            if job.running and any(replica.node == name for replica in job.running.replicas):
                self.ends.pop(job.name, None)
                jobs.append(job.model_copy(update={"running": None}))
            else:
                jobs.append(job)
        lost = self.snapshot.cluster.node_by_name[name]
        nodes = [node for node in self.snapshot.cluster.nodes if node.name != name]
        if not gone:
            nodes.append(lost.model_copy(update={"ready": False}))
        self.snapshot = self.snapshot.model_copy(update={"jobs": tuple(jobs)})
        self.change_cluster(nodes=tuple(nodes))
        return lost

    def repair(self, node: Node) -> None:
        """A node that failed is there again."""
        others = [other for other in self.snapshot.cluster.nodes if other.name != node.name]
        self.change_cluster(nodes=(*others, node))

    def waiting(self) -> Iterator[Job]:
        """Jobs that wait now."""
        return (job for job in self.snapshot.jobs if job.running is None)

    # --- the parts of all that -----------------------------------------------------------------------------

    def _changed(self, job, change, replicas, nodes) -> Job:
        match change:
            case None:
                return job
            case Preempt():
                self.ends.pop(job.name, None)
                self.told.pop(job.name, None)
                return job.model_copy(update={"running": None})
            case Start():
                ready = [nodes[each.node].ready_at for each in replicas]
                begins = max([self.now, *(each for each in ready if each)])
                running = Running(started_at=begins, kill_at=change.kill_at, replicas=replicas)
                return job.model_copy(update={"running": running, "promise": None})
            case Migrate():
                update = {"replicas": replicas, "last_checkpoint_at": self.now}
                return job.model_copy(update={"running": job.running.model_copy(update=update)})
            case _:
                running = job.running.model_copy(update={"replicas": replicas})
                return job.model_copy(update={"running": running})

    def _true_end(self, job: Job) -> datetime:
        durations = Durations(self.snapshot, self.policy)
        seconds = durations.seconds(job, durations.gpu_model(job))
        return job.running.started_at + timedelta(seconds=round(seconds * self.factor(job)))

    def _runs(self, job: Job) -> None:
        end = self._true_end(job)
        self.ends[job.name] = min(end, job.running.kill_at or end)

    def _keep_account(self, job, change, promises) -> None:
        """Compare the promises made to a job with what has become of it, and note new ones."""
        for each in self.told.get(job.name, ()):
            if job.running is not None or each.start <= self.now:
                if self.now > each.start or job.running is None:
                    self.late.append((job.name, each, self.now))
                else:
                    self.met += 1
        if job.running is not None:
            self.told.pop(job.name, None)
            if isinstance(change, Start):
                self.started[job.name] = self.now
        elif job.name in promises:
            self.told.setdefault(job.name, []).append(Told(self.epoch, promises[job.name].start))
