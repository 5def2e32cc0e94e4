"""Objective points of each change of a job; the reasons and the order of starts use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.placement import Placement
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.value.disruption_cost import disruption_points, resize_points
from gpuplan.models.value.start_value import StartValue
from gpuplan.models.verifier.verify import term_points

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.plan.desired_state import LaterStart
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges


@dataclass(frozen=True)
class ActionValue:
    """Objective points of the changes of one plan."""

    changes: PlanChanges
    policy: Policy
    _points: dict[str, int] = field(default_factory=dict)

    def points(self, change: JobChange) -> int:
        """Points that the change adds to the objective: work gained or lost, less the price of the change."""
        name = change.job.name
        if name not in self._points:
            self._points[name] = self._count(change)
        return self._points[name]

    def _count(self, change: JobChange) -> int:
        job = change.job
        gained = self.value(job, change.after, change) - self.value(job, change.before, change)
        match change.kind:
            case ActionKind.START:
                return gained + self._once(change, seconds=self._seconds(change, change.after))
            case ActionKind.PREEMPT:
                lost = self._earnings.saved_lateness(job, start=0, seconds=self._remaining(job))
                return gained - lost + self._again(job) + self.disruption(change)
            case _:
                return gained + self.disruption(change)

    def disruption(self, change: JobChange) -> int:
        """Points of the change in the term `preemption`, `migration` or `resize`; never positive."""
        job, now = change.job, self.changes.snapshot.taken_at
        match change.kind:
            case ActionKind.PREEMPT:
                return -disruption_points(self.policy, job, now)
            case ActionKind.MIGRATE:
                return -disruption_points(self.policy, job, now) - self.policy.prices.migration
            case ActionKind.SHRINK | ActionKind.GROW:
                return -resize_points(self.policy, job, now)
            case _:
                return 0

    def larger_blocks(self, change: JobChange) -> int:
        """Fragmentation points that a migration gains, all other jobs placed as planned."""
        names = {*change.nodes_left, *change.nodes_taken}
        there = [
            each for name in sorted(names) for each in self.changes.allocations_after.there.get(name, ())
        ]
        others = [
            Placement(job=job.name, replicas=(each,)) for job, each in there if job.name != change.job.name
        ]
        nodes = tuple(node for node in self.changes.cluster.nodes if node.name in names)
        cluster = self.changes.cluster.model_copy(update={"nodes": nodes})
        world = self.changes.snapshot.model_copy(update={"cluster": cluster, "jobs": ()})
        stays, moves = (
            term_points("fragmentation", world, self.policy, (*others, *([mine] if mine else ())))
            for mine in (change.before, change.after)
        )
        return moves - stays

    def value(self, job: Job, placement: Placement | None, change: JobChange) -> int:
        """Completion points of the job at a placement, from now on; 0 without a placement."""
        if placement is None:
            return 0
        model = self.gpu_model(job, placement)
        return self._earnings.completion(
            job, model, len(placement.replicas), seconds=self._seconds(change, placement)
        )

    def _once(self, change: JobChange, *, seconds: int) -> int:
        """Points of the lateness that a start avoids, less the tariff of its GPU-hours."""
        job, placement = change.job, change.after
        if placement is None:
            return 0
        tariff = self._earnings.tariff_points(
            job, self.gpu_model(job, placement), len(placement.replicas), start=0, seconds=seconds
        )
        return self._earnings.saved_lateness(job, start=0, seconds=seconds) - tariff

    def _again(self, job: Job) -> int:
        """Points of a preempted job's later restart; 0 if the plan has no start time for it."""
        planned = next((each for each in self.changes.target.planned if each.job == job.name), None)
        if planned is None:
            return 0
        model, count = self.gpu_model(job, planned), len(planned.replicas)
        start = self._earnings.slots.edges[planned.slot]
        seconds = self._earnings.durations.again(job, model)
        return (
            self._earnings.completion(job, model, count, start=start, seconds=seconds)
            + self._earnings.saved_lateness(job, start=start, seconds=seconds)
            - self._earnings.tariff_points(job, model, count, start=start, seconds=seconds)
        )

    def _seconds(self, change: JobChange, placement: Placement | None) -> int:
        """Seconds that the job runs there: the whole duration if it starts, the rest if it is running."""
        job = change.job
        model = None if placement is None else self.gpu_model(job, placement)
        if job.running is None or change.before is None:
            return self._earnings.durations.seconds(job, model)
        if change.kind is not ActionKind.MIGRATE or placement is not change.after:
            return self._remaining(job)
        return self._earnings.durations.restart_seconds_now(job, model)

    def _remaining(self, job: Job) -> int:
        return self._earnings.durations.remaining(job)

    @cached_property
    def _earnings(self) -> StartValue:
        return StartValue(self.changes.snapshot, self.policy)

    def gpu_model(self, job: Job, placement: Placement | LaterStart) -> str | None:
        """GPU model of a placement; None for a job without GPUs."""
        node = self.changes.nodes[placement.replicas[0].node]
        return node.gpu_model if job.request.needs_gpu else None
