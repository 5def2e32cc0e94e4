"""Queues of a problem: limits, usage of running jobs, and unmet guarantees."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.problem.problem import Guarantee, QueueBudget
from gpuplan.models.queue import ALL_MODELS, queue_limits
from gpuplan.planner.analysis.quota_headroom import usage_of_resource
from gpuplan.planner.problem_builder.reclaim import Reclaiming, contested_quotas, min_requested_gpu_milli

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.queue import Queue
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.releases import Releases

    Usage = Mapping[str, Counter[str]]


def queue_budgets(snapshot: Snapshot, usage: Usage, returns: Releases) -> tuple[QueueBudget, ...]:
    """Budgets of all GPU models together, then of each model with a quota."""
    queues = [queue.name for queue in snapshot.queues]
    position = {name: index for index, name in enumerate(queues)}
    found = []
    for resource in _resources(snapshot.queues):
        limits = queue_limits(snapshot.queues, resource)
        own = usage_of_resource(usage, resource)
        total = limits.usage(own)
        found.append(
            QueueBudget(
                resource=resource,
                leaves_first=tuple(position[name] for name in limits.leaves_first),
                parent=tuple(
                    None if (above := limits.parent[name]) is None else position[above] for name in queues
                ),
                kept=tuple(limits.kept[name] for name in queues),
                limit=tuple(
                    None if (limit := limits.limit[name]) is None else max(limit, total[name])
                    for name in queues
                ),
                firm=tuple(limits.limit[name] for name in queues),
                own=tuple(own.get(name, 0) for name in queues),
                releases=returns.by_queue(resource, position),
            )
        )
    return tuple(found)


def limited_trees(snapshot: Snapshot) -> dict[str, str]:
    """Root of each queue in a tree with any quota; a job that leaves such a tree may free quota in it."""
    parent = {queue.name: queue.parent for queue in snapshot.queues}
    root: dict[str, str] = {}
    for name in parent:
        # Each queue is visited once, whatever the depth of the tree.
        trail, top = [name], name
        while (above := parent[top]) is not None and top not in root:
            top = above
            trail.append(top)
        root |= dict.fromkeys(trail, root.get(top, top))
    limited = {root[queue.name] for queue in snapshot.queues if queue.quota or queue.gpu_models}
    return {name: top for name, top in root.items() if top in limited}


def queue_guarantees(
    snapshot: Snapshot, policy: Policy, usage: Usage, waiting: Iterable[Job]
) -> tuple[Guarantee, ...]:
    """
    What each queue is owed of each resource, limited to its demand from jobs that fit in this amount.

    A nominal quota counts only while it is `contested_quotas` and is more than the guarantee.
    """
    levels = list(_levels(snapshot, policy))
    if not levels:
        return ()
    below = _subtrees(snapshot.queues, {name for name, *_ in levels})
    position = {queue.name: index for index, queue in enumerate(snapshot.queues)}
    waiting, own = (
        list(waiting),
        {resource: usage_of_resource(usage, resource) for _, resource, _, _ in levels},
    )
    asked = {resource: _asked(waiting, resource) for resource in own}
    found = []
    for name, resource, amount, price in levels:
        held = sum(own[resource].get(each, 0) for each in below[name])
        demand = held + sum(
            most for each in below[name] for least, most in asked[resource].get(each, ()) if least <= amount
        )
        if owed := min(amount, demand):
            members = tuple(sorted(position[each] for each in below[name]))
            found.append(Guarantee(resource, members, owed, held, price))
    return tuple(found)


def _levels(snapshot: Snapshot, policy: Policy) -> Iterator[tuple[str, str, int, int]]:
    """(queue, resource, thousandths of GPUs owed, price of a GPU)."""
    quotas = [quota for queue in snapshot.queues for quota in (queue.quota, *queue.gpu_models.values())]
    if not any(quotas):
        return
    nominal, reclaiming = contested_quotas(snapshot, policy), Reclaiming(snapshot, policy)
    for resource in _resources(snapshot.queues):
        for queue in snapshot.queues:
            quota = queue.quota_for(resource)
            guarantee = (quota.guarantee if quota else None) or 0
            if guarantee:
                yield queue.name, resource, guarantee, policy.owed(policy.prices.guarantee)
            if (queue.name, resource) in nominal:
                entitled = reclaiming.entitled(queue.name, resource)
                if entitled > guarantee:
                    yield queue.name, resource, entitled, policy.owed(policy.prices.nominal)


def _asked(waiting: Iterable[Job], resource: str) -> dict[str, list[tuple[int, int]]]:
    """(fewest, most thousandths of GPUs) of all pending jobs that may use the resource, by queue."""
    asked: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for job in waiting:
        if resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models:
            asked[job.queue].append(
                (min_requested_gpu_milli(job), job.request.total_gpu_milli * job.gang.maximum)
            )
    return asked


def _resources(queues: tuple[Queue, ...]) -> tuple[str, ...]:
    return (ALL_MODELS, *sorted({model for queue in queues for model in queue.gpu_models}))


def _subtrees(queues: tuple[Queue, ...], names: set[str]) -> dict[str, list[str]]:
    """Each of the named queues with all queues below it."""
    children: dict[str | None, list[str]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue.name)
    below: dict[str, list[str]] = {}
    for top in names:
        below[top] = found = [top]
        for name in found:  # the list grows during the loop
            found += children[name]
    return below
