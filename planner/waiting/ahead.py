"""Ahead: jobs of higher priority that start first, where the policy has priorities in order."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from planner.changes import Deed
from planner.models.policy import PriorityOrder
from planner.wording import in_gpus, named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.changes import Changes
    from planner.models.job import Job
    from planner.models.placement import Replica
    from planner.models.policy import Policy
    from planner.waiting.free_pool import FreePool


class Ahead:
    """Answers for one target."""

    def __init__(self, changes: Changes, policy: Policy) -> None:
        self._tree = {queue.name: queue.parent for queue in changes.snapshot.queues}
        self._began: list[tuple[Job, tuple[Replica, ...]]] = []
        if policy.priority.order is PriorityOrder.TIERS:
            self._began = [
                (change.job, change.after.replicas)
                for change in changes.jobs
                if change.deed in (Deed.START, Deed.GROW) and change.after
            ]

    @property
    def by_priority(self) -> bool:
        """True if the priority of a job decides what is said."""
        return bool(self._began)

    def on_nodes(self, job: Job, pool: FreePool) -> list[str]:
        """What started on the nodes of a pool before a job, in words."""
        names = {place.node.name for place in pool.places} if self._began else set()
        return _told(job, (each for each in self._began if any(one.node in names for one in each[1])))

    def in_queues(self, job: Job) -> list[str]:
        """What started in queues that share quota with the job's before it, in words."""
        root = self._root(job.queue)
        return _told(job, (each for each in self._began if self._root(each[0].queue) == root))

    def _root(self, queue: str) -> str:
        seen = {queue}
        while (above := self._tree.get(queue)) is not None and above not in seen:
            queue = above
            seen.add(queue)
        return queue


def _told(job: Job, began: Iterable[tuple[Job, tuple[Replica, ...]]]) -> list[str]:
    milli: dict[str, int] = defaultdict(int)
    for other, replicas in began:
        if other.priority > job.priority and other.request.needs_gpu == job.request.needs_gpu:
            milli[other.name] += sum(replica.quota_milli for replica in replicas)
    if not milli:
        return []
    who = named(sorted(milli))
    size = f" with {in_gpus(total)}" if (total := sum(milli.values())) else ""
    return [f"priority {job.priority} comes after {who} of higher priority{size}"]
