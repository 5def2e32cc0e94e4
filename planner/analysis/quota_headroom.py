"""Quota headroom: the first limit up the queue tree that a job would exceed, as the ledger counts it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gpuplan.models.problem.problem import Charges, Problem, QueueBudget
from gpuplan.models.queue import ALL_MODELS, NOT_OF_GPUS, Queue, QuotaAmounts, queue_limits, quota_resources
from gpuplan.planner.analysis.allocations import count_usage
from gpuplan.solvers.state.constraints.quota import QuotaLedger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.placement import Placement
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.state.constraints.quota import QuotaDemand


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
        self._names = tuple(queue.name for queue in queues)
        self._position = {name: index for index, name in enumerate(self._names)}
        self._budgets = queue_budgets(queues, own)
        # Many jobs ask the same.
        self._known = cache(self._answer)
        self._ledger = QuotaLedger(
            Problem(
                resources=(),
                nodes=(),
                groups=(),
                classes=(),
                queues=self._names,
                budgets=self._budgets,
                charges=Charges(),
            )
        )

    def alone(self, queue: str, needed: QuotaAmounts, gpu_models: Iterable[str]) -> QuotaAnswer:
        """Answer as if every queue were empty."""
        return self._known(queue, needed, tuple(gpu_models), alone=True)

    def now(self, queue: str, needed: QuotaAmounts, gpu_models: Iterable[str]) -> QuotaAnswer:
        """Answer with the given usage."""
        return self._known(queue, needed, tuple(gpu_models), alone=False)

    def levels(self, queue: str, needed: int, resource: str) -> Iterator[QuotaShortage]:
        """The limits of a resource from a queue upward at which a demand counts, exceeded or not."""
        for index, budget in enumerate(self._budgets):
            if budget.resource == resource:
                for level in self._ledger.levels(index, self._position[queue], needed):
                    if level.limit is not None:
                        yield self._named(level)

    def _answer(
        self, queue: str, needed: QuotaAmounts, gpu_models: tuple[str, ...], *, alone: bool
    ) -> QuotaAnswer:
        def broken(model: str | None) -> QuotaDemand | None:
            return next(self._ledger.exceeded_limits(self._position[queue], model, needed, alone=alone), None)

        if (found := broken(None)) is not None:
            return QuotaAnswer((), self._named(found))
        if not needed.gpu_milli:
            return QuotaAnswer(gpu_models, None)
        by_model = {model: broken(model) for model in sorted(gpu_models)}
        allowed = tuple(model for model, level in by_model.items() if level is None)
        if allowed or not by_model:
            return QuotaAnswer(allowed, None)
        # No model is left; the smallest excess is the most useful message.
        nearest = min((level for level in by_model.values() if level), key=lambda level: level.excess)
        return QuotaAnswer((), self._named(nearest))

    def _named(self, level: QuotaDemand) -> QuotaShortage:
        return QuotaShortage(
            self._names[level.queue], level.budget.resource, level.used, level.limit or 0, level.needed
        )


def queue_budgets(queues: tuple[Queue, ...], usage: Mapping[str, Counter[str]]) -> tuple[QueueBudget, ...]:
    """Budgets of all GPU models together, of each model with a quota, then of CPU cores and memory."""
    names = [queue.name for queue in queues]
    position = {name: index for index, name in enumerate(names)}
    found = []
    for resource in quota_resources(queues):
        limits, own = queue_limits(queues, resource), usage_of_resource(usage, resource)
        total = limits.usage(own)
        above = (limits.parent[name] for name in names)
        firm = tuple(limits.limit[name] for name in names)
        found.append(
            QueueBudget(
                resource=resource,
                leaves_first=tuple(position[name] for name in limits.leaves_first),
                parent=tuple(None if name is None else position[name] for name in above),
                kept=tuple(limits.kept[name] for name in names),
                limit=tuple(
                    None if most is None else max(most, total[name])
                    for name, most in zip(names, firm, strict=True)
                ),
                firm=firm,
                own=tuple(own.get(name, 0) for name in names),
            )
        )
    return tuple(found)


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
