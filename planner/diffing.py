"""diff(plan) → Diff: what the plan changes; with a newer snapshot also what has changed since."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from planner.drift import drift
from planner.metrics import gpus_in_use
from planner.models.diff import Diff, Drifted, GpuModelDiff, JobDiff, NodeDiff, QueueDiff
from planner.models.occupancy import NodeFree, free_capacity
from planner.models.plan import Start
from planner.models.queue import ALL_MODELS, queue_limits
from planner.models.verifier import verify
from planner.quota_room import of_resource, own_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.models.base import Noun
    from planner.models.job import Job
    from planner.models.plan import Plan
    from planner.models.queue import Queue
    from planner.models.snapshot import Snapshot


def diff(plan: Plan, live: Snapshot | None = None) -> Diff:
    """Compare the plan's own snapshot with the cluster after the plan; and that snapshot with a newer one."""
    jobs = _jobs(plan)
    return Diff(
        plan_id=plan.plan_id,
        jobs=jobs,
        unchanged=len(plan.snapshot.running_placements) - sum(change.before is not None for change in jobs),
        waiting=len(plan.waiting),
        nodes=_nodes(plan, jobs),
        queues=_queues(plan),
        gpu_models=_gpu_models(plan),
        live=live.canonical().fingerprint() if live else None,
        drift=_drift(plan, live) if live else (),
        stale=_stale(plan, live) if live else (),
    )


def _jobs(plan: Plan) -> tuple[JobDiff, ...]:
    after = {placement.job: placement for placement in plan.placements}
    return tuple(
        JobDiff(job=job.name, queue=job.queue, before=job.placement, after=after.get(job.name))
        for job in sorted(plan.snapshot.jobs, key=lambda job: job.name)
        if job.placement != after.get(job.name)
    )


def _nodes(plan: Plan, jobs: tuple[JobDiff, ...]) -> tuple[NodeDiff, ...]:
    arriving: dict[str, set[str]] = defaultdict(set)
    touched: set[str] = set()
    for job in jobs:
        touched.update(replica.node for replica in (job.before.replicas if job.before else ()))
        for replica in job.after.replicas if job.after else ():
            arriving[replica.node].add(job.job)
    nodes = [node for node in plan.snapshot.cluster.nodes if node.name in touched | arriving.keys()]
    before = free_capacity(nodes, plan.snapshot.running_placements)
    after = free_capacity(nodes, plan.placements)
    return tuple(
        NodeDiff(
            node=node.name,
            gpus=node.gpu_count,
            free_before_milli=_free_milli(before[node.name]),
            free_after_milli=_free_milli(after[node.name]),
            arriving=tuple(sorted(arriving[node.name])),
        )
        for node in sorted(nodes, key=lambda node: node.name)
    )


def _free_milli(free: NodeFree) -> int:
    return sum(max(0, milli) for milli in free.gpu_milli)


def _queues(plan: Plan) -> tuple[QueueDiff, ...]:
    snapshot = plan.snapshot
    placed = {placement.job for placement in plan.placements}
    waiting_before = Counter(job.queue for job in snapshot.jobs if job.running is None)
    waiting_after = Counter(job.queue for job in snapshot.jobs if job.name not in placed)
    before, after = own_usage(snapshot, snapshot.running_placements), own_usage(snapshot, plan.placements)
    models = sorted({model for queue in snapshot.queues for model in queue.gpu_models})
    found: dict[tuple[str, str], QueueDiff] = {}
    for resource in (ALL_MODELS, *models):
        limits = queue_limits(snapshot.queues, resource)
        used_before = limits.usage(of_resource(before, resource))
        used_after = limits.usage(of_resource(after, resource))
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
    """Each queue followed by all that is below it, siblings by name."""
    children: dict[str | None, list[str]] = defaultdict(list)
    for queue in sorted(queues, key=lambda queue: queue.name, reverse=True):
        children[queue.parent].append(queue.name)
    stack = list(children[None])
    while stack:
        name = stack.pop()
        yield name
        stack += children[name]


def _gpu_models(plan: Plan) -> tuple[GpuModelDiff, ...]:
    cluster = plan.snapshot.cluster
    before, usable = gpus_in_use(cluster, plan.snapshot.running_placements)
    after, _ = gpus_in_use(cluster, plan.placements)
    return tuple(
        GpuModelDiff(
            gpu_model=model,
            usable_milli=total,
            used_before_milli=before[model],
            used_after_milli=after[model],
        )
        for model, total in sorted(usable.items())
    )


def _drift(plan: Plan, live: Snapshot) -> tuple[Drifted, ...]:
    base = plan.snapshot
    starts = [action for action in plan.actions if isinstance(action, Start)]
    used = {replica.node for action in starts for replica in action.after.replicas}
    counted_on = {action.job for action in starts} | {
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
    ]
    return tuple(sorted(found, key=lambda item: (not item.touched, item.subject, item.change)))


def _stale(plan: Plan, live: Snapshot) -> tuple[str, ...]:
    """What an apply would refuse the plan for, with the drift its policy accepts."""
    running = {placement.job: placement for placement in live.running_placements}
    starts = [action for action in plan.actions if isinstance(action, Start)]
    left = [action for action in starts if running.get(action.job) != action.after]
    if not left:
        return ()
    done = {action.id for action in starts} - {action.id for action in left}
    if items := drift(plan, live, done=done, mode=plan.policy.drift):
        return tuple(map(str, items))
    after = (*live.running_placements, *(action.after for action in left))
    return tuple(f"it would break a rule: {broken}" for broken in verify(live, plan.policy, after).violations)


def _job_changes(before: Mapping[str, Job], after: Mapping[str, Job]) -> Iterator[tuple[str, str]]:
    for name, change in _changes(before, after):
        old, new = before.get(name), after.get(name)
        if old is not None and new is None and old.running is not None:
            yield name, "has ended"
        elif old is None or new is None or (old.running is None) == (new.running is None):
            yield name, change
        elif new.running is not None:
            nodes = sorted({replica.node for replica in new.running.replicas})
            yield name, f"has started on {', '.join(nodes)}"
        else:
            yield name, "was stopped and waits again"


def _changes(before: Mapping[str, Noun], after: Mapping[str, Noun]) -> Iterator[tuple[str, str]]:
    """What became of each named thing that is not as it was."""
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
