"""Changes that the rules allow but the planner does not consider, with their counts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.plan.plan import LeftOut
from gpuplan.planner.problem_builder.candidates import placements_of_running, satisfies_own_locality
from gpuplan.planner.problem_builder.earliest_start import running_predecessors, running_with_dependencies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.epoch_cache import EpochCache


def left_out(snapshot: Snapshot, policy: Policy, cache: EpochCache) -> tuple[LeftOut, ...]:
    """Kinds of changes left out with a count above 0; a proof of optimality does not cover them."""
    found = _jobs(snapshot, policy, cache), _nodes(snapshot, policy)
    return tuple(LeftOut(what=what, count=count) for each in found for what, count in each if count)


def _jobs(snapshot: Snapshot, policy: Policy, cache: EpochCache) -> Iterator[tuple[str, int]]:
    rules, nodes = policy.disruption, snapshot.cluster.node_by_name
    if not (rules.preempt or rules.resize or rules.migrate):
        return
    waits = bool(snapshot.waiting)
    of_jobs = placements_of_running(snapshot, cache)
    needed = running_predecessors(snapshot, ahead=policy.horizon.slots > 1)
    disturbable = [
        (job, job.running)
        for job in snapshot.jobs
        if job.running is not None and rules.may_disturb(job, snapshot.taken_at)
    ]
    known = [(job, running) for job, running in disturbable if of_jobs.of(job) is not None]
    if waits:
        yield (
            "disturbing jobs with unequal replicas or on several GPU models",
            len(disturbable) - len(known),
        )
        yield "disturbing jobs that waiting jobs depend on", sum(job.name in needed for job, _ in known)
        if rules.preempt and policy.horizon.slots > 1:
            bound = running_with_dependencies(snapshot)
            what = "resuming jobs that would wait for others, or start with them"
            yield what, sum(job.name in bound for job, _ in known)
    if waits and rules.resize:
        yield (
            "shrinking jobs with replicas that could not be placed so today",
            sum(
                len(running.replicas) > job.gang.minimum and not satisfies_own_locality(job, running, nodes)
                for job, running in known
            ),
        )
    if policy.prices.fragmentation:
        yield "stopping jobs only to reduce fragmentation", len(known)


def _nodes(snapshot: Snapshot, policy: Policy) -> Iterator[tuple[str, int]]:
    rules = policy.pools
    if rules.scale_up and rules.scale_down and snapshot.cluster.pools:
        there = Counter(node.pool for node in snapshot.cluster.nodes)
        full = (0 < pool.maximum <= there[pool.name] for pool in snapshot.cluster.pools)
        yield "exchanging a node of a full pool for a new one", sum(full)
