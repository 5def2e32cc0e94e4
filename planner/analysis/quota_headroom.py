"""Quota headroom: the first limit up the queue tree that a job would exceed."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.queue import (
    ALL_MODELS,
    NOT_OF_GPUS,
    RESOURCES,
    Queue,
    QueueLimits,
    QuotaAmounts,
    amount_index,
    queue_limits,
    quota_resources,
)
from gpuplan.planner.analysis.allocations import count_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """A limit that a job would exceed; amounts are in thousandths of GPUs or CPU cores, or in MiB."""

    queue: str
    resource: str
    """A GPU model, or one of `RESOURCES`."""
    used: int
    limit: int
    needed: int
    """Part of the job's demand that counts at this queue; a queue below may cover a part."""


@dataclass(frozen=True, slots=True)
class QuotaAnswer:
    """GPU models on which quotas admit a job."""

    gpu_models: tuple[str, ...]
    """Models on which the job exceeds no limit."""
    shortage: QuotaShortage | None
    """The exceeded limit if no model is left, else None."""


class QuotaHeadroom:
    """Limits of a queue tree, and their usage."""

    def __init__(self, queues: tuple[Queue, ...], own: Mapping[str, Counter[str]]) -> None:
        """Take the limits of these queues; `own` is what their own jobs hold, as `usage_by_queue`."""
        self._limits = {resource: queue_limits(queues, resource) for resource in quota_resources(queues)}
        self._usage = {
            resource: limits.usage(usage_of_resource(own, resource))
            for resource, limits in self._limits.items()
        }
        self._nothing = {queue.name: 0 for queue in queues}

    def alone(self, queue: str, needed: QuotaAmounts, gpu_models: Iterable[str]) -> QuotaAnswer:
        """Answer as if every queue were empty."""
        return self._answer(queue, needed, gpu_models, alone=True)

    def now(self, queue: str, needed: QuotaAmounts, gpu_models: Iterable[str]) -> QuotaAnswer:
        """Answer with the given usage."""
        return self._answer(queue, needed, gpu_models, alone=False)

    def _answer(
        self, queue: str, needed: QuotaAmounts, gpu_models: Iterable[str], *, alone: bool
    ) -> QuotaAnswer:
        def shortage_of(resource: str) -> QuotaShortage | None:
            limits = self._limits.get(resource)
            usage = self._nothing if alone else self._usage.get(resource, self._nothing)
            amount = needed[amount_index(resource)]
            return _shortage(limits, usage, queue=queue, needed=amount, resource=resource) if limits else None

        for resource in RESOURCES:
            if (shortage := shortage_of(resource)) is not None:
                return QuotaAnswer((), shortage)
        if not needed.gpu_milli:
            return QuotaAnswer(tuple(gpu_models), None)
        by_model = {model: shortage_of(model) for model in sorted(gpu_models)}
        allowed = tuple(model for model, shortage in by_model.items() if shortage is None)
        if allowed or not by_model:
            return QuotaAnswer(allowed, None)
        # No model is left; the smallest excess is the most useful message.
        nearest = min(
            (shortage for shortage in by_model.values() if shortage is not None),
            key=lambda shortage: (shortage.used + shortage.needed - shortage.limit, shortage.resource),
        )
        return QuotaAnswer((), nearest)


def usage_by_queue(
    snapshot: Snapshot, placements: Iterable[Placement], *, added: Iterable[Node] = ()
) -> dict[str, Counter[str]]:
    """
    Return what the jobs directly in each queue hold, by queue and resource.

    Resources are GPU models, in thousandths of GPUs, and `NOT_OF_GPUS`. `added` are nodes of placements that
    the snapshot does not have yet.
    """
    nodes = snapshot.cluster.node_by_name
    if new := {node.name: node for node in added}:
        nodes = nodes | new
    jobs = snapshot.job_by_name
    usage: dict[str, Counter[str]] = defaultdict(Counter)
    for placement in placements:
        held = usage[jobs[placement.job].queue]
        for replica in placement.replicas:
            if (node := nodes.get(replica.node)) is not None:
                count_usage(held, replica, node.gpu_model)
    return usage


def usage_of_resource(usage: Mapping[str, Counter[str]], resource: str) -> dict[str, int]:
    """Usage by queue of one resource; with `ALL_MODELS` that of all GPU models."""
    if resource != ALL_MODELS:
        return {queue: held[resource] for queue, held in usage.items()}
    return {queue: held.total() - sum(held[each] for each in NOT_OF_GPUS) for queue, held in usage.items()}


def _shortage(
    limits: QueueLimits, usage: Mapping[str, int], *, queue: str, needed: int, resource: str
) -> QuotaShortage | None:
    """Return the first limit up the tree that `needed` more would exceed; None if there is none."""
    for name, counted in limits.demand_above(queue, needed, usage):
        used, limit = usage[name], limits.limit[name]
        if limit is not None and used + counted > limit:
            return QuotaShortage(name, resource, used, limit, counted)
    return None
