"""Question: could this job start if a few things changed and the rest stayed as the plan leaves it?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuplan.models.dependency import FinishedJob, JobOutcome
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.timing.durations import Durations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.cluster import Cluster, Node, RackPower
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.queue import Queue
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True)
class Hypothesis:
    """
    A plan, a job that waits in it, and the changes against what the plan knows.

    It decides nothing; it only describes the hypothetical state.
    """

    plan: Plan
    job: Job
    """The job with its changes."""
    policy: Policy
    queues: tuple[Queue, ...]
    rack_power: tuple[RackPower, ...]
    others: tuple[Job, ...] = ()
    """Other waiting jobs that have to start together with the job, with their changes."""
    nodes: tuple[Node, ...] = ()
    """New nodes and changed nodes, by name."""
    stopped: frozenset[str] = frozenset()
    """Running jobs that are stopped, and jobs that the plan would start but now does not."""
    over: frozenset[str] = frozenset()
    """Jobs that have ended successfully."""
    begun: tuple[Placement, ...] = ()
    """Placements of later starts of the plan that have happened."""
    second: int = 0
    """Time of the question, in seconds after the snapshot."""

    @classmethod
    def unchanged(cls, plan: Plan, job: Job, others: tuple[Job, ...] = ()) -> Hypothesis:
        """Return a question with no changes."""
        snapshot = plan.snapshot
        return cls(plan, job, plan.rules, snapshot.queues, snapshot.cluster.rack_power, others)

    @property
    def members(self) -> tuple[Job, ...]:
        """The job, and all jobs that start together with it."""
        return (self.job, *self.others)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the members."""
        return frozenset(job.name for job in self.members)

    def by_member(self) -> tuple[Hypothesis, ...]:
        """The same question, asked about each member."""
        return tuple(self.for_member(job.name) for job in self.members)

    def for_member(self, name: str) -> Hypothesis:
        """The same question, asked about one of the members."""
        if name == self.job.name:
            return self
        job = next(each for each in self.others if each.name == name)
        return replace(self, job=job, others=tuple(each for each in self.members if each is not job))

    @cached_property
    def gone(self) -> frozenset[str]:
        """Jobs that no longer hold anything."""
        return self.stopped | self.over

    @cached_property
    def node_by_name(self) -> dict[str, Node]:
        """The new and the changed nodes."""
        return {node.name: node for node in self.nodes}

    def snapshot(self, jobs: Mapping[str, Job], cluster: Cluster, *, by_hand: bool = False) -> Snapshot:
        """
        Build the hypothetical snapshot from these jobs by name and this cluster.

        By default a stopped job runs or waits in it as in the plan's snapshot, so that the plan itself stops
        it. With `by_hand` an operator has already stopped the job and holds it.
        """
        snapshot, members = self.plan.snapshot, {job.name: job for job in self.members}
        found = []
        for job in snapshot.jobs:
            if job.name in members:
                found.append(members[job.name])
            elif job.name in self.stopped:
                by_itself = Durations(snapshot, self.policy).stopped(job) if by_hand else job
                found.append(by_itself.model_copy(update={"held": True}) if by_hand else job)
            elif job.name not in self.over:
                found.append(jobs[job.name])
        update: dict[str, Any] = {}
        if self.nodes:
            nodes = cluster.node_by_name | self.node_by_name
            update["nodes"] = tuple(nodes[name] for name in sorted(nodes))
        if self.rack_power is not snapshot.cluster.rack_power:
            update["rack_power"] = self.rack_power
        return snapshot.model_copy(
            update={
                "jobs": tuple(found),
                "queues": self.queues,
                "cluster": cluster.model_copy(update=update) if update else cluster,
                "finished": (*snapshot.finished, *self._ended(snapshot)),
                "taken_at": snapshot.taken_at + timedelta(seconds=self.second),
            }
        )

    def target(
        self, placements: tuple[Placement, ...], *, without: frozenset[str] | None = None
    ) -> DesiredState:
        """Return the plan's target without some jobs (by default `gone`) and with the members placed."""
        target = self.plan.target
        gone = self.gone if without is None else without
        left = [each for each in target.placements if each.job not in gone]
        started = {each.job for each in (*placements, *self.begun)} | gone
        return DesiredState(
            placements=tuple(sorted([*left, *placements, *self.begun], key=lambda each: each.job)),
            added=target.added,
            removed=target.removed,
            planned=tuple(each for each in target.planned if each.job not in started),
        )

    def _ended(self, snapshot: Snapshot) -> list[FinishedJob]:
        jobs, now = snapshot.job_by_name, snapshot.taken_at
        return [
            FinishedJob(
                name=name,
                queue=jobs[name].queue,
                user=jobs[name].user,
                outcome=JobOutcome.SUCCEEDED,
                started_at=running.started_at if (running := jobs[name].running) else now,
                ended_at=now,
            )
            for name in sorted(self.over)
        ]
