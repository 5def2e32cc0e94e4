"""Preconditions of each step; apply checks them directly before it carries out the action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.plan.precondition import (
    Free,
    GpuLayout,
    JobRuns,
    JobWaits,
)
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.job_changes import free_preconditions
from gpuplan.planner.plan_builder.node_steps import NodeStep, precondition
from gpuplan.planner.plan_builder.ordering import JobStep, LayoutStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.plan.precondition import Precondition
    from gpuplan.planner.plan_builder.ordering import Step


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
