"""
What queues are entitled to under a policy: the quotas by which a job may follow one of another queue.

Implemented independently of the problem builder: a queue has its own definition here of what it may reclaim.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.queue import ALL_MODELS
from gpuplan.models.verifier.quota_usage import (
    children_first,
    subtree_totals,
    usage_of_resource,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.policy.policy import Disruption
    from gpuplan.models.snapshot import Snapshot


class _Step(NamedTuple):
    """A queue with all queues below it, or only the jobs directly in a queue that has children."""

    queue: str
    alone: bool


class Entitlements:
    """Entitlements in one snapshot, given the usage of running jobs by queue and GPU model."""

    def __init__(self, snapshot: Snapshot, rules: Disruption, usage: Mapping[tuple[str, str], int]) -> None:
        self._snapshot, self._rules = snapshot, rules
        self._queues = {queue.name: queue for queue in snapshot.queues}
        self._parents = {queue.parent for queue in snapshot.queues}
        resources = {ALL_MODELS, *(model for queue in snapshot.queues for model in queue.gpu_models)}
        self._held = {resource: usage_of_resource(usage, resource) for resource in resources}
        self._answers: dict[tuple[str, int, str, str], frozenset[tuple[str, str]]] = {}
        self._shorts: dict[tuple[str, int, str], list[_Step]] = {}
        self._ways: dict[str, list[_Step]] = {}
        self._borrowing: dict[tuple[_Step, str], bool] = {}

    def quotas(self, queue: str, milli: int, other: str, model: str) -> frozenset[tuple[str, str]]:
        """(queue, resource) of the quotas that let a job follow one of another queue; empty if it may not."""
        key = queue, milli, other, model
        if key not in self._answers:
            found: set[tuple[str, str]] = set()
            for resource in {ALL_MODELS, model} & self._held.keys():
                found |= self._quotas(queue, milli, other, resource)
            self._answers[key] = frozenset(found)
        return self._answers[key]

    def owns(self, queue: str, other: str) -> bool:
        """True if a queue may reclaim something, or one above it that does not contain another queue."""
        theirs = self._steps(other)
        return any(
            self._due(step, resource) > 0
            for step in self._steps(queue)
            if step not in theirs
            for resource in self._held
        )

    @cached_property
    def contested(self) -> frozenset[tuple[str, str]]:
        """(queue, resource) of all quotas that let some pending job follow a running one."""
        rules, now = self._rules, self._snapshot.taken_at
        if (
            not rules.reclaim
            or not (rules.preempt or rules.resize)
            or not any(map(any, self._nominal.values()))
        ):
            return frozenset()
        models = self._snapshot.cluster.gpu_model_by_node
        asked = {
            (job.queue, job.request.total_gpu_milli * job.gang.minimum)
            for job in self._snapshot.waiting
            if not job.withheld
        }
        lent = {
            (job.queue, models.get(replica.node, ALL_MODELS) if job.request.needs_gpu else ALL_MODELS)
            for job in self._snapshot.jobs
            if job.running and rules.may_disturb(job, now)
            for replica in job.running.replicas
        }
        # A model without a quota of its own is judged by all GPUs.
        lent = {(queue, model if model in self._held else ALL_MODELS) for queue, model in lent}
        able_to_take = [taker for taker in asked if self._has_room(*taker)]
        able_to_give = [giver for giver in lent if self._lends(*giver)]
        return frozenset().union(
            *(self.quotas(*taker, *giver) for taker in able_to_take for giver in able_to_give)
        )

    def _has_room(self, queue: str, milli: int) -> bool:
        """True if a queue, or one above it, is entitled to this much more."""
        return any(self._short(queue, milli, resource) for resource in self._held)

    def _lends(self, queue: str, model: str) -> bool:
        """False if no job of another queue may follow one of this queue, whatever it is entitled to."""
        # The jobs directly in a queue are beside those of every other queue.
        first = self._steps(queue)[0]
        return any(self._borrows(first, resource) for resource in {ALL_MODELS, model} & self._held.keys())

    def _quotas(self, queue: str, milli: int, other: str, resource: str) -> set[tuple[str, str]]:
        giver = self._steps(other)
        short = [step for step in self._short(queue, milli, resource) if step not in giver]
        if not milli or not short:
            return set()
        taker = self._steps(queue)
        beside = [step for step in giver if step not in taker]
        if not all(self._borrows(step, resource) for step in beside):
            return set()
        return {(step.queue, resource) for step in (*short, *beside) if not step.alone}

    def _short(self, queue: str, milli: int, resource: str) -> list[_Step]:
        """Steps up from a queue that are entitled to this much more."""
        key = queue, milli, resource
        if key not in self._shorts:
            self._shorts[key] = [
                step
                for step in self._steps(queue)
                if self._all_held(step, resource) + milli <= self._due(step, resource)
            ]
        return self._shorts[key]

    def _steps(self, queue: str) -> list[_Step]:
        """Steps from the jobs directly in a queue up to the root."""
        if queue not in self._ways:
            self._ways[queue] = self._steps_up(queue)
        return self._ways[queue]

    def _steps_up(self, queue: str) -> list[_Step]:
        steps = [_Step(queue, alone=True)] if queue in self._parents else []
        name: str | None = queue
        while name is not None:
            steps.append(_Step(name, alone=False))
            name = self._queues[name].parent
        return steps

    def _borrows(self, step: _Step, resource: str) -> bool:
        key = step, resource
        if key not in self._borrowing:
            counted = resource if self._is_limited(step, resource) else ALL_MODELS
            entitled = self.entitled(step.queue, counted, alone=step.alone)
            self._borrowing[key] = self._all_held(step, counted) > entitled
        return self._borrowing[key]

    def _is_limited(self, step: _Step, resource: str) -> bool:
        if step.alone:
            return self._queues[step.queue].quota_for(resource) is not None
        return step.queue in self._limited[resource]

    @cached_property
    def _limited(self) -> dict[str, set[str]]:
        """By resource, queues with a quota for it, or with one below them."""
        found: dict[str, set[str]] = {resource: set() for resource in self._held}
        for resource, names in found.items():
            for queue in children_first(self._snapshot.queues):
                if queue.quota_for(resource) is not None:
                    names.add(queue.name)
                if queue.name in names and queue.parent is not None:
                    names.add(queue.parent)
        return found

    def _all_held(self, step: _Step, resource: str) -> int:
        held = self._held[resource] if step.alone else self._held_below[resource]
        return held.get(step.queue, 0)

    @cached_property
    def _held_below(self) -> dict[str, dict[str, int]]:
        queues = self._snapshot.queues
        return {resource: subtree_totals(queues, held) for resource, held in self._held.items()}

    @cached_property
    def _nominal(self) -> dict[str, dict[str, int]]:
        """Nominal quotas of each queue itself, by resource and queue."""
        return {
            resource: {
                name: quota.nominal
                for name, queue in self._queues.items()
                if (quota := queue.quota_for(resource))
            }
            for resource in self._held
        }

    @cached_property
    def _nominal_below(self) -> dict[str, dict[str, int]]:
        queues = self._snapshot.queues
        return {resource: subtree_totals(queues, nominal) for resource, nominal in self._nominal.items()}

    def entitled(self, queue: str, resource: str, *, alone: bool = False) -> int:
        """The nominal quotas of a queue and all queues below it, or its guarantee if that is larger."""
        if alone:
            return self._nominal[resource].get(queue, 0)
        return max(self._nominal_below[resource][queue], self.guarantee(queue, resource))

    def guarantee(self, queue: str, resource: str) -> int:
        """The guarantee of a queue."""
        quota = self._queues[queue].quota_for(resource)
        return (quota.guarantee if quota else None) or 0

    def _due(self, step: _Step, resource: str) -> int:
        """Amount up to which a queue may reclaim."""
        if self._rules.reclaim:
            return self.entitled(step.queue, resource, alone=step.alone)
        return 0 if step.alone else self.guarantee(step.queue, resource)
