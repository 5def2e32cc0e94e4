"""Question: may this one job start, with everything else as a plan leaves it and a few things changed?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from planner.models.dependency import FinishedJob, Outcome
from planner.models.target import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.models.cluster import Cluster, Node
    from planner.models.job import Job
    from planner.models.placement import Placement
    from planner.models.plan import Plan
    from planner.models.policy import Policy
    from planner.models.queue import Queue
    from planner.models.snapshot import Snapshot


@dataclass(frozen=True)
class Question:
    """
    A plan, a job that waits in it, and what is different from what the plan knows.

    Nothing here is decided: a question only says how the world would be.
    """

    plan: Plan
    job: Job
    """As it would be."""
    policy: Policy
    queues: tuple[Queue, ...]
    nodes: tuple[Node, ...] = ()
    """New ones, and others than they are, by name."""
    stopped: frozenset[str] = frozenset()
    """Jobs that run no more, or that the plan would not start."""
    over: frozenset[str] = frozenset()
    """Jobs that have ended well."""

    @classmethod
    def about(cls, plan: Plan, job: Job) -> Question:
        """Nothing is changed."""
        return cls(plan, job, plan.policy, plan.snapshot.queues)

    @cached_property
    def gone(self) -> frozenset[str]:
        """Jobs that hold nothing any more."""
        return self.stopped | self.over

    def snapshot(self, jobs: Mapping[str, Job], cluster: Cluster, *, by_hand: bool = False) -> Snapshot:
        """
        The world as it would be, where it else has these jobs by name and this cluster.

        A stopped job runs or waits in it as the plan found it, so that stopping it is the plan's affair;
        `by_hand` somebody has stopped it before, and holds it.
        """
        snapshot = self.plan.snapshot
        found = []
        for job in snapshot.jobs:
            if job.name == self.job.name:
                found.append(self.job)
            elif job.name in self.stopped:
                found.append(job.model_copy(update={"running": None, "held": True}) if by_hand else job)
            elif job.name not in self.over:
                found.append(jobs[job.name])
        if self.nodes:
            nodes = cluster.node_by_name | {node.name: node for node in self.nodes}
            cluster = cluster.model_copy(update={"nodes": tuple(nodes[name] for name in sorted(nodes))})
        return snapshot.model_copy(
            update={
                "jobs": tuple(found),
                "queues": self.queues,
                "cluster": cluster,
                "finished": (*snapshot.finished, *self._ended(snapshot)),
            }
        )

    def target(self, placement: Placement | None) -> Target:
        """
        The plan's target without those who are over.

        With the job on a placement those are left out as well who are stopped for it.
        """
        target, name = self.plan.target, self.job.name
        gone = self.over if placement is None else self.gone
        left = [each for each in target.placements if each.job not in gone]
        if placement is not None:
            left = sorted([*left, placement], key=lambda each: each.job)
        return Target(
            placements=tuple(left),
            added=target.added,
            removed=target.removed,
            planned=tuple(each for each in target.planned if placement is None or each.job != name),
        )

    def _ended(self, snapshot: Snapshot) -> list[FinishedJob]:
        jobs, now = snapshot.job_by_name, snapshot.taken_at
        return [
            FinishedJob(
                name=name,
                queue=jobs[name].queue,
                user=jobs[name].user,
                outcome=Outcome.SUCCEEDED,
                started_at=running.started_at if (running := jobs[name].running) else now,
                ended_at=now,
            )
            for name in sorted(self.over)
        ]
