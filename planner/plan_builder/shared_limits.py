"""
Limits that jobs on different nodes share, while a plan's steps are ordered: which steps a step must wait for
because of quotas, power caps, anti-affinity and the sizes of pools.

Of each limit, every unit that a step takes was free at first, or was freed by a step that the taker waits
for. So the limit holds whichever steps have been done, as long as each was done after those it waits for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.cluster import Level, Node, rack_of
from gpuplan.models.placement import Replica, unmatched
from gpuplan.models.queue import queue_limits, quota_resources
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.allocations import allocations_of
from gpuplan.planner.analysis.node_actions import NODE_RULES
from gpuplan.planner.analysis.quota_headroom import usage_of_resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.plan.action_kinds import ActionKind
    from gpuplan.models.plan.actions import Release
    from gpuplan.planner.analysis.job_changes import JobChange, PlanChanges


class SharedLimits:
    """The limits of a plan's cluster after the steps so far, but for those that no order of steps reaches."""

    def __init__(self, changes: PlanChanges, released: Iterable[Release] = ()) -> None:
        lost = {each.id: _lost(changes, each) for each in released}
        turnovers = [_turnover(each) for each in changes.jobs]
        self._quotas = [*_quota_trees(changes, turnovers, lost.values())]
        self._caps = _caps_by_node(changes, turnovers, lost.values())
        self._distances = JobDistances(changes.nodes, turnovers, lost.values())
        self._pools = _pool_accounts(changes)
        self._pool_of = {name: node.pool for name, node in changes.nodes.items()} if self._pools else {}
        for id_, turnover in lost.items():
            self._turn_over(turnover, id_, ())

    def has_room_for(self, change: JobChange) -> bool:
        """True if the change exceeds no limit now."""
        turnover = _turnover(change)
        return (
            all(quota.has_room_for(turnover) for quota in self._quotas)
            and all(net <= max(0, cap.account.room) for cap, net in self._power(turnover))
            and self._distances.has_room_for(turnover)
        )

    def change_job(self, change: JobChange, id_: str, known: Iterable[str]) -> list[str]:
        """
        Apply the change of a job; returns the ids of the steps that it waits for.

        `known` are steps that it waits for anyway; what they freed is taken first. A change that exceeds a
        limit waits for all steps so far that have to do with this limit.
        """
        if not (self._quotas or self._caps or self._distances.has_rules):
            return []
        return self._turn_over(_turnover(change), id_, tuple(dict.fromkeys(known)))

    def change_node(self, kind: ActionKind, node: str, id_: str) -> list[str]:
        """Add or remove a node; returns the ids of the steps that this waits for."""
        account = self._pools.get(self._pool_of.get(node) or "")
        return account.change(NODE_RULES[kind].grows, id_) if account else []

    def _turn_over(self, turnover: Turnover, id_: str, known: Collection[str]) -> list[str]:
        after = []
        for quota in self._quotas:
            after += quota.change(turnover, id_, known)
        for cap, net in self._power(turnover):
            after += cap.account.change(net, id_, known)
        return after + self._distances.change(turnover, id_)

    def _power(self, turnover: Turnover) -> list[tuple[_PowerCap, int]]:
        """The caps that a step has to do with, each with what the step takes of it."""
        if not self._caps:
            return []
        nodes = sorted({replica.node for replica in (*turnover.leaving, *turnover.arriving)})
        caps = {id(cap): cap for node in nodes for cap in self._caps.get(node, ())}
        return [(cap, cap.net(turnover)) for cap in caps.values()]


def _turnover(change: JobChange) -> Turnover:
    return Turnover(change.job, change.leaving, change.arriving)


def _lost(changes: PlanChanges, release: Release) -> Turnover:
    """What a release gives up; the snapshot of the changes is already without it."""
    before, after = release.before.replicas, release.after.replicas if release.after else ()
    leaving = [before[number] for number in unmatched(before, after)]
    return Turnover(changes.snapshot.job_by_name[release.job], leaving, ())


@dataclass(slots=True)
class _Account:
    """What is free of one limit: at first, and by the steps that freed it."""

    free: int
    """Free at first and not taken; negative while more is in use than the limit allows."""
    freed: dict[str, int] = field(default_factory=dict)
    """What each step freed and no other step has taken, in the order of the steps."""
    room: int = 0
    """What can be taken now: all that is free and freed."""
    settled: list[str] = field(default_factory=list)
    """Steps before which nothing may be taken, since more was in use than the limit allows."""
    steps: list[str] = field(default_factory=list)
    """All steps that freed or took something."""

    def __post_init__(self) -> None:
        self.room = self.free

    def change(self, amount: int, id_: str, known: Iterable[str] = ()) -> list[str]:
        """Take an amount, or free it if it is negative; returns the ids of the steps that this waits for."""
        if not amount:
            return []
        after = self._take(amount, id_, known) if amount > 0 else self._give(-amount, id_)
        self.room -= amount
        self.steps.append(id_)
        return after

    def _give(self, amount: int, id_: str) -> list[str]:
        # While more is in use than allowed, what is freed is for no step: it only settles the excess.
        if self.free < 0:
            paid = min(amount, -self.free)
            self.free += paid
            amount -= paid
            self.settled.append(id_)
        if amount:
            self.freed[id_] = amount
        return []

    def _take(self, amount: int, id_: str, known: Iterable[str]) -> list[str]:
        # The limit is exceeded in any order: this waits for all before it, and all after it wait for this.
        if amount > self.room:
            after, self.settled = [*self.steps], [id_]
            self.free, self.freed = self.room - amount, {}
            return after
        after = [*self.settled]
        for early in known:
            amount = self._take_freed(amount, early, after)
        own = min(amount, max(0, self.free))
        self.free -= own
        amount -= own
        while amount:
            amount = self._take_freed(amount, next(iter(self.freed)), after)
        return after

    def _take_freed(self, amount: int, id_: str, after: list[str]) -> int:
        """Take what a step freed, and add it to `after` if that is anything; returns what is still needed."""
        taken = min(amount, self.freed.get(id_, 0))
        if not taken:
            return amount
        after.append(id_)
        self.freed[id_] -= taken
        if not self.freed[id_]:
            del self.freed[id_]
        return amount - taken


def _pool_accounts(changes: PlanChanges) -> dict[str, _Account]:
    """Nodes that may be added to each pool that the plan adds nodes to."""
    growing = {node.pool for node in changes.added.values()}
    sizes = Counter(node.pool for node in changes.snapshot.cluster.nodes)
    return {
        pool.name: _Account(pool.maximum - sizes[pool.name])
        for pool in changes.snapshot.cluster.pools
        if pool.name in growing
    }


# Quotas: one tree for each resource with quotas: all GPUs, a GPU model, CPU cores, memory.


@dataclass(frozen=True, slots=True)
class _QuotaTree:
    """
    Quotas of one resource, in its unit.

    Usage of a queue counts at the queue above it only beyond what the queue keeps for itself. That part is an
    account of its own, which is filled first and freed last.
    """

    resource: str
    nodes: Mapping[str, Node]
    parent: Mapping[str, str | None]
    accounts: dict[str, _Account]
    """Of the queues that may reach their limits."""
    kept: dict[str, _Account]
    """What each queue keeps, if it keeps anything."""
    beyond: dict[str, int]
    """What jobs that ran before the plan hold beyond that, as far as no step freed it."""

    def has_room_for(self, turnover: Turnover) -> bool:
        """True if the step exceeds no limit now."""
        amount = self._net(turnover)
        name: str | None = turnover.job.queue
        while name is not None and amount > 0:
            if name in self.accounts and self.accounts[name].room < amount:
                return False
            if name in self.kept:
                amount -= min(amount, self.kept[name].room)
            name = self.parent[name]
        return True

    def change(self, turnover: Turnover, id_: str, known: Iterable[str]) -> list[str]:
        """Apply a step; returns the ids of the steps that it waits for."""
        amount, after = self._net(turnover), list[str]()
        name: str | None = turnover.job.queue
        while name is not None and amount:
            if name in self.accounts:
                after += self.accounts[name].change(amount, id_, known)
            if name in self.kept:
                inside = self._inside(name, amount)
                after += self.kept[name].change(inside, id_, known)
                amount -= inside
            name = self.parent[name]
        return after

    def _net(self, turnover: Turnover) -> int:
        taken = _counted(turnover.arriving, self.nodes, self.resource)
        return taken - _counted(turnover.leaving, self.nodes, self.resource)

    def _inside(self, name: str, amount: int) -> int:
        """The part of an amount that is taken of what a queue keeps, or freed there if negative."""
        if amount > 0:
            return min(amount, self.kept[name].room)
        beyond = min(-amount, self.beyond[name])
        self.beyond[name] -= beyond
        return amount + beyond


def _counted(replicas: Iterable[Replica], nodes: Mapping[str, Node], resource: str) -> int:
    """What replicas count for against the quotas of a resource."""
    return sum(
        replica.quota_on(node.gpu_model, resource)
        for replica in replicas
        if (node := nodes.get(replica.node))
    )


def _quota_trees(
    changes: PlanChanges, turnovers: Collection[Turnover], lost: Collection[Turnover]
) -> Iterator[_QuotaTree]:
    queues = changes.snapshot.queues
    for resource in quota_resources(queues):
        limits = queue_limits(queues, resource)
        if all(limit is None for limit in limits.limit.values()):
            continue
        own = Counter(usage_of_resource(allocations_of(changes.snapshot).usage, resource))
        for each in lost:
            own[each.job.queue] += _counted(each.leaving, changes.nodes, resource)
        most = Counter(own)
        for each in turnovers:
            taken = _counted(each.arriving, changes.nodes, resource)
            most[each.job.queue] += max(0, taken - _counted(each.leaving, changes.nodes, resource))
        used, highest = limits.usage(own), limits.usage(most)
        accounts = {
            name: _Account(limit - used[name])
            for name, limit in limits.limit.items()
            if limit is not None and highest[name] > limit
        }
        if accounts:
            kept = {name: kept for name, kept in limits.kept.items() if kept}
            yield _QuotaTree(
                resource,
                changes.nodes,
                limits.parent,
                accounts,
                {name: _Account(max(0, each - used[name])) for name, each in kept.items()},
                {name: max(0, used[name] - each) for name, each in kept.items()},
            )


# Power caps of nodes and racks.


@dataclass(frozen=True, slots=True)
class _PowerCap:
    """A cap on the power of some nodes, in thousandths of watts."""

    watts: Mapping[str, int]
    """Of one GPU of each node."""
    account: _Account

    def net(self, turnover: Turnover) -> int:
        """What a step draws more, or less if negative."""
        return _drawn(self.watts, turnover.arriving) - _drawn(self.watts, turnover.leaving)


def _drawn(watts: Mapping[str, int], replicas: Iterable[Replica]) -> int:
    """What replicas draw on nodes with these watts a GPU, in thousandths of watts."""
    return sum(watts.get(replica.node, 0) * replica.quota_milli for replica in replicas)


def _caps_by_node(
    changes: PlanChanges, turnovers: Collection[Turnover], lost: Collection[Turnover]
) -> dict[str, list[_PowerCap]]:
    """The caps that may be reached, by node."""
    caps = [*_caps(changes)]
    if not caps:
        return {}
    running = [replica for placed in changes.snapshot.running_placements for replica in placed.replicas]
    running += [replica for each in lost for replica in each.leaving]
    found: dict[str, list[_PowerCap]] = defaultdict(list)
    for watts, most in caps:
        cap = _PowerCap(watts, _Account(most * MILLI - _drawn(watts, running)))
        if sum(max(0, cap.net(each)) for each in turnovers) > cap.account.free:
            for node in watts:
                found[node].append(cap)
    return found


def _caps(changes: PlanChanges) -> Iterator[tuple[dict[str, int], int]]:
    """Watts of a GPU of each node, and all watts allowed, of each cap on nodes to which replicas come."""
    watts = {name: node.gpus.watts for name, node in changes.nodes.items() if node.gpus and node.gpus.watts}
    taken = {name for each in changes.jobs for name in each.nodes_taken} & watts.keys()
    for name in sorted(taken):
        if most := changes.nodes[name].power_cap_watts:
            yield {name: watts[name]}, most
    for rack in changes.snapshot.cluster.rack_power:
        inside = {name: each for name, each in watts.items() if rack_of(changes.nodes[name]) == rack_of(rack)}
        if taken & inside.keys():
            yield inside, rack.watts


# Jobs that must not share a domain (anti-affinity), while a plan's steps are ordered one by one.


@dataclass(frozen=True, slots=True)
class Turnover:
    """Replicas that one job gives up and takes in one step."""

    job: Job
    leaving: Sequence[Replica]
    arriving: Sequence[Replica]


_Rule: TypeAlias = "tuple[frozenset[tuple[str, str]], Level]"
"""Labels of the jobs to avoid, and the level of the domain that must not be shared with them."""

_Side: TypeAlias = tuple[_Rule, tuple[str, ...], bool]
"""A rule, a domain, and True for the jobs that avoid, False for the jobs that are avoided."""


class JobDistances:
    """Where jobs are that must not share a domain, as far as they change."""

    def __init__(
        self, nodes: Mapping[str, Node], turnovers: Collection[Turnover], lost: Collection[Turnover]
    ) -> None:
        self._nodes = nodes
        held = [(each.job, each.job.running.replicas) for each in turnovers if each.job.running]
        held += [(each.job, tuple(each.leaving)) for each in lost]
        self._rules = sorted(
            {rule for each in (*turnovers, *lost) for rule in _avoided(each.job)},
            key=lambda rule: (sorted(rule[0]), rule[1]),
        )
        self._there: dict[_Side, Counter[str]] = defaultdict(Counter)
        self._left: dict[_Side, list[tuple[str, str]]] = defaultdict(list)
        """(job, id of the step by which it left)."""
        for job, replicas in held if self._rules else ():
            for side, count in self._sides(job, replicas).items():
                self._there[side][job.name] += count

    @property
    def has_rules(self) -> bool:
        """True if any job must keep a distance from others."""
        return bool(self._rules)

    def has_room_for(self, turnover: Turnover) -> bool:
        """True if the job comes to no domain with a job from which it must keep a distance."""
        return not any(
            count
            for side in self._sides(turnover.job, turnover.arriving)
            for name, count in self._there[_opposite(side)].items()
            if name != turnover.job.name
        )

    def change(self, turnover: Turnover, id_: str) -> list[str]:
        """Apply a step; returns the ids of the steps that it waits for."""
        if not self._rules:
            return []
        coming = self._sides(turnover.job, turnover.arriving)
        going = self._sides(turnover.job, turnover.leaving)
        name = turnover.job.name
        after = [step for side in coming for other, step in self._left[_opposite(side)] if other != name]
        for side, count in coming.items():
            self._there[side][name] += count
        for side, count in going.items():
            self._there[side][name] -= count
            if not self._there[side][name]:
                self._left[side].append((name, id_))
        return after

    def _sides(self, job: Job, replicas: Iterable[Replica]) -> Counter[_Side]:
        """Replicas of a job by the sides that it takes in the rules."""
        nodes = [self._nodes[replica.node] for replica in replicas if replica.node in self._nodes]
        avoided = _avoided(job) if self._rules else ()
        found: Counter[_Side] = Counter()
        for rule in self._rules:
            sides = [
                side
                for side, holds in ((True, rule in avoided), (False, rule[0] <= job.labels.items()))
                if holds
            ]
            for node in nodes if sides else ():
                domain = node.domain(rule[1]) or ("",) * 5 + (node.name,)
                found.update((rule, domain, side) for side in sides)
        return found


def _avoided(job: Job) -> list[_Rule]:
    return [(frozenset(each.labels.items()), each.level) for each in job.anti_affinity]


def _opposite(side: _Side) -> _Side:
    rule, domain, avoids = side
    return rule, domain, not avoids
