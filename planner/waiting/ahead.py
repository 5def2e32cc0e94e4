"""Jobs of higher priority that start first, where the policy starts jobs in order of priority (tiers)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.policy.policy import PriorityOrder
from gpuplan.planner.text_format import format_gpus, join_first_names

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.analysis.job_changes import PlanChanges
    from gpuplan.planner.waiting.free_capacity import FreeCapacity

_Began: TypeAlias = "tuple[Job, tuple[Replica, ...]]"


class FutureStarts:
    """Names the jobs of higher priority that one target starts or grows ahead of a waiting job."""

    def __init__(self, changes: PlanChanges, policy: Policy) -> None:
        self._tree = {queue.name: queue.parent for queue in changes.snapshot.queues}
        self._began: list[_Began] = []
        self._on_nodes: dict[int, tuple[FreeCapacity, list[_Began]]] = {}
        """Starts on the nodes of a pool, by the pool's `id`; the stored pool keeps its `id` from reuse."""
        self._in_queues: dict[str, list[_Began]] = {}
        """Starts in the queues below a root queue."""
        self._words: dict[tuple[str, int | str, int, bool], list[str]] = {}
        if policy.priority.order is PriorityOrder.TIERS:
            self._began = [
                (change.job, change.after.replicas)
                for change in changes.jobs
                if change.kind in (ActionKind.START, ActionKind.GROW) and change.after
            ]

    @property
    def by_priority(self) -> bool:
        """True if the answers depend on the priority of a job."""
        return bool(self._began)

    def on_nodes(self, job: Job, pool: FreeCapacity) -> list[str]:
        """Describe the starts of higher-priority jobs on the nodes of a pool."""
        if not self._began:
            return []
        if id(pool) not in self._on_nodes:
            names = {place.node.name for place in pool.places}
            self._on_nodes[id(pool)] = (
                pool,
                [each for each in self._began if any(one.node in names for one in each[1])],
            )
        return self._told(job, "pool", id(pool), self._on_nodes[id(pool)][1])

    def in_queues(self, job: Job) -> list[str]:
        """Describe the starts of higher-priority jobs in queues under the same root as the job's queue."""
        if not self._began:
            return []
        root = self._root(job.queue)
        if root not in self._in_queues:
            self._in_queues[root] = [each for each in self._began if self._root(each[0].queue) == root]
        return self._told(job, "queue", root, self._in_queues[root])

    def _root(self, queue: str) -> str:
        seen = {queue}
        while (above := self._tree.get(queue)) is not None and above not in seen:
            queue = above
            seen.add(queue)
        return queue

    def _told(self, job: Job, what: str, which: int | str, began: list[_Began]) -> list[str]:
        key = what, which, job.priority, job.request.needs_gpu
        if key not in self._words:
            self._words[key] = _in_words(job, began)
        return self._words[key]


def _in_words(job: Job, began: list[_Began]) -> list[str]:
    milli: dict[str, int] = defaultdict(int)
    for other, replicas in began:
        if other.priority > job.priority and other.request.needs_gpu == job.request.needs_gpu:
            milli[other.name] += sum(replica.quota_milli for replica in replicas)
    if not milli:
        return []
    size = f" with {format_gpus(total)}" if (total := sum(milli.values())) else ""
    return [f"priority {job.priority} comes after {join_first_names(sorted(milli))} of higher priority{size}"]
