"""diff(plan) → Diff: what the plan changes; with a newer snapshot also the drift since the plan."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from gpuplan.models.placement import node_names
from gpuplan.models.plan.actions import JobAction, Wait, changes_of
from gpuplan.models.plan.diff import (
    Diff,
    Drifted,
    GpuModelDiff,
    JobDiff,
    LayoutDiff,
    NodeDiff,
    PromiseChange,
    PromiseDiff,
    QueueDiff,
)
from gpuplan.models.plan.plan import NodeChange, Plan
from gpuplan.models.queue import ALL_MODELS, Queue, is_gpu_model, queue_limits, quota_resources, resource_name
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.analysis.effects import nodes_touched
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.analysis.metrics import gpus_in_use
from gpuplan.planner.analysis.quota_headroom import usage_by_queue, usage_of_resource
from gpuplan.planner.apply.plan_view import with_expected_gpus
from gpuplan.planner.apply.standing import actions_done_in, verify_remaining
from gpuplan.planner.diff.drift import drift
from gpuplan.planner.text_format import quota_thousandths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    from gpuplan.models.base import Noun
    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot


def diff(plan: Plan, live: Snapshot | None = None) -> Diff:
    """Compare the plan's snapshot with the cluster after the plan, and optionally with a newer snapshot."""
    fingerprint = survey_damage(live.canonical()).sound.fingerprint() if live else None
    live = with_expected_gpus(live, plan) if live else None
    sound = survey_damage(live.canonical()).sound if live else None
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
        nodes=_nodes(plan, changes),
        layouts=tuple(
            LayoutDiff(node=change.node, gpu=change.gpu, before=change.before, after=change.after)
            for change in changes.layouts
        ),
        queues=_queues(plan),
        gpu_models=_gpu_models(plan, changes.cluster),
        promises=promise_diffs(plan, sound),
        live=fingerprint,
        drift=drift_items(plan, sound) if sound else (),
        stale=stale_reasons(plan, live) if live else (),
        carried_out=live is not None and plan.has_changes and _all_done(plan, actions_done_in(plan, live)),
    )


def _nodes(plan: Plan, changes: PlanChanges) -> tuple[NodeDiff, ...]:
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
    new = {name: node for name, node in changes.cluster.node_by_name.items() if name in touched}
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
    resources = quota_resources(snapshot.queues)
    found: dict[tuple[str, str], QueueDiff] = {}
    for resource in resources:
        limits = queue_limits(snapshot.queues, resource)
        used_before = limits.usage(usage_of_resource(before, resource))
        used_after = limits.usage(usage_of_resource(after, resource))
        for queue in snapshot.queues:
            limit = limits.limit[queue.name]
            if resource == ALL_MODELS or limit is not None:
                found[queue.name, resource] = QueueDiff(
                    queue=queue.name,
                    parent=queue.parent,
                    resource=resource_name(resource),
                    gpu_model=resource if is_gpu_model(resource) else "",
                    used_before_milli=quota_thousandths(used_before[queue.name], resource),
                    used_after_milli=quota_thousandths(used_after[queue.name], resource),
                    limit_milli=None if limit is None else quota_thousandths(limit, resource),
                    waiting_before=waiting_before[queue.name],
                    waiting_after=waiting_after[queue.name],
                )
    return tuple(
        found[queue, resource]
        for queue in _parents_first(snapshot.queues)
        for resource in resources
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


# How a newer snapshot differs from a plan's own, and whether the plan can still be applied.


def drift_items(plan: Plan, live: Snapshot) -> tuple[Drifted, ...]:
    """List every job, node, queue and pool that has changed; those that the plan relies on come first."""
    base = plan.snapshot
    changes = changes_of(plan.actions)
    used = {name for change in changes for name in nodes_touched(change)}
    counted_on = {change.job for change in changes if isinstance(change, JobAction)} | {
        placement.job
        for placement in (*base.running_placements, *live.running_placements)
        if any(replica.node in used for replica in placement.replicas)
    }
    found = [
        *(
            Drifted(subject=f"job {name}", change=change, touched=name in counted_on)
            for name, change in _job_changes(base.job_by_name, live.job_by_name)
        ),
        *(
            Drifted(subject=f"node {name}", change=change, touched=name in used)
            for name, change in _changes(base.cluster.node_by_name, live.cluster.node_by_name)
        ),
        *(
            Drifted(subject=f"queue {name}", change=change, touched=False)
            for name, change in _changes(
                {queue.name: queue for queue in base.queues}, {queue.name: queue for queue in live.queues}
            )
        ),
        *(
            Drifted(subject=f"pool {name}", change=change, touched=False)
            for name, change in _changes(
                {pool.name: pool for pool in base.cluster.pools},
                {pool.name: pool for pool in live.cluster.pools},
            )
        ),
    ]
    return tuple(sorted(found, key=lambda item: (not item.touched, item.subject, item.change)))


def _all_done(plan: Plan, done: Collection[str]) -> bool:
    return all(change.id in done for change in changes_of(plan.actions))


def stale_reasons(plan: Plan, live: Snapshot) -> tuple[str, ...]:
    """List the reasons for which apply would refuse the plan, in the drift mode of its policy."""
    done = actions_done_in(plan, live)
    if _all_done(plan, done):
        return ()
    if items := drift(plan, live, done=done, mode=plan.policy.drift):
        return tuple(map(str, items))
    violations = verify_remaining(plan, live, done).violations
    return tuple(f"it would break a rule: {broken}" for broken in violations)


def _job_changes(before: Mapping[str, Job], after: Mapping[str, Job]) -> Iterator[tuple[str, str]]:
    for name, change in _changes(before, after):
        old, new = before.get(name), after.get(name)
        if old is not None and new is None and old.running is not None:
            yield name, "has ended"
        elif old is None or new is None or (old.running is None) == (new.running is None):
            yield name, change
        elif new.running is not None:
            nodes = sorted(node_names(new.running.replicas))
            yield name, f"has started on {', '.join(nodes)}"
        else:
            yield name, "was stopped and waits again"


def _changes(before: Mapping[str, Noun], after: Mapping[str, Noun]) -> Iterator[tuple[str, str]]:
    """Yield (name, change) of each thing that differs."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield name, "is gone"
        elif old is None:
            yield name, "is new"
        elif old != new:
            yield name, f"changed in {', '.join(_fields_that_differ(old, new))}"


def _fields_that_differ(old: Noun, new: Noun) -> list[str]:
    fields: dict[str, Any] = type(old).model_fields
    return sorted(
        field.alias or name for name, field in fields.items() if getattr(old, name) != getattr(new, name)
    )


# Promised starts before and after a plan, and in a newer snapshot.


def promise_diffs(plan: Plan, live: Snapshot | None = None) -> tuple[PromiseDiff, ...]:
    """
    List the jobs with a promised start before the plan, after it, or in the newer snapshot; by job.

    A rollback records no promises: those of the cluster stay.
    """
    before, now = _promised(plan.snapshot), _promised(live) if live else {}
    after = before if plan.rollback else {each.job: each.start for each in plan.planned if each.promised}
    placed = {placement.job for placement in plan.placements}
    why = {} if plan.rollback else {waiting.job: waiting.promise_changed for waiting in plan.waiting}
    known = plan.snapshot.job_by_name | (live.job_by_name if live else {})
    return tuple(
        PromiseDiff(
            job=job,
            queue=known[job].queue,
            change=_promise_change(before.get(job), after.get(job), starts=job in placed),
            before=before.get(job),
            after=after.get(job),
            live=now.get(job),
            why=why.get(job, ""),
        )
        for job in sorted(before.keys() | after.keys() | now.keys())
    )


def _promised(snapshot: Snapshot) -> dict[str, datetime]:
    return {job.name: job.promise.start for job in snapshot.jobs if job.promise and job.running is None}


def _promise_change(before: datetime | None, after: datetime | None, *, starts: bool) -> PromiseChange:
    if starts:
        return PromiseChange.STARTED
    if before is None or after is None:
        if before is None:
            # Both are None if only the newer snapshot has a promise.
            return PromiseChange.KEPT if after is None else PromiseChange.MADE
        return PromiseChange.WITHDRAWN
    if before == after:
        return PromiseChange.KEPT
    return PromiseChange.EARLIER if after < before else PromiseChange.LATER
