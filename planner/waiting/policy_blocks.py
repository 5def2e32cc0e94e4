"""
Rules of the policy that let a job wait.

Higher priorities first, switches, dwell times, turns, pool maxima, and disruption budgets.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.eligibility.preemption_order import is_in_turn, least_follower, turn_seconds
from gpuplan.models.plan.action_kinds import INFINITIVES
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.policy.policy import Policy, PriorityOrder
from gpuplan.models.queue import root_queue
from gpuplan.planner.analysis.budget_use import BudgetKeeper, budget_text
from gpuplan.planner.problem_builder.quotas import Reclaiming
from gpuplan.planner.text_format import format_count, format_gpus, format_time, join_first_names, join_jobs
from gpuplan.planner.waiting.free_capacity import FreeCapacity, NodeRoom
from gpuplan.planner.waiting.mig_capacity import MigCapacity

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gpuplan.models.cluster import Cluster, Node, NodePool
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.plan.plan import BudgetUse
    from gpuplan.models.plan.reason import Reason
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.analysis.job_changes import PlanChanges


class PolicyBlocks:
    """Finds what the policy forbids for one target; `cluster` is the cluster as the target leaves it."""

    def __init__(self, snapshot: Snapshot, policy: Policy, target: DesiredState, cluster: Cluster) -> None:
        self._policy, self._cluster, self._now = policy, cluster, snapshot.taken_at
        self._dwelling = _dwelling(snapshot, policy, target)
        self._priorities = {} if policy.disruption.preempt else _priorities(snapshot, policy, target)
        self._recutting = policy.mig.model_copy(update={"repartition": True})
        self._recut = MigCapacity(target.placements, self._recutting)
        self._recut_pools: dict[FreeCapacity, FreeCapacity] = {}
        self._least_priority: dict[tuple[FreeCapacity, bool], float] = {}

    @property
    def by_priority(self) -> bool:
        """True if the answers depend on the priority of a job."""
        return bool(self._priorities or self._dwelling)

    def closed_pools(
        self, job: Job, needs: dict[str, int], allowed: Callable[[Node], bool] = lambda _: True
    ) -> list[str]:
        """
        Describe the pools in which new nodes would fit the job, and why they get no nodes.

        `allowed` states whether quotas admit the job on such a node.
        """
        suiting = [
            pool for pool in self._cluster.pools if self._suits(job, needs, pool) and allowed(pool.template)
        ]
        below = [pool for pool in suiting if self._there(pool) < pool.maximum]
        if below:
            return self._held_back(below)
        if len(suiting) > 1:
            names = join_first_names(sorted(pool.name for pool in suiting))
            return [f"pools {names} are at their maximum"]
        return [
            f"pool {pool.name} is at its maximum of {format_count(pool.maximum, 'node')}" for pool in suiting
        ]

    def forbidden_by_policy(self, job: Job, needs: dict[str, int], pool: FreeCapacity) -> list[str]:
        """Describe what the policy forbids on the eligible nodes of the job."""
        found = []
        if self._priorities and job.priority >= self._least_on(pool, with_gpus=job.request.needs_gpu):
            found.append(self.why_off(ActionKind.PREEMPT, "preemption"))
        found += self._resting(job, pool)
        if self.would_fit_recut(job, needs, pool):
            found.append(self.why_off(ActionKind.REPARTITION, "mig.repartition"))
        return found

    def why_off(self, kind: ActionKind, setting: str) -> str:
        """Why a plan has no action of a kind that the policy in force switches off."""
        return (
            f"{setting} is off" if self._cluster.offers(kind) else f"the cluster cannot {INFINITIVES[kind]}"
        )

    def _held_back(self, pools: list[NodePool]) -> list[str]:
        """Why none of these pools gets nodes although all are below their maximum; empty if one may."""
        rules = self._policy.pools
        if not rules.scale_up:
            return [self.why_off(ActionKind.SCALE_UP, "pools.scale_up")]
        if any(rules.may_add(pool, self._now) for pool in pools):
            return []
        delay = timedelta(seconds=rules.scale_up_delay_after_remove)
        at, name = min((pool.node_removed_at + delay, pool.name) for pool in pools if pool.node_removed_at)
        until = format_time(at, self._now)
        return [f"pool {name} gave a node back and gets none before {until}"]

    def _resting(self, job: Job, pool: FreeCapacity) -> list[str]:
        """Running jobs that could yield capacity but for the dwell after a resize; names only the first."""
        if not self._dwelling:
            return []
        there = {place.node.name for place in pool.places}
        found = [
            (until, other.name)
            for until, other, nodes in self._dwelling
            if job.priority >= least_follower(self._policy, other, self._now) and not there.isdisjoint(nodes)
        ]
        if not found:
            return []
        until, name = min(found)
        others = f", nor {format_count(len(found) - 1, 'other')} resized as well" if len(found) > 1 else ""
        return [f"{name} was resized and is not disturbed before {format_time(until, self._now)}{others}"]

    def would_fit_recut(self, job: Job, needs: dict[str, int], pool: FreeCapacity) -> bool:
        """True if the job would fit with new MIG layouts, but the policy forbids to repartition."""
        if self._policy.mig.repartition or not job.request.mig:
            return False
        recut = self._recut_pools.get(pool)
        if recut is None:
            recut = self._recut_pools[pool] = FreeCapacity(
                [place._replace(mig=self._recut) for place in pool.places]
            )
        return recut.count_replicas(needs, job.gang.minimum) >= job.gang.minimum

    def would_suit_recut(self, job: Job, needs: dict[str, int], empty: Sequence[NodeRoom]) -> bool:
        """True if a replica fits on one of these empty nodes with MIG layouts that the policy forbids."""
        if self._policy.mig.repartition or not job.request.mig:
            return False
        room = MigCapacity((), self._recutting)
        return (
            FreeCapacity([NodeRoom(place.node, place.free, room) for place in empty]).count_replicas(needs, 1)
            > 0
        )

    def _least_on(self, pool: FreeCapacity, *, with_gpus: bool) -> float:
        """Lowest priority that could preempt a job on one of the nodes."""
        key = pool, with_gpus
        least = self._least_priority.get(key)
        if least is None:
            there = (self._priorities.get((place.node.name, with_gpus), inf) for place in pool.places)
            least = self._least_priority[key] = min(there, default=inf)
        return least

    def _suits(self, job: Job, needs: dict[str, int], pool: NodePool) -> bool:
        node = pool.template
        if ineligibility(job, node) is not None or (node.gpus and not job.request.needs_gpu):
            return False
        empty = NodeRoom(node, FreeResources.of(node), MigCapacity((), self._policy.mig))
        return FreeCapacity([empty]).count_replicas(needs, 1) > 0

    def _there(self, pool: NodePool) -> int:
        return sum(node.pool == pool.name for node in self._cluster.nodes)


def _dwelling(
    snapshot: Snapshot, policy: Policy, target: DesiredState
) -> list[tuple[datetime, Job, frozenset[str]]]:
    """Jobs that may not be disturbed only because of their last resize: end of the dwell, job and nodes."""
    rules, now = policy.disruption, snapshot.taken_at
    if not (rules.preempt or rules.resize):
        return []
    freely = rules.model_copy(update={"resize_dwell": 0})
    jobs = (snapshot.job_by_name[placement.job] for placement in target.placements)
    return [
        (
            job.running.resized_at + timedelta(seconds=rules.resize_dwell),
            job,
            frozenset(replica.node for replica in job.running.replicas),
        )
        for job in jobs
        if job.running
        and job.running.resized_at
        and rules.is_in_resize_dwell(job, now)
        and freely.may_disturb(job, now)
        and (rules.preempt or len(job.running.replicas) > job.gang.minimum)
    ]


def _priorities(snapshot: Snapshot, policy: Policy, target: DesiredState) -> dict[tuple[str, bool], int]:
    """Lowest priority that could preempt a job, by (node, whether the preemption must free GPUs)."""
    rules, jobs = policy.disruption, snapshot.job_by_name
    least: dict[tuple[str, bool], int] = {}
    for placement in target.placements:
        job = jobs[placement.job]
        if not rules.may_disturb(job, snapshot.taken_at):
            continue
        required = least_follower(policy, job, snapshot.taken_at)
        for replica in placement.replicas:
            for with_gpus in {False, bool(replica.gpus)}:
                key = replica.node, with_gpus
                least[key] = min(required, least.get(key, required))
    return least


def with_remarks(reason: Reason, remarks: Iterable[str]) -> Reason:
    """Return the reason with remarks appended to its sentence."""
    text = "; ".join([reason.text, *remarks])
    return reason.model_copy(update={"text": text})


# Jobs of higher priority that start first, where the policy starts jobs in order of priority (tiers).


_CENTURY: Final = 100 * 365 * 24 * 3600
"""Seconds; no turn is said to last longer."""

_Began: TypeAlias = "tuple[Job, tuple[Replica, ...]]"


class FutureStarts:
    """Names the jobs of higher priority that one target starts or grows ahead of a waiting job."""

    def __init__(self, changes: PlanChanges, policy: Policy) -> None:
        self._parents = changes.snapshot.parent_queues
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
        root = root_queue(job.queue, self._parents)
        if root not in self._in_queues:
            self._in_queues[root] = [
                each for each in self._began if root_queue(each[0].queue, self._parents) == root
            ]
        return self._told(job, "queue", root, self._in_queues[root])

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
    return [f"priority {job.priority} comes after {join_jobs(sorted(milli))} of higher priority{size}"]


class BudgetBlocks:
    """The running jobs that only a disruption budget protects from jobs of enough priority."""

    def __init__(self, snapshot: Snapshot, policy: Policy, target: DesiredState) -> None:
        self._kept: list[tuple[int, frozenset[str], str, BudgetUse]] = []
        """(lowest priority that could replace the job, its nodes, its root queue, the budget)."""
        rules = policy.disruption
        if not rules.budgets or not rules.preempt:
            return
        self._parents = snapshot.parent_queues
        keeper, jobs = BudgetKeeper(snapshot, policy, target), snapshot.job_by_name
        for placement in target.placements:
            job = jobs[placement.job]
            if rules.may_disturb(job, snapshot.taken_at) and (use := keeper.against(job)) is not None:
                root = root_queue(job.queue, self._parents)
                least = least_follower(policy, job, snapshot.taken_at)
                self._kept.append((least, placement.nodes, root, use))

    @property
    def by_priority(self) -> bool:
        """True if the answers depend on the priority of a job."""
        return bool(self._kept)

    def on_nodes(self, job: Job, names: Collection[str]) -> list[BudgetUse]:
        """The budgets that keep jobs on some nodes which this one could replace, by name."""
        names = set(names)
        return _distinct(
            use for least, nodes, _, use in self._kept if job.priority >= least and nodes & names
        )

    def in_queues(self, job: Job) -> list[BudgetUse]:
        """The budgets that keep jobs in queues under the same root which this one could replace, by name."""
        if not self._kept:
            return []
        # Only jobs under the same root use quota that could be lent to this queue.
        root = root_queue(job.queue, self._parents)
        return _distinct(use for least, _, top, use in self._kept if job.priority >= least and top == root)


class TurnBlocks:
    """The running jobs that are in their turn, which jobs of enough priority in other queues await."""

    def __init__(self, snapshot: Snapshot, policy: Policy, target: DesiredState) -> None:
        self._policy, self._now, self._parents = policy, snapshot.taken_at, snapshot.parent_queues
        self._kept: list[tuple[Job, frozenset[str]]] = []
        """Jobs that keep their places, with their nodes."""
        if policy.disruption.preempt or policy.disruption.resize:
            running = ((snapshot.job_by_name[each.job], each.nodes) for each in target.placements)
            self._kept = [
                (job, nodes)
                for job, nodes in running
                if is_in_turn(policy, job, self._now) and policy.disruption.may_disturb(job, self._now)
            ]
        self._reclaiming = Reclaiming(snapshot, policy) if self._kept else None

    @property
    def by_priority(self) -> bool:
        """True if the answers depend on the priority of a job."""
        return bool(self._kept)

    def on_nodes(self, job: Job, pool: FreeCapacity) -> list[str]:
        """Describe the turns on the nodes of a pool; names only the one that ends first."""
        if not self._kept:
            return []
        names = {place.node.name for place in pool.places}
        return self._told(job, (other for other, nodes in self._kept if not nodes.isdisjoint(names)))

    def in_queues(self, job: Job) -> list[str]:
        """Describe the turns in queues under the same root as the job's queue."""
        if not self._kept:
            return []
        root = root_queue(job.queue, self._parents)
        return self._told(
            job, (other for other, _ in self._kept if root_queue(other.queue, self._parents) == root)
        )

    def _told(self, job: Job, others: Iterable[Job]) -> list[str]:
        found = [
            (
                other.running.started_at
                + timedelta(seconds=min(turn_seconds(self._policy, other), _CENTURY)),
                other,
            )
            for other in others
            if other.running
            and self._reclaiming
            and job.priority >= least_follower(self._policy, other, self._now)
            and self._reclaiming.keeps_turn(other, job.queue)
        ]
        if not found:
            return []
        until, first = min(found, key=lambda each: (each[0], each[1].name))
        rest = f", nor {format_count(len(found) - 1, 'other')} like it" if len(found) > 1 else ""
        when = format_time(until, self._now)
        return [f"{first.name} was preempted and is not preempted for queue {job.queue} before {when}{rest}"]


def _distinct(uses: Iterable[BudgetUse]) -> list[BudgetUse]:
    by_name = {use.name: use for use in uses}
    return [by_name[name] for name in sorted(by_name)]


def with_budgets(reason: Reason, uses: Sequence[BudgetUse]) -> Reason:
    """The reason with the budgets in its sentence, and their names among its numbers."""
    if not uses:
        return reason
    numbers = reason.numbers | {"disruption_budgets": ", ".join(use.name for use in uses)}
    text = "; ".join([reason.text, *map(budget_text, uses)])
    return reason.model_copy(update={"text": text, "numbers": numbers})
