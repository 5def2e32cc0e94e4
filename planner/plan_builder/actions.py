"""Build the action of each step of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.actions import ActionKind, Grow, Migrate, Preempt, Repartition, Shrink, Start
from gpuplan.models.plan.precondition import Free, GpuLayout, JobRuns, JobWaits
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.job_changes import free_preconditions
from gpuplan.planner.plan_builder import node_steps
from gpuplan.planner.plan_builder.node_steps import NodeStep, precondition
from gpuplan.planner.plan_builder.ordering import JobStep, LayoutStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.job import Job
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.plan.precondition import Precondition
    from gpuplan.models.plan.reason import Reason
    from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges
    from gpuplan.planner.plan_builder.later_starts import PlanPromises
    from gpuplan.planner.plan_builder.ordering import Step


def action(
    step: Step,
    reason: Reason,
    changes: PlanChanges,
    fingerprint: Callable[[str], str],
    *,
    promises: PlanPromises,
    recovery: Callable[[Job], int],
) -> Change:
    """
    The action of a step.

    `fingerprint` maps a job to the fingerprint of its document in the snapshot. `promises` has the kill time
    of a started job and the restart time of a preempted one. `recovery` gives the seconds before a job that
    was stopped works again.
    """
    common = {
        "id": step.id,
        "reason": reason,
        "preconditions": preconditions_of(step, changes.snapshot.cluster, fingerprint),
        "after_actions": step.after,
    }
    match step:
        case JobStep(change=change):
            return _of_job(change, common, promises, recovery)
        case LayoutStep(change=layout):
            return Repartition(
                node=layout.node, gpu=layout.gpu, before=layout.before, after=layout.after, **common
            )
        case NodeStep():
            return node_steps.action(step, changes, common)


def _of_job(
    change: JobChange,
    common: dict[str, Any],
    promises: PlanPromises,
    recovery: Callable[[Job], int],
) -> Change:
    job = {"job": change.job.name, **common}
    match change.kind:
        case ActionKind.START:
            again = recovery(change.job) if change.job.progress else 0
            return Start(after=change.after, kill_at=promises.kill_at(change.job.name), recovery=again, **job)
        case ActionKind.PREEMPT:
            return Preempt(before=change.before, resumes_at=promises.resumes_at(change.job.name), **job)
        case ActionKind.SHRINK:
            return Shrink(before=change.before, after=change.after, interruption=recovery(change.job), **job)
        case ActionKind.GROW:
            return Grow(before=change.before, after=change.after, interruption=recovery(change.job), **job)
        case ActionKind.MIGRATE:
            return Migrate(before=change.before, after=change.after, recovery=recovery(change.job), **job)
        case _:
            raise ValueError(f"expected a change of job {change.job.name!r}, found {change.kind}")


# Preconditions of each step; apply checks them directly before it carries out the action.


def preconditions_of(
    step: Step, cluster: Cluster, fingerprint: Callable[[str], str]
) -> tuple[Precondition, ...]:
    """Preconditions of a step; `fingerprint` maps a job to that of its document in the snapshot."""
    match step:
        case JobStep(change=change):
            name = change.job.name
            asked = JobWaits if change.kind is ActionKind.START else JobRuns
            return asked(job=name, job_fingerprint=fingerprint(name)), *free_preconditions(change, cluster)
        case LayoutStep(change=layout):
            destroyed = tuple(
                instance for instance in layout.before or () if instance not in set(layout.after)
            )
            known = GpuLayout(node=layout.node, gpu=layout.gpu, instances=layout.before, idle=destroyed)
            # MIG mode can be switched only while no job holds any part of the GPU.
            whole = Free(node=layout.node, gpus=(GpuShare(index=layout.gpu, milli=MILLI),))
            return (known, whole) if layout.before is None else (known,)
        case NodeStep():
            return (precondition(step),)
