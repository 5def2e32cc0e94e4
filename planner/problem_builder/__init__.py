"""pose(snapshot, policy) → Problem: eligible nodes of each job, jobs that may be preempted, free capacity."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.eligibility.disruption_budgets import budget_states
from gpuplan.models.problem.jobs import ClassRole, Incumbent, JobClass
from gpuplan.models.problem.problem import AffinityNeighbour, Charges, Problem
from gpuplan.models.queue import NOT_OF_GPUS, quota_resources
from gpuplan.planner.analysis.allocations import allocations_of
from gpuplan.planner.analysis.quota_headroom import queue_budgets
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.problem_builder.affinity import AffinityTags
from gpuplan.planner.problem_builder.candidates import candidates, resume_candidates, running_candidates
from gpuplan.planner.problem_builder.claims import Claims
from gpuplan.planner.problem_builder.earliest_start import EarliestStarts, running_predecessors
from gpuplan.planner.problem_builder.free_nodes import (
    PoolScaling,
    Releases,
    free_nodes,
    held_milli,
    pool_options,
    pool_scalings,
    power_caps,
)
from gpuplan.planner.problem_builder.incumbents import (
    Incumbents,
    SingleJobClasses,
    disruptable,
    disruption_limits,
    incumbent_options,
)
from gpuplan.planner.problem_builder.job_classes import Classifier
from gpuplan.planner.problem_builder.node_groups import NodeGroups
from gpuplan.planner.problem_builder.quotas import (
    Reclaiming,
    limited_trees,
    queue_guarantees,
)
from gpuplan.planner.problem_builder.resource_vectors import ResourceVectors
from gpuplan.planner.problem_builder.start_values import StartValues

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import Level
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

_THIS_INSTANT: Final = (0, 3600)
"""Slot edges of a problem without later slots; the length of the single slot has no effect."""


def build_problem(snapshot: Snapshot, policy: Policy, cache: EpochCache | None = None) -> Problem:
    """Build the problem of one epoch: a pure function of snapshot and policy, whatever their order."""
    snapshot, cache = snapshot.canonical(), cache or EpochCache()
    policy = policy.within(snapshot.cluster)
    usage = allocations_of(snapshot).usage
    timing = StartValues(snapshot, policy)
    # 1. Jobs that may get new replicas, now or later, and running jobs that the plan may change.
    waiting = [job for job in snapshot.waiting if not job.withheld]
    needed = running_predecessors(snapshot, ahead=policy.horizon.slots > 1)
    running = running_candidates(snapshot, policy, timing.windows, needed, cache)
    budgets = budget_states(snapshot, policy, lambda job: timing.windows.forced_leave_window(job) is not None)
    running = disruptable(budgets, running)
    readiness = EarliestStarts(snapshot, timing, needed & {runner.job.name for runner in running})
    in_time = [job for job in waiting if readiness.earliest(job.name) < timing.slots.count]
    wanting = candidates(in_time, running)
    now = [one for one in wanting if readiness.earliest(one.job.name) == 0]
    reclaiming = Reclaiming(snapshot, policy)
    claims = Claims(reclaiming, now, running)
    wanting += resume_candidates(running, now, claims.on, claims.least_follower) if timing.ahead else []
    # 2. Nodes that may take replicas; nodes that pools may still add come last.
    scaled = pool_scalings(snapshot, policy, now)
    opened, coming = [scaling.opened for scaling in scaled], timing.coming(snapshot.cluster.nodes)
    sites = NodeGroups(snapshot.cluster, policy, opened, wanting, coming, timing.windows, snapshot.jobs)
    further_quotas = not set(quota_resources(snapshot.queues)).isdisjoint(NOT_OF_GPUS)
    asking = [candidate.job for candidate in wanting]
    shapes = ResourceVectors(snapshot.cluster, sites.nodes, asking, further_quotas=further_quotas)
    meetings = AffinityTags(policy, [*waiting, *(job for job in snapshot.jobs if job.running)])
    # 3. Running jobs that could pay to change; the ranks of all classes depend on them.
    spare = frozenset(name for scaling in scaled for name in scaling.spare)
    disturbed = incumbent_options(
        sites,
        running,
        now,
        limited_trees(snapshot),
        claims,
        capped=bool(snapshot.cluster.rack_power),
        further_quotas=further_quotas,
    )
    thresholds = sorted({claims.least_follower(each.runner) for each in disturbed if each.may_free_resources})
    classifier = Classifier(
        snapshot,
        policy,
        sites=sites,
        shapes=shapes,
        meetings=meetings,
        timing=timing,
        readiness=readiness,
        thresholds=thresholds,
        claims=claims,
    )
    # 4. Classes of pending jobs, then those of incumbents.
    classes = classifier.starts(one for one in wanting if one.role is ClassRole.START)
    incumbents = Incumbents(
        snapshot, policy, sites=sites, shapes=shapes, timing=timing, classes=classes, cache=cache
    )
    lone = SingleJobClasses.of(wanting)
    for outlook in disturbed:
        rank = (
            thresholds.index(claims.least_follower(outlook.runner)) + 1 if outlook.may_free_resources else 0
        )
        incumbents.add(outlook, lone, classifier, (rank, claims.on(outlook.runner)))
    leaving = {
        one.job: index
        for index, one in enumerate(incumbents.found)
        if one.stop_points is not None or one.move is not None
    }
    standing = meetings.standing(snapshot, sites, classes, leaving)
    returns = Releases(snapshot, timing, incumbents.found)
    held = held_milli(snapshot) if shapes.capped or snapshot.cluster.rack_power else {}
    closable = _closable(snapshot, spare, incumbents.found)
    position = {queue.name: index for index, queue in enumerate(snapshot.queues)}
    return Problem(
        resources=shapes.resources,
        nodes=free_nodes(
            snapshot,
            sites,
            shapes,
            held=held,
            closing=_closing(scaled, closable),
            returns=returns.by_node(sites, shapes),
        ),
        groups=tuple(sites.groups),
        classes=tuple(classes),
        queues=tuple(queue.name for queue in snapshot.queues),
        budgets=tuple(
            replace(each, releases=returns.by_queue(each.resource, position))
            for each in queue_budgets(snapshot.queues, usage)
        ),
        incumbents=tuple(incumbents.found),
        guarantees=queue_guarantees(reclaiming, usage, waiting),
        pools=pool_options(scaled, sites.index, closable),
        domains=sites.domains(_levels(classes, standing)),
        power_caps=power_caps(snapshot, sites.nodes, held, incumbents.found, returns.by_rack()),
        standing=standing,
        charges=_charges(policy, meetings.interference),
        edges=timing.slots.edges if timing.ahead else _THIS_INSTANT,
        depth=policy.horizon.backfill.depth,
        disruption_limits=tuple(disruption_limits(budgets, incumbents.found)),
    )


def _closable(snapshot: Snapshot, spare: frozenset[str], incumbents: Iterable[Incumbent]) -> frozenset[str]:
    """Spare nodes on which every running job is an incumbent that may leave."""
    if not spare:
        return spare
    leaving = {
        one.job for one in incumbents if one.stop_points is not None or one.move is not None or one.shrinkable
    }
    return spare - {
        replica.node
        for placement in snapshot.running_placements
        if placement.job not in leaving
        for replica in placement.replicas
    }


def _closing(scaled: Iterable[PoolScaling], closable: frozenset[str]) -> dict[str, int]:
    """Points of removing a node, by name."""
    return {name: scaling.saving for scaling in scaled for name in scaling.spare & closable}


def _levels(classes: Iterable[JobClass], standing: Iterable[AffinityNeighbour]) -> set[Level]:
    """Levels with domains that occur in constraints or prices."""
    avoided = {level for one in standing for _, level in one.avoids}
    avoided |= {level for one in classes for _, level in one.avoids}
    wished = {
        level
        for one in classes
        for level in (one.together.required, one.together.preferred, one.together.spread)
        if level is not None
    }
    return avoided | wished


def _charges(policy: Policy, interference: tuple[tuple[str, str, int], ...]) -> Charges:
    prices = policy.prices
    return Charges(
        domain=prices.domain,
        fragmentation=prices.fragmentation,
        reference_gpus=prices.reference_gpus,
        repartition=prices.repartition,
        switch_mode=prices.switch_mode if policy.mig.switch_mode else None,
        may_repartition=policy.mig.repartition,
        interference=interference,
    )
