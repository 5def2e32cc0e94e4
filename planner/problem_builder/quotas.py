"""
Quotas of a problem: limits and usage of queues, unmet guarantees, and quota that may be reclaimed.

Queues reclaim what others borrow, as in Kueue and KAI, for the whole queue tree. A queue is entitled to the
sum of its nominal quota and those of all queues below it, or to its guarantee if that is more. A job may take
the resources of a running job, whatever their priorities, if both conditions hold for all GPUs together or
for the GPU model of the running job:

- The running job's queue, and each queue above it below their lowest common ancestor, holds more than it is
  entitled to. A queue without a quota is entitled to nothing.
- The job's queue, or one above it below that ancestor, is entitled to its usage plus the job's fewest GPUs.

Quotas of CPU cores and memory limit what queues hold; what they lend is not reclaimed.

Jobs directly in a queue with child queues count as if they were in one more child, with the queue's own
nominal quota. Queues without a common ancestor have the cluster in common.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuplan.models.eligibility.preemption_order import is_in_turn
from gpuplan.models.problem.problem import Guarantee
from gpuplan.models.queue import (
    ALL_MODELS,
    gpu_resources,
    is_gpu_model,
    queue_and_above,
    queue_and_below,
)
from gpuplan.planner.analysis.allocations import allocations_of
from gpuplan.planner.analysis.quota_headroom import usage_of_resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

    Usage = Mapping[str, Counter[str]]


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
    limited = {root[queue.name] for queue in snapshot.queues if queue.limited}
    return {name: top for name, top in root.items() if top in limited}


def queue_guarantees(reclaiming: Reclaiming, usage: Usage, waiting: Iterable[Job]) -> tuple[Guarantee, ...]:
    """
    What each queue is owed of each resource, limited to its demand from jobs that fit in this amount.

    A nominal quota counts only while it is `contested_quotas` and is more than the guarantee.
    """
    levels, snapshot = list(_levels(reclaiming)), reclaiming.snapshot
    if not levels:
        return ()
    below = {name: queue_and_below(name, snapshot.child_queues) for name, *_ in levels}
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


def _levels(reclaiming: Reclaiming) -> Iterator[tuple[str, str, int, int]]:
    """(queue, resource, thousandths of GPUs owed, price of a GPU)."""
    snapshot, policy = reclaiming.snapshot, reclaiming.policy
    if not any(queue.gpu_quotas for queue in snapshot.queues):
        return
    nominal = contested_quotas(reclaiming)
    for resource in gpu_resources(snapshot.queues):
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


_Level: TypeAlias = tuple[str, bool]
"""A queue with all queues below it, or, if true, only the jobs directly in it."""

Owed: TypeAlias = tuple[tuple[str, _Level], ...]
"""(resource, level) of each amount up to which a job may reclaim and that its fewest GPUs do not exceed."""

Holding: TypeAlias = tuple[str, str | None]
"""The queue of running jobs and the GPU model that they hold."""


class _Share(NamedTuple):
    """Usage and entitlement of one level for one resource, in thousandths of GPUs."""

    held: int
    entitled: int
    owed: int
    """Amount up to which it may reclaim: `entitled`, or only the guarantee if the policy says so."""
    limited: bool
    """True if it or a queue below it has a quota for the resource."""


class Reclaiming:
    """Reclaim rules of one snapshot."""

    def __init__(self, snapshot: Snapshot, policy: Policy, usage: Usage | None = None) -> None:
        """`usage` is what the jobs directly in each queue hold; by default as in the snapshot."""
        self.snapshot, self.policy = snapshot, policy
        self._queues = {queue.name: queue for queue in snapshot.queues}
        self._usage = allocations_of(snapshot).usage if usage is None else usage
        self._nominal = policy.disruption.reclaim
        self._in_order = tuple(gpu_resources(snapshot.queues))
        self._resources = frozenset(self._in_order)
        self._paths: dict[str, dict[_Level, None]] = {}
        self._kept: dict[tuple[str, str], frozenset[_Level]] = {}
        self._shares: dict[str, dict[_Level, _Share]] = {}
        self._owed: dict[tuple[str, int], Owed] = {}
        self._known: dict[tuple[str, Owed, Holding], frozenset[tuple[str, str]]] = {}
        self._owners: dict[tuple[str, str], bool] = {}

    def may_take(self, queue: str, milli: int, held: Holding) -> bool:
        """True if a job of `queue` that takes at least `milli` may reclaim from running jobs of `held`."""
        return bool(self.levels(queue, milli, held))

    def keeps_turn(self, job: Job, queue: str) -> bool:
        """True if a running job is not stopped for priorities of another queue, as it is in its turn."""
        return (
            bool(job.request.total_gpu_milli)
            and is_in_turn(self.policy, job, self.snapshot.taken_at)
            and self.owns(job.queue, queue)
        )

    def owns(self, queue: str, other: str) -> bool:
        """True if a queue, or one above it that does not contain another queue, may reclaim at all."""
        if queue == other or not self._is_anything_owed:
            return False
        key = queue, other
        if key not in self._owners:
            theirs = self._path(other)
            self._owners[key] = any(
                self._shares_of(resource)[level].owed
                for level in self._path(queue)
                if level not in theirs
                for resource in self._resources
            )
        return self._owners[key]

    def owed(self, queue: str, milli: int) -> Owed:
        """
        Where a job of `queue` that takes at least `milli` would stay within what may be reclaimed up to.

        Jobs of one queue for which that is the same may reclaim the same; if it is empty, nothing.
        """
        key = queue, milli
        if key not in self._owed:
            self._owed[key] = tuple(
                (resource, level)
                for resource in (self._in_order if milli > 0 else ())
                for level in self._rooms(queue, milli, resource)
            )
        return self._owed[key]

    def is_lent(self, held: Holding) -> bool:
        """False if no job of another queue may reclaim from running jobs of `held`."""
        # Only jobs of the same queue share the first level with these.
        first = next(iter(self._path(held[0])))
        resources = self._resources & {ALL_MODELS, held[1] or ALL_MODELS}
        return any(first not in self._not_lent(held[0], resource) for resource in resources)

    def levels(self, queue: str, milli: int, held: Holding) -> frozenset[tuple[str, str]]:
        """(queue, resource) of each quota on which `may_take` depends; empty if it may not."""
        if milli <= 0 or not self._is_anything_owed or queue == held[0]:
            return frozenset()
        # Nothing is owed of a model without a quota of its own.
        model = held[1] if held[1] in self._resources else None
        key = queue, self.owed(queue, milli), (held[0], model)
        if key not in self._known:
            models = (ALL_MODELS,) if model is None else (ALL_MODELS, model)
            self._known[key] = frozenset(
                level for resource in models for level in self._levels(queue, milli, held[0], resource)
            )
        return self._known[key]

    def _levels(self, queue: str, milli: int, other: str, resource: str) -> Iterator[tuple[str, str]]:
        mine = self._path(queue)
        rooms = [level for one, level in self.owed(queue, milli) if one == resource]
        # Most pairs of queues end here.
        if not rooms or not self._not_lent(other, resource) <= mine.keys():
            return
        theirs = self._path(other)
        if rooms := [level for level in rooms if level not in theirs]:
            giving = (level for level in theirs if level not in mine)
            yield from ((name, resource) for name, alone in (*rooms, *giving) if not alone)

    def _not_lent(self, queue: str, resource: str) -> frozenset[_Level]:
        """Levels of a queue that hold no more than they are entitled to."""
        key = queue, resource
        if key not in self._kept:
            self._kept[key] = frozenset(
                level for level in self._path(queue) if not self._lends(level, resource)
            )
        return self._kept[key]

    def _rooms(self, queue: str, milli: int, resource: str) -> list[_Level]:
        """Levels of a queue with usage plus `milli` within the amount that they may reclaim up to."""
        shares = self._shares_of(resource)
        return [level for level in self._path(queue) if shares[level].held + milli <= shares[level].owed]

    def borrows(self, queue: str) -> bool:
        """True if a queue, with all queues below it, holds more than it is entitled to."""
        usage: Mapping[str, int] = self._usage.get(queue, {})
        models = {model for model, milli in usage.items() if milli and is_gpu_model(model)}
        return any(self._lends((queue, False), resource) for resource in (ALL_MODELS, *sorted(models)))

    def _lends(self, level: _Level, resource: str) -> bool:
        """True if a level holds more than it is entitled to; of all GPUs if the model has no quota there."""
        share = self._shares_of(resource)[level]
        if not share.limited:
            share = self._shares_of(ALL_MODELS)[level]
        return share.held > share.entitled

    def _path(self, queue: str) -> dict[_Level, None]:
        """The levels of a queue, the lowest first."""
        if queue not in self._paths:
            above = [(name, False) for name in queue_and_above(queue, self.snapshot.parent_queues)]
            alone = [(queue, True)] if queue in self.snapshot.child_queues else []
            self._paths[queue] = dict.fromkeys([*alone, *above])
        return self._paths[queue]

    @cached_property
    def _is_anything_owed(self) -> bool:
        quotas = (quota for queue in self._queues.values() for quota in queue.gpu_quotas)
        return any(quota.guarantee or (self._nominal and quota.nominal) for quota in quotas)

    def _shares_of(self, resource: str) -> dict[_Level, _Share]:
        if resource not in self._shares:
            self._shares[resource] = self._count(resource)
        return self._shares[resource]

    def _count(self, resource: str) -> dict[_Level, _Share]:
        own = usage_of_resource(self._usage, resource)
        held: dict[str | None, int] = defaultdict(int)
        nominal: dict[str | None, int] = defaultdict(int)
        limited: set[str | None] = set()
        shares: dict[_Level, _Share] = {}
        roots = self.snapshot.child_queues.get(None, ())
        for name in [below for root in roots for below in queue_and_below(root, self.snapshot.child_queues)][
            ::-1
        ]:
            queue = self._queues[name]
            quota = queue.quota_for(resource)
            direct, mine = own.get(name, 0), quota.nominal if quota else 0
            shares[name, True] = _Share(direct, mine, mine if self._nominal else 0, quota is not None)
            held[name] += direct
            nominal[name] += mine
            guarantee = (quota.guarantee if quota else 0) or 0
            owed = max(guarantee, nominal[name] if self._nominal else 0)
            if quota is not None:
                limited.add(name)
            entitled = max(guarantee, nominal[name])
            shares[name, False] = _Share(held[name], entitled, owed, name in limited)
            held[queue.parent] += held[name]
            nominal[queue.parent] += nominal[name]
            if name in limited:
                limited.add(queue.parent)
        return shares

    def entitled(self, queue: str, resource: str) -> int:
        """Thousandths of GPUs that a queue, with all queues below it, is entitled to."""
        return self._shares_of(resource)[queue, False].entitled


def min_requested_gpu_milli(job: Job) -> int:
    """Fewest thousandths of GPUs that a pending job can hold."""
    return job.request.total_gpu_milli * job.gang.minimum


def guaranteed_demand(job: Job, resource: str, amount: int) -> int:
    """Most thousandths of GPUs that a waiting job asks of a guarantee of this amount, if it can use it."""
    usable = resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models
    if not usable or job.withheld or min_requested_gpu_milli(job) > amount:
        return 0
    return job.request.total_gpu_milli * job.gang.maximum


def queue_and_model_of(job: Job, snapshot: Snapshot) -> Holding:
    """Queue and GPU model of a running job; the first of several models, as no plan disturbs such a job."""
    nodes = job.placement.gpu_nodes if job.placement and job.request.needs_gpu else ()
    models = snapshot.cluster.gpu_model_by_node
    return job.queue, next((models[name] for name in sorted(nodes) if name in models), None)


def reclaim_pairs(reclaiming: Reclaiming) -> Iterator[tuple[str, int, Holding]]:
    """(queue of pending jobs, their fewest thousandths of GPUs, holding they may reclaim), each once."""
    given = _lent(reclaiming)
    for queue, milli in _asking(reclaiming):
        for held in given:
            if reclaiming.may_take(queue, milli, held):
                yield queue, milli, held


def _asking(reclaiming: Reclaiming) -> list[tuple[str, int]]:
    """(queue, fewest thousandths of GPUs) of the pending jobs that may reclaim something, each once."""
    waiting = (job for job in reclaiming.snapshot.waiting if not job.withheld)
    asked = sorted({(job.queue, min_requested_gpu_milli(job)) for job in waiting})
    return [one for one in asked if reclaiming.owed(*one)]


def _lent(reclaiming: Reclaiming) -> list[Holding]:
    """Holdings of running jobs that may be disturbed, as far as something of them is lent."""
    snapshot, rules = reclaiming.snapshot, reclaiming.policy.disruption
    if not (rules.preempt or rules.resize):
        return []
    models = snapshot.cluster.gpu_model_by_node
    held = {
        (job.queue, models.get(replica.node) if job.request.needs_gpu else None)
        for job in snapshot.jobs
        if job.running and rules.may_disturb(job, snapshot.taken_at)
        for replica in job.running.replicas
    }
    return [each for each in sorted(held, key=repr) if reclaiming.is_lent(each)]


def contested_quotas(reclaiming: Reclaiming) -> frozenset[tuple[str, str]]:
    """(queue, resource) of each nominal quota that counts, as a pending job may reclaim from borrowers."""
    policy = reclaiming.policy
    if not policy.disruption.reclaim or not policy.prices.nominal:
        return frozenset()
    given = _lent(reclaiming)
    # Jobs that are owed the same reclaim the same.
    alike = {(queue, reclaiming.owed(queue, milli)): milli for queue, milli in _asking(reclaiming)}
    return frozenset(
        level
        for (queue, _), milli in alike.items()
        for held in given
        for level in reclaiming.levels(queue, milli, held)
    )
