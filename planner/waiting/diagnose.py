"""
Why a job waits once a plan is applied: the most severe reason that applies, with numbers.

`ReasonCode` defines the order of severity. Jobs that differ only in name share one answer, so the cost grows
with the number of kinds of jobs, not with the number of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuplan.models.cluster import rack_of
from gpuplan.models.eligibility.free_resources import FreeResources
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.value.disruption_cost import currency_points, node_points
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.analysis.power_use import PowerUse
from gpuplan.planner.analysis.quota_headroom import QuotaHeadroom
from gpuplan.planner.waiting import messages
from gpuplan.planner.waiting.eligible_nodes import BlockedNodes, EligibilityIndex, EligibleNodes, EmptyNodes
from gpuplan.planner.waiting.free_capacity import (
    ClusterFreeCapacity,
    FreeCapacity,
    NodeRoom,
    replica_needs,
    replicas_in_one_domain,
)
from gpuplan.planner.waiting.mig_capacity import MigCapacity
from gpuplan.planner.waiting.policy_blocks import (
    BudgetBlocks,
    FutureStarts,
    PolicyBlocks,
    TurnBlocks,
    with_budgets,
    with_remarks,
)
from gpuplan.planner.waiting.time_blockers import TimeBlockers
from gpuplan.planner.waiting.time_messages import co_start_group_waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from gpuplan.models.cluster import Node, NodePool
    from gpuplan.models.job import Job
    from gpuplan.models.plan.reason import Reason
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


def waiting_reasons(
    snapshot: Snapshot,
    policy: Policy,
    target: DesiredState,
    *,
    preempted: Mapping[str, Sequence[str]] | None = None,
    proven: bool = False,
    changes: PlanChanges | None = None,
) -> dict[str, Reason]:
    """
    Return the reason of every job without a placement, by job name, given the placements of all others.

    `preempted` maps each preempted job to the jobs that take its place. `proven` states that no plan can be
    better. `changes` are the changes of the target, if they are known already.
    """
    changes, policy = changes or PlanChanges(snapshot, target), policy.within(snapshot.cluster)
    stopped = [change.job.name for change in changes.jobs if change.after is None]
    started = {change.job.name for change in changes.jobs}
    waiting = [job for job in snapshot.waiting if job.name not in started]
    examiner = _Examiner(changes, policy, waiting, proven=proven)
    reason_by_kind: dict[Any, Reason] = {}
    reasons = {name: messages.preempted((preempted or {}).get(name, ())) for name in stopped}
    for job in waiting:
        scheduled = examiner.is_scheduled(job)
        kind = examiner.kind(job), scheduled
        reason = reason_by_kind.get(kind)
        if reason is None:
            reason = examiner.reason(job)
            # When and where the schedule has it start is told only if it would fit now.
            if not scheduled or reason.code is not ReasonCode.NOT_CHOSEN:
                reason_by_kind[kind] = reason
        reasons[job.name] = reason
    return examiner.together(reasons)


@dataclass(frozen=True, slots=True)
class _Growing:
    """A pool that the policy allows to grow."""

    pool: NodePool
    place: NodeRoom
    """One new node of the pool."""
    addable: int


class _Examiner:
    """Finds the reasons of single jobs; what the jobs have in common is computed once."""

    def __init__(self, changes: PlanChanges, policy: Policy, waiting: Iterable[Job], *, proven: bool) -> None:
        snapshot, target, free = changes.snapshot, changes.target, changes.free
        self._snapshot, self._policy, self._proven = snapshot, policy, proven
        self._cluster = cluster = changes.cluster
        power = PowerUse(cluster, target.placements)
        left, of_racks = power.left_by_node, power.left_of_racks(cluster.rack_power)
        in_use = MigCapacity(target.placements, policy.mig, changes.switched)
        places = [
            NodeRoom(
                node,
                free[node.name],
                in_use,
                left.get(node.name),
                of_racks.get(rack_of(node)) if of_racks else None,
            )
            for node in cluster.nodes
        ]
        self._growing = self._pools()
        self._capped = bool(left)
        nodes = [*cluster.nodes, *(growing.place.node for growing in self._growing)]
        added = {node.name for node in target.added}
        new = [index for index, node in enumerate(nodes) if index >= len(cluster.nodes) or node.name in added]
        self._matcher = EligibilityIndex(nodes, waiting, new)
        self._free = ClusterFreeCapacity(places, changes.allocations_after)
        self._empty = EmptyNodes(nodes, MigCapacity((), policy.mig, changes.switched))
        self._room = QuotaHeadroom(snapshot.queues, changes.allocations_after.usage)
        self._barriers = BlockedNodes(changes, policy)
        self._ways_out = PolicyBlocks(snapshot, policy, target, cluster)
        self._budgets = BudgetBlocks(snapshot, policy, target)
        self._turns = TurnBlocks(snapshot, policy, target)
        self._outlook = TimeBlockers(changes, policy)
        self._ahead = FutureStarts(changes, policy)
        self._free_pools: dict[Any, list[FreeCapacity]] = {}
        self._kinds: dict[tuple[Any, ...], int] = {}
        self._kind_of_plain: dict[tuple[Any, ...], int] = {}

    def is_scheduled(self, job: Job) -> bool:
        """True if the best schedule of the queue has a start for a job (`JobValue.planned_start`)."""
        return self._earnings.worth.planned_start(job) is not None

    def kind(self, job: Job) -> int:
        """Number of all that a job's reason depends on, but for its start in the best schedule."""
        plain = None if self._outlook.by_name or job.gang.scaled else job.plain_key
        number = None if plain is None else self._kind_of_plain.get(plain)
        if number is None:
            number = self._kinds.setdefault(self._kind(job), len(self._kinds))
            if plain is not None:
                self._kind_of_plain[plain] = number
        return number

    def _kind(self, job: Job) -> tuple[Any, ...]:
        priced = bool(job.datasets or job.preferred_nodes or self._growing)
        return (
            (job.requirements_key, job.hold_reason),
            (self._value(job), job.datasets, job.preferred_nodes) if priced else None,
            job.priority
            if self._barriers.by_priority
            or self._ways_out.by_priority
            or self._ahead.by_priority
            or self._budgets.by_priority
            or self._turns.by_priority
            else None,
            (tuple(sorted(job.labels.items())), _terms(job)) if self._barriers.by_labels else None,
            self._outlook.kind(job),
            tuple(self._avoided(job).items()),
        )

    def reason(self, job: Job) -> Reason:
        """Return the most severe reason."""
        if job.held:
            return messages.held(job)
        if job.retry is not None and job.retries_used_up:
            return messages.retries_used_up(job.failures, job.retry.retries)
        if (never := self._outlook.never(job)) is not None:
            return never
        match = self._matcher.match(job)
        needs = replica_needs(job, self._snapshot.cluster, capped=self._capped)
        if not match.nodes:
            if (opening := self._outlook.opening(job)) is not None:
                return opening
            models = set(self._cluster.gpu_model_by_node.values())
            return with_remarks(
                messages.no_match(job, match, models), self._ways_out.closed_pools(job, needs)
            )
        empty = self._empty.kinds(match)
        if not empty.count_replicas(needs, 1):
            if self._ways_out.would_suit_recut(job, needs, empty.places):
                why = self._ways_out.why_off(ActionKind.REPARTITION, "mig.repartition")
                return messages.wrong_layout(needs, why)
            found = messages.too_large(self._empty.all(match), needs)
            return with_remarks(found, self._ways_out.closed_pools(job, needs))
        smallest = job.request.quota.times(job.gang.minimum)
        ever = self._room.alone(job.queue, smallest, match.gpu_models)
        if ever.shortage is not None:
            return messages.beyond_quota(ReasonCode.EXCEEDS_MAX_QUOTA, ever.shortage)
        if (not_yet := self._outlook.not_yet_reason(job)) is not None:
            return not_yet
        now = self._room.now(job.queue, smallest, ever.gpu_models)
        if now.shortage is not None:
            found = messages.beyond_quota(ReasonCode.WAITING_FOR_QUOTA, now.shortage)
            found = with_remarks(found, [*self._turns.in_queues(job), *self._ahead.in_queues(job)])
            return with_budgets(found, self._budgets.in_queues(job))
        return self._no_room(job, needs, match, now.gpu_models)

    def _no_room(
        self, job: Job, needs: dict[str, int], match: EligibleNodes, gpu_models: tuple[str, ...]
    ) -> Reason:
        """Return what is missing on the eligible nodes of the GPU models that the quotas allow."""
        replicas = job.gang.minimum
        pools = self._choices(job, match, gpu_models)
        counted = [(pool.count_replicas(needs, replicas), pool) for pool in pools]
        fitting = [pool for found, pool in counted if found >= replicas]
        if not fitting:
            if (growing := self._would_grow(job, needs, match, gpu_models)) is not None:
                price = node_points(self._policy, growing.pool)
                return messages.new_nodes(growing.pool.name, price, self._value(job))
            # The GPU model that comes closest to enough capacity gives the most useful message.
            first = next(iter(needs), "")
            _, pool = max(counted, key=lambda choice: (choice[0], choice[1].total(first)))
            found = messages.too_little_free(pool, needs, replicas) or messages.fragmented(
                pool, needs, replicas
            )
            forbidden = self._ways_out.forbidden_by_policy(job, needs, pool)
            closed = self._ways_out.closed_pools(job, needs, lambda node: self._quota_allows(job, node))
            turns = self._turns.on_nodes(job, pool)
            found = with_remarks(found, [*forbidden, *turns, *closed, *self._ahead.on_nodes(job, pool)])
            names = [place.node.name for place in pool.places] if self._budgets.by_priority else []
            return with_budgets(found, self._budgets.on_nodes(job, names))
        apart = [replicas_in_one_domain(job, pool, needs) for pool in fitting]
        if not any(found >= replicas for found, _ in apart):
            return messages.too_far_apart(job, *max(apart))
        roomy = (place.node for place in _places(fitting) if FreeCapacity([place]).count_replicas(needs, 1))
        shut = self._outlook.closed(job, roomy)
        if shut and not any(self._fits_without(job, pool, needs, set(shut)) for pool in fitting):
            return self._outlook.closed_reason(job, shut, every=len(shut) == len(match.nodes))
        reserved = self._barriers.reserved(job, _places(fitting))
        avoided = self._barriers.avoided(job, (place.node for place in _places(fitting)))
        for barred, text in ((reserved, messages.RESERVED), (reserved | avoided, messages.AVOIDED)):
            if barred and not any(self._fits_without(job, pool, needs, barred) for pool in fitting):
                return messages.blocked_room(text, barred)
        return self._not_chosen(job, fitting)

    def _avoided(self, job: Job) -> dict[str, datetime]:
        """GPU models on which a job rather waits for a better one, each with the end of that wait."""
        worth = self._earnings.worth
        if not job.gang.scaled:
            return {}
        return {
            model: job.submitted_at + timedelta(seconds=worth.patience(job, model))
            for model in worth.avoided_models(job)
        }

    def _roomy_models(self, job: Job, pools: Iterable[FreeCapacity]) -> set[str]:
        """GPU models of the nodes with room for a replica."""
        needs = replica_needs(job, self._snapshot.cluster, capped=self._capped)
        roomy = (place for place in _places(pools) if FreeCapacity([place]).count_replicas(needs, 1))
        return {model for place in roomy if (model := place.node.gpu_model)}

    def _quota_allows(self, job: Job, node: Node) -> bool:
        smallest = job.request.quota.times(job.gang.minimum)
        models = (node.gpu_model,) if node.gpu_model else ()
        return self._room.now(job.queue, smallest, models).shortage is None

    def _fits_without(self, job: Job, pool: FreeCapacity, needs: dict[str, int], barred: set[str]) -> bool:
        open_ = [place.node.name not in barred for place in pool.places]
        left = pool.part(np.flatnonzero(np.array(open_, dtype=bool)))
        return replicas_in_one_domain(job, left, needs)[0] >= job.gang.minimum

    def _not_chosen(self, job: Job, pools: Sequence[FreeCapacity]) -> Reason:
        """Reason of a job that would fit: its cost there, a later start, or that no plan with it won."""
        if job.weight_milli == 0:
            return messages.zero_weight()
        if start := self._earnings.worth.planned_start(job):
            return messages.starts_later(start, self._snapshot.taken_at)
        if avoided := self._avoided(job):
            models = self._roomy_models(job, pools)
            if models <= avoided.keys():
                until, model = min((avoided[model], model) for model in models)
                best, now = self._earnings.worth.best_model(job) or "", self._snapshot.taken_at
                return messages.waits_for_better(model, best, until, now)
        costs = (self._replica_points(job, place) for place in _places(pools))
        cost = job.gang.minimum * min(costs) if job.datasets or job.preferred_nodes else 0
        if cost and cost >= (value := self._value(job)):
            return messages.cost_exceeds_value(cost, value)
        return (
            self._outlook.later(job)
            or self._outlook.promised_away(job, (place.node for place in _places(pools)))
            or messages.not_chosen(proven=self._proven)
        )

    def together(self, reasons: dict[str, Reason]) -> dict[str, Reason]:
        """Return the reasons; jobs that would fit but wait for their co-start group get that reason."""
        found = dict(reasons)
        for name, reason in reasons.items():
            if reason.code is not ReasonCode.NOT_CHOSEN:
                continue
            job = self._snapshot.job_by_name[name]
            if others := [other for other in self._outlook.co_start_jobs(job) if other in reasons]:
                told = [(other, reasons[other]) for other in others]
                # A companion that does not fit explains more than one that would fit.
                told.sort(key=lambda each: (each[1].code is ReasonCode.NOT_CHOSEN, each[0]))
                found[name] = co_start_group_waits(job.co_start or "", told)
        return found

    def _replica_points(self, job: Job, place: NodeRoom) -> int:
        """Points that a replica costs on a node, disruptions aside: data to read, unmet preferences."""
        read = sum(
            dataset.zones.get(place.node.zone, dataset.elsewhere)
            for dataset in self._snapshot.cluster.datasets
            if dataset.name in job.datasets
        )
        missed = sum(wish.points for wish in job.preferred_nodes if not wish.match.holds(place.node.labels))
        return currency_points(self._policy, read) + missed

    @cached_property
    def _earnings(self) -> StartValue:
        """Built only if places have a price, because learning durations takes time."""
        return StartValue(self._snapshot, self._policy)

    def _value(self, job: Job) -> int:
        """Points of the job at its minimum size, started now on its fastest GPU model."""
        return self._earnings.completion(job, None, job.gang.minimum)

    def _choices(self, job: Job, match: EligibleNodes, gpu_models: tuple[str, ...]) -> list[FreeCapacity]:
        """The sets of nodes, one of which must hold the whole job."""
        if not job.request.needs_gpu:
            sets: tuple[tuple[str, ...] | None, ...] = (None,)
        elif job.gang.minimum == 1:
            sets = (gpu_models,)
        else:
            sets = tuple((model,) for model in gpu_models)  # a gang runs on one GPU model
        if (match, sets) not in self._free_pools:
            found = (match.indices if models is None else match.of_models(models) for models in sets)
            self._free_pools[match, sets] = [
                self._free.part(nodes[nodes < len(self._free)]) for nodes in found
            ]
        return self._free_pools[match, sets]

    def _would_grow(
        self, job: Job, needs: dict[str, int], match: EligibleNodes, gpu_models: tuple[str, ...]
    ) -> _Growing | None:
        """The first pool that can hold the job with its new nodes and with what is free already."""
        for index, growing in enumerate(self._growing, len(self._free)):
            model = growing.place.node.gpu_model
            if index not in match.nodes or (job.request.needs_gpu and model not in gpu_models):
                continue
            models = (model,) if model and job.request.needs_gpu else gpu_models
            found = max(
                pool.count_replicas(needs, job.gang.minimum) for pool in self._choices(job, match, models)
            )
            each = FreeCapacity([growing.place]).count_replicas(needs, job.gang.minimum)
            if found + each * growing.addable >= job.gang.minimum:
                return growing
        return None

    def _pools(self) -> list[_Growing]:
        """Pools that may grow, each with one new node."""
        found = []
        for pool in self._cluster.pools:
            there = sum(node.pool == pool.name for node in self._cluster.nodes)
            may_grow = self._policy.pools.may_add(pool, self._snapshot.taken_at)
            if may_grow and (addable := pool.maximum - there) > 0:
                room = MigCapacity((), self._policy.mig)
                place = NodeRoom(pool.template, FreeResources.of(pool.template), room)
                found.append(_Growing(pool, place, addable))
        return found


def _places(pools: Iterable[FreeCapacity]) -> Iterator[NodeRoom]:
    return (place for pool in pools for place in pool.places)


def _terms(job: Job) -> tuple[Any, ...]:
    return tuple(sorted((term.level.value, *sorted(term.labels.items())) for term in job.anti_affinity))
