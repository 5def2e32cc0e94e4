"""diff(plan) → Diff: what the plan changes; with a newer snapshot also the drift since the plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from gpuplan.models.plan.actions import Wait
from gpuplan.models.plan.diff import Diff, GpuModelDiff, JobDiff, LayoutDiff, NodeDiff, QueueDiff
from gpuplan.models.plan.plan import NodeChange
from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.analysis.cluster_after import cluster_after
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.analysis.metrics import gpus_in_use
from gpuplan.planner.analysis.quota_headroom import usage_by_queue, usage_of_resource
from gpuplan.planner.diff.drift_diff import drift_items, stale_reasons
from gpuplan.planner.diff.promise_diff import promise_diffs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.queue import Queue
    from gpuplan.models.snapshot import Snapshot


def diff(plan: Plan, live: Snapshot | None = None) -> Diff:
    """Compare the plan's snapshot with the cluster after the plan, and optionally with a newer snapshot."""
    sound = survey_damage(live.canonical()).sound if live else None
    after = cluster_after(plan.snapshot, plan.target)
    changes = PlanChanges(plan.snapshot, plan.target)
    return Diff(
        plan_id=plan.plan_id,
        epoch=plan.epoch,
        jobs=tuple(
            JobDiff(
                job=change.job.name,
                queue=change.job.queue,
                change=change.kind.value,
                before=change.before,
                after=change.after,
            )
            for change in changes.jobs
        ),
        unchanged=len(plan.snapshot.running_placements)
        - sum(change.before is not None for change in changes.jobs),
        waiting=sum(isinstance(action, Wait) for action in plan.actions),
        nodes=_nodes(plan, changes, after),
        layouts=tuple(
            LayoutDiff(node=change.node, gpu=change.gpu, before=change.before, after=change.after)
            for change in changes.layouts
        ),
        queues=_queues(plan),
        gpu_models=_gpu_models(plan, after),
        promises=promise_diffs(plan, sound),
        live=sound.fingerprint() if sound else None,
        drift=drift_items(plan, sound) if sound else (),
        stale=stale_reasons(plan, live) if live else (),
    )


def _nodes(plan: Plan, changes: PlanChanges, cluster: Cluster) -> tuple[NodeDiff, ...]:
    snapshot = plan.snapshot
    arriving: dict[str, set[str]] = defaultdict(set)
    leaving: dict[str, set[str]] = defaultdict(set)
    for change in changes.jobs:
        for name in change.nodes_taken:
            arriving[name].add(change.job.name)
        for name in change.nodes_left:
            leaving[name].add(change.job.name)
    touched = arriving.keys() | leaving.keys() | changes.added.keys() | set(changes.removed)
    touched |= {layout.node for layout in changes.layouts}
    old = {name: node for name, node in snapshot.cluster.node_by_name.items() if name in touched}
    new = {name: node for name, node in cluster.node_by_name.items() if name in touched}
    before = free_resources_by_node(old.values(), snapshot.running_placements, snapshot=snapshot)
    after = free_resources_by_node(new.values(), plan.placements, snapshot=snapshot)
    return tuple(
        NodeDiff(
            node=name,
            change=_change(name, old, new),
            gpus=(new.get(name) or old[name]).gpu_count,
            free_before_milli=_free_milli(before[name]) if name in before else 0,
            free_after_milli=_free_milli(after[name]) if name in after else 0,
            arriving=tuple(sorted(arriving[name])),
            leaving=tuple(sorted(leaving[name])),
        )
        for name in sorted(old.keys() | new.keys())
    )


def _change(name: str, old: Mapping[str, Node], new: Mapping[str, Node]) -> NodeChange:
    if name not in old:
        return NodeChange.ADDED
    return NodeChange.KEPT if name in new else NodeChange.REMOVED


def _free_milli(free: FreeResources) -> int:
    return sum(max(0, milli) for milli in free.gpu_milli)


def _queues(plan: Plan) -> tuple[QueueDiff, ...]:
    snapshot = plan.snapshot
    placed = {placement.job for placement in plan.placements}
    waiting_before = Counter(job.queue for job in snapshot.jobs if job.running is None)
    waiting_after = Counter(job.queue for job in snapshot.jobs if job.name not in placed)
    before, after = (
        usage_by_queue(snapshot, snapshot.running_placements),
        usage_by_queue(snapshot, plan.placements, added=plan.target.added),
    )
    models = sorted({model for queue in snapshot.queues for model in queue.gpu_models})
    found: dict[tuple[str, str], QueueDiff] = {}
    for resource in (ALL_MODELS, *models):
        limits = queue_limits(snapshot.queues, resource)
        used_before = limits.usage(usage_of_resource(before, resource))
        used_after = limits.usage(usage_of_resource(after, resource))
        for queue in snapshot.queues:
            limit = limits.limit[queue.name]
            if resource == ALL_MODELS or limit is not None:
                found[queue.name, resource] = QueueDiff(
                    queue=queue.name,
                    parent=queue.parent,
                    gpu_model=resource,
                    used_before_milli=used_before[queue.name],
                    used_after_milli=used_after[queue.name],
                    limit_milli=limit,
                    waiting_before=waiting_before[queue.name],
                    waiting_after=waiting_after[queue.name],
                )
    return tuple(
        found[queue, resource]
        for queue in _parents_first(snapshot.queues)
        for resource in (ALL_MODELS, *models)
        if (queue, resource) in found
    )


def _parents_first(queues: tuple[Queue, ...]) -> Iterator[str]:
    """Yield each queue followed by all queues below it, siblings by name."""
    children: dict[str | None, list[str]] = defaultdict(list)
    for queue in sorted(queues, key=lambda queue: queue.name, reverse=True):
        children[queue.parent].append(queue.name)
    stack = list(children[None])
    while stack:
        name = stack.pop()
        yield name
        stack += children[name]


def _gpu_models(plan: Plan, cluster: Cluster) -> tuple[GpuModelDiff, ...]:
    before, usable_before = gpus_in_use(plan.snapshot.cluster, plan.snapshot.running_placements)
    after, usable_after = gpus_in_use(cluster, plan.placements)
    return tuple(
        GpuModelDiff(
            gpu_model=model,
            usable_before_milli=usable_before[model],
            usable_after_milli=usable_after[model],
            used_before_milli=before[model],
            used_after_milli=after[model],
        )
        for model in sorted(usable_before.keys() | usable_after.keys())
    )
