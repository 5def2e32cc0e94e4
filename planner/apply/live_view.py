"""Preconditions of a plan's actions, checked on the live cluster with the effects of done actions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from gpuplan.models.eligibility.free_resources import FreeResources, charged_cpu_memory
from gpuplan.models.plan.actions import Keep, NodeAction, Preempt, Release, Wait
from gpuplan.models.plan.precondition import (
    Free,
    GpuLayout,
    JobDamaged,
    JobRuns,
    JobWaits,
    NodeAbsent,
    NodeEmpty,
    NodeExists,
)
from gpuplan.models.validation.damage import survey_damage, without_losses
from gpuplan.planner.analysis.effects import ClusterView, apply_action, nodes_touched
from gpuplan.planner.apply import precondition_checks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.actions import Action
    from gpuplan.models.plan.precondition import Precondition
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.precondition_checks import CheckResult


def without_released(live: Snapshot, released: Collection[str], planned: Snapshot) -> Snapshot:
    """
    The live cluster after these jobs have given up their lost places, with the progress that a plan expects.

    A job on a faulty GPU works on until it is released, which is no reason to plan again.
    """
    if not released:
        return live
    after, expected = without_losses(live, released), planned.job_by_name
    jobs = tuple(
        job.model_copy(update={"progress": expected[job.name].progress})
        if job.name in released and job.name in expected and job.running is None
        else job
        for job in after.jobs
    )
    return after if jobs == after.jobs else after.model_copy(update={"jobs": jobs})


@dataclass(frozen=True, slots=True)
class LiveView:
    """
    The cluster of one snapshot, updated with the actions done since.

    Lost places that a plan has yet to release count as released.
    """

    cluster: Cluster
    """As in the snapshot; so are `jobs`."""
    jobs: dict[str, Job]
    now: ClusterView
    """Current nodes and placements."""
    on_node: dict[str, set[str]]
    """Names of the jobs that now run on each node."""
    free: dict[str, FreeResources]
    """Current free amounts of each node, with CPU and memory as charged under overcommit."""
    damaged: dict[str, Placement]
    """Placements of jobs with lost places that are not released yet, by job."""

    @classmethod
    def of(cls, snapshot: Snapshot, left: Iterable[Action] = (), planned: Snapshot | None = None) -> LiveView:
        """The view of a snapshot; `left` are actions of a plan from `planned`, releases among them."""
        released, losses = (
            {each.job for each in left if isinstance(each, Release)},
            survey_damage(snapshot).losses,
        )
        damaged = {name: loss.job.placement for name, loss in losses.items() if name in released}
        snapshot = without_released(snapshot, released, planned or snapshot)
        now = ClusterView(snapshot)
        on_node: dict[str, set[str]] = defaultdict(set)
        for placement in now.placements.values():
            for replica in placement.replicas:
                on_node[replica.node].add(placement.job)
        view = cls(
            snapshot.cluster,
            snapshot.job_by_name,
            now,
            on_node,
            {},
            {name: at for name, at in damaged.items() if at},
        )
        view._refresh(now.nodes)
        return view

    def check_preconditions(self, action: Action) -> tuple[CheckResult, ...]:
        """Check results of an action's preconditions, in their order."""
        return tuple(self._check_precondition(precondition, action) for precondition in action.preconditions)

    def done(self, action: Action, at: Placement | None = None) -> None:
        """Apply the effect of an action to the view; `at` is where its job really runs, if not as planned."""
        if isinstance(action, Keep | Wait):
            return
        if at is not None and not isinstance(action, NodeAction | Preempt):
            action = action.model_copy(update={"after": at})
        if isinstance(action, Release):
            self.damaged.pop(action.job, None)
        touched = nodes_touched(action)
        if not isinstance(action, NodeAction) and (known := self.now.placements.get(action.job)) is not None:
            touched |= known.nodes
        apply_action(self.now, action)
        if not isinstance(action, NodeAction):
            runs_on = action.after.nodes if action.after else frozenset()
            for name in touched:
                (self.on_node[name].add if name in runs_on else self.on_node[name].discard)(action.job)
        self._refresh(touched)

    def _refresh(self, names: Iterable[str]) -> None:
        """Recompute the free amounts of some nodes."""
        for name in names:
            node = self.now.nodes.get(name)
            if node is None:
                self.free.pop(name, None)
                continue
            self.free[name] = free = FreeResources.of(node)
            for job in sorted(self.on_node[name]):
                for replica in self.now.placements[job].replicas:
                    if replica.node == name:
                        free.take(replica, charged_cpu_memory(replica, self.jobs[job].qos, self.cluster))

    def _check_precondition(self, precondition: Precondition, action: Action) -> CheckResult:
        match precondition:
            case JobWaits(job=name):
                return precondition_checks.check_job_waits(
                    precondition, self.jobs.get(name), self.now.placements.get(name)
                )
            case JobRuns(job=name):
                planned = None if isinstance(action, NodeAction) else action.before
                return precondition_checks.check_job_runs(
                    precondition, self.jobs.get(name), self.now.placements.get(name), planned
                )
            case JobDamaged(job=name):
                places = (None, None) if isinstance(action, NodeAction) else (action.before, action.after)
                damaged, running = self.damaged.get(name), self.now.placements.get(name)
                return precondition_checks.check_job_damaged(
                    name, self.jobs.get(name), damaged, running, planned=places
                )
            case Free(node=name):
                return precondition_checks.check_free(
                    precondition, self.now.nodes.get(name), self.free.get(name)
                )
            case GpuLayout(node=name):
                used = [
                    held
                    for job in sorted(self.on_node[name])
                    for replica in self.now.placements[job].replicas
                    if replica.node == name
                    for held in replica.gpus
                ]
                return precondition_checks.check_gpu_layout(precondition, self.now.nodes.get(name), used)
            case NodeEmpty(node=name):
                return precondition_checks.check_node_empty(
                    name, self.now.nodes.get(name), self.on_node[name]
                )
            case NodeExists(node=name):
                return precondition_checks.check_node_exists(name, self.now.nodes.get(name))
            case NodeAbsent(node=name):
                return precondition_checks.check_node_absent(name, self.now.nodes.get(name))
            case _:
                assert_never(precondition)
