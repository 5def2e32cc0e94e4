"""Use of the last plan for the next one: detection of an unchanged cluster, and the warm start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from gpuplan.models.eligibility.preemption_order import is_in_turn
from gpuplan.models.placement import same_holdings
from gpuplan.models.plan.actions import Preempt, Shrink
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.settings import Goal
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.allocations import update_allocations_from
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.problem_builder.earliest_start import finished_by_name, is_satisfied
from gpuplan.planner.problem_builder.quotas import Reclaiming, reclaim_pairs

if TYPE_CHECKING:
    from gpuplan.models.base import Noun
    from gpuplan.models.cluster import Cluster, NodePool
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

_Noun = TypeVar("_Noun", bound="Noun")

_OVERTAKEN_BY_RUNNING: Final = frozenset(
    (Goal.LEAST_ATTAINED_SERVICE, Goal.FAIRNESS, Goal.MAKESPAN, Goal.CRITICAL_PATH)
)
"""Goals under which a running job loses value, relative to pending jobs, while it runs."""


def reuse_equal_nouns(live: Snapshot, last: Snapshot) -> Snapshot:
    """
    The live snapshot in canonical order, with the objects of an earlier snapshot for equal nodes and jobs.

    Cached results of these objects, such as texts and placements, are then reused.
    """
    nodes = tuple(_equal_or(node, last.cluster.node_by_name.get(node.name)) for node in live.cluster.nodes)
    cluster = _equal_or(live.cluster.model_copy(update={"nodes": nodes}), last.cluster)
    jobs = tuple(_equal_or(job, last.job_by_name.get(job.name)) for job in live.jobs)
    known = live.model_copy(update={"cluster": cluster, "jobs": jobs}).canonical()
    update_allocations_from(last, known)
    return known


def is_settled(live: Snapshot, policy: Policy, last: Plan) -> bool:
    """
    True if the last plan was carried out completely, and since then nothing changed or became allowed.

    Gains from a longer search are ignored until something changes, so that an unchanged cluster stays
    unchanged. Changes of value by the clock, as by ageing and checkpoints, are ignored as well. With more
    than one slot, with reservations, or if equal jobs take turns by attained service, time alone may require
    actions; the result is then always False.
    """
    if policy.horizon.slots > 1 or live.cluster.reservations or not has_same_rules(policy, last.policy):
        return False
    if policy.disruption.preempts_equals and policy.objective.goals & _OVERTAKEN_BY_RUNNING:
        return False
    if live.job_by_name.keys() != last.snapshot.job_by_name.keys():
        return False
    # The times of pool scalings do not count by themselves; `_is_more_allowed` checks their effect.
    cluster = cluster_after(last.snapshot, last.target)
    cluster = cluster.model_copy(update={"pools": _as_scaled_in(live.cluster, cluster.pools)})
    expected = last.snapshot.model_copy(update={"cluster": cluster})
    expected, live = expected.canonical(), live.canonical()
    if any(getattr(expected, part) != getattr(live, part) for part in ("cluster", "queues", "finished")):
        return False
    there = {placement.job: placement for placement in last.target.placements}
    found = {placement.job: placement for placement in live.running_placements}
    return (
        there.keys() == found.keys()
        and all(_same_question(job, expected.job_by_name[job.name]) for job in live.jobs)
        and all(_same_places(placement, there[job]) for job, placement in found.items())
        and not _is_more_allowed(live, policy, last)
    )


def initial_target(live: Snapshot, policy: Policy, last: Plan) -> DesiredState | None:
    """
    Target of the last plan, restricted to jobs and nodes that still exist; None under other rules.

    Preemptions that are not done yet stay in it. Jobs that were started by other means run on. With more than
    one slot it is None, since the slots of the last plan are different.
    """
    if policy.horizon.slots > 1 or not has_same_rules(policy, last.policy):
        return None
    target, before = last.target, last.snapshot.job_by_name
    planned = {placement.job: placement for placement in target.placements}
    nodes = live.cluster.node_by_name
    added = tuple(node for node in target.added if node.name not in nodes)
    there = nodes.keys() | {node.name for node in added}
    placements = []
    for job in live.canonical().jobs:
        meant, running = planned.get(job.name), job.placement
        if meant is None:
            ran = job.name in before and before[job.name].running is not None
            placements += [running] if running and not ran else []
        elif running and _same_places(running, meant):
            placements.append(running)
        elif there >= {replica.node for replica in meant.replicas}:
            placements.append(meant)
    removed = tuple(name for name in target.removed if name in nodes)
    return DesiredState(tuple(placements), added, removed)


def new_waiting_jobs(live: Snapshot, last: Snapshot) -> frozenset[str]:
    """Names of the pending jobs that are new or changed since the last plan."""
    before = last.job_by_name
    return frozenset(
        job.name
        for job in live.jobs
        if job.running is None and not (job.name in before and _same_question(job, before[job.name]))
    )


def _is_more_allowed(live: Snapshot, policy: Policy, last: Plan) -> bool:
    """True if an action that was forbidden to the last plan is allowed now."""
    waiting = [job for job in live.jobs if job.running is None and not job.withheld]
    return _is_time(live, policy, last.snapshot, waiting) or _enabled_a_start(live, last, waiting)


def _is_time(live: Snapshot, policy: Policy, before: Snapshot, waiting: list[Job]) -> bool:
    """True if by time alone a job may now start, or be disturbed, that could not before."""
    data = {dataset.name: dataset.available_at for dataset in live.cluster.datasets}
    begins = (begin for job in waiting for begin in (job.begins_at, *(data[name] for name in job.datasets)))
    if any(begin and before.taken_at < begin <= live.taken_at for begin in begins):
        return True
    return (
        _dwell_is_over(live, policy, before)
        or _minimum_runtime_is_over(live, policy, before, waiting)
        or _patience_is_over(live, policy, before, waiting)
    )


def _minimum_runtime_is_over(live: Snapshot, policy: Policy, before: Snapshot, waiting: list[Job]) -> bool:
    """True if a job may be disturbed that had not reached its minimum runtime, or its turn's end, before."""
    rules, now, then = policy.disruption, live.taken_at, before.taken_at
    if not (rules.migrate or (waiting and (rules.preempt or rules.resize))):
        return False
    if any(is_in_turn(policy, job, then) and not is_in_turn(policy, job, now) for job in live.jobs):
        return True
    return bool(rules.minimum_runtime) and any(
        rules.may_disturb(job, now) and not rules.may_disturb(job, then) for job in live.jobs
    )


def _patience_is_over(live: Snapshot, policy: Policy, before: Snapshot, waiting: list[Job]) -> bool:
    """True if a job may start on a GPU model now on which it rather did not start before."""
    then, now = StartValue(before, policy).worth, StartValue(live, policy).worth
    return any(
        not set(then.avoided_models(before.job_by_name[job.name])) <= set(now.avoided_models(job))
        for job in waiting
    )


def _dwell_is_over(live: Snapshot, policy: Policy, before: Snapshot) -> bool:
    """True if a job may be resized again, or a pool scaled again, that could not be before."""
    now, then = live.taken_at, before.taken_at
    jobs, pools = policy.disruption, policy.pools
    return any(
        jobs.is_in_resize_dwell(job, then) and not jobs.is_in_resize_dwell(job, now) for job in live.jobs
    ) or any(
        allowed(pool, now) and not allowed(pool, then)
        for pool in live.cluster.pools
        for allowed in (pools.may_add, pools.may_remove)
    )


def _enabled_a_start(live: Snapshot, last: Plan, waiting: list[Job]) -> bool:
    """
    True if carrying out the last plan allowed an action to a pending job.

    Such as: to start after a job that the plan started, to take the place of a preempted job of higher
    priority, or to reclaim from a job in a queue that borrows since then.
    """
    before, finished = last.snapshot, finished_by_name(live)
    awaited = (each for job in waiting for each in job.depends_on)
    return (
        any(
            is_satisfied(each, live, finished) and not is_satisfied(each, before, finished)
            for each in awaited
        )
        or (bool(waiting) and any(isinstance(action, Preempt | Shrink) for action in last.actions))
        or not set(reclaim_pairs(Reclaiming(live, last.policy)))
        <= set(reclaim_pairs(Reclaiming(before, last.policy)))
    )


def _as_scaled_in(cluster: Cluster, pools: tuple[NodePool, ...]) -> tuple[NodePool, ...]:
    """The pools with the last scaling times of a cluster's pools."""
    found = {pool.name: pool for pool in cluster.pools}
    return tuple(pool.with_scaling_times_of(found.get(pool.name, pool)) for pool in pools)


def _equal_or(noun: _Noun, other: _Noun | None) -> _Noun:
    return other if other is not None and (other is noun or other == noun) else noun


def _same_question(live: Job, before: Job) -> bool:
    """
    True if a job differs from before at most in its running state and its promise.

    Its preemption count has no effect while it is pending; nor, with one slot, does its saved progress.
    """
    if live is before:
        return True
    meaningless: dict[str, int | None] = {"running": None, "promise": None, "progress": None}
    meaningless |= {} if live.running else {"preemptions": 0}
    return live.model_copy(update=meaningless) == before.model_copy(update=meaningless)


def _same_places(one: Placement, other: Placement) -> bool:
    return one is other or same_holdings(one.replicas, other.replicas)


def has_same_rules(policy: Policy, other: Policy) -> bool:
    """True if two policies differ at most in budget and solvers."""
    return policy == other.model_copy(update={"budget": policy.budget, "solvers": policy.solvers})
