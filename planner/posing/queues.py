"""Queues: limits that bind, what running jobs hold of them, and what queues are owed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from planner.models.problem import Guarantee, QueueBudget
from planner.models.queue import ALL_MODELS, queue_limits
from planner.quota_room import of_resource

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping

    from planner.models.job import Job
    from planner.models.queue import Queue
    from planner.models.snapshot import Snapshot
    from planner.posing.returns import Returns

    Usage = Mapping[str, Counter[str]]


def budgets(snapshot: Snapshot, usage: Usage, returns: Returns) -> tuple[QueueBudget, ...]:
    """Limits of all GPU models together, then of each model with a quota."""
    queues = [queue.name for queue in snapshot.queues]
    position = {name: index for index, name in enumerate(queues)}
    found = []
    for resource in _resources(snapshot.queues):
        limits = queue_limits(snapshot.queues, resource)
        own = of_resource(usage, resource)
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
                returns=returns.by_queue(resource, position),
            )
        )
    return tuple(found)


def limited_trees(snapshot: Snapshot) -> dict[str, str]:
    """The root of each queue whose tree has a quota anywhere: who leaves such a tree may free quota in it."""
    parent = {queue.name: queue.parent for queue in snapshot.queues}
    root: dict[str, str] = {}
    for name in parent:
        # Each queue is passed once, however deep the tree is.
        trail, top = [name], name
        while (above := parent[top]) is not None and top not in root:
            top = above
            trail.append(top)
        root |= dict.fromkeys(trail, root.get(top, top))
    limited = {root[queue.name] for queue in snapshot.queues if queue.quota or queue.gpu_models}
    return {name: top for name, top in root.items() if top in limited}


def guarantees(snapshot: Snapshot, usage: Usage, waiting: Iterable[Job]) -> tuple[Guarantee, ...]:
    """
    What each queue is owed of each resource, as far as it asks for it.

    A job that by itself does not fit within a guarantee is no demand on it.
    """
    if not any(_guarantees(queue) for queue in snapshot.queues):
        return ()
    below = _subtrees(snapshot.queues)
    position = {queue.name: index for index, queue in enumerate(snapshot.queues)}
    waiting = list(waiting)
    found = []
    for resource in _resources(snapshot.queues):
        asked: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for job in waiting:
            if resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models:
                milli = job.request.total_gpu_milli
                asked[job.queue].append((milli * job.gang.minimum, milli * job.gang.maximum))
        own = of_resource(usage, resource)
        for queue in snapshot.queues:
            quota = queue.quota_for(resource)
            if quota is None or not quota.guarantee:
                continue
            held = sum(own.get(name, 0) for name in below[queue.name])
            wanted = (each for name in below[queue.name] for each in asked.get(name, ()))
            demand = held + sum(most for least, most in wanted if least <= quota.guarantee)
            if owed := min(quota.guarantee, demand):
                members = tuple(sorted(position[name] for name in below[queue.name]))
                found.append(Guarantee(resource, members, owed, held))
    return tuple(found)


def borrowers(snapshot: Snapshot, usage: Usage) -> frozenset[str]:
    """Queues that hold, with all below them, more than they are guaranteed."""
    if not any(queue.quota and queue.quota.guarantee is not None for queue in snapshot.queues):
        return frozenset()
    own, below = of_resource(usage, ALL_MODELS), _subtrees(snapshot.queues)
    return frozenset(
        queue.name
        for queue in snapshot.queues
        if queue.quota is not None
        and queue.quota.guarantee is not None
        and sum(own.get(name, 0) for name in below[queue.name]) > queue.quota.guarantee
    )


def _resources(queues: tuple[Queue, ...]) -> tuple[str, ...]:
    return (ALL_MODELS, *sorted({model for queue in queues for model in queue.gpu_models}))


def _guarantees(queue: Queue) -> bool:
    quotas = [queue.quota, *queue.gpu_models.values()]
    return any(quota is not None and quota.guarantee for quota in quotas)


def _subtrees(queues: tuple[Queue, ...]) -> dict[str, list[str]]:
    """Each queue that states a guarantee, with all below it."""
    children: dict[str | None, list[str]] = defaultdict(list)
    for queue in queues:
        children[queue.parent].append(queue.name)
    below: dict[str, list[str]] = {}
    for queue in queues:
        if any(quota and quota.guarantee is not None for quota in (queue.quota, *queue.gpu_models.values())):
            below[queue.name] = found = [queue.name]
            for name in found:  # grows as it is walked
                found += children[name]
    return below
