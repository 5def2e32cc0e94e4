"""Candidates: jobs that may get new replicas, and running jobs that the plan may change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuplan.models.eligibility.node_eligibility import eligibility_key
from gpuplan.models.eligibility.preemption_order import least_follower
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.problem.jobs import ClassRole

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement, Running
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.models.timing.reservation_windows import ReservationWindows
    from gpuplan.planner.epoch_cache import EpochCache, JobFacts

Filters: TypeAlias = "tuple[Hashable, ...]"


class RunningCandidate(NamedTuple):
    """A running job with the changes that the policy allows."""

    job: Job
    running: Running
    placement: Placement
    gpu_model: str | None
    stop: bool
    shrink: bool
    grow: bool
    move: bool
    drains: bool
    """It has a replica on a node to be drained, or on one that a reservation window soon closes to it."""
    least_follower: int
    """Lowest priority of jobs that may take what it gives up, unless they reclaim it."""


class JobCandidate(NamedTuple):
    """A job that may get new replicas."""

    job: Job
    role: ClassRole
    minimum: int
    maximum: int
    gpu_model: str | None
    """The required model, with role GROW only."""
    filters: Filters


def candidates(waiting: Iterable[Job], runners: Iterable[RunningCandidate]) -> list[JobCandidate]:
    """Jobs that may start, migrate or grow."""
    found = [
        JobCandidate(job, ClassRole.START, job.gang.minimum, job.gang.maximum, None, eligibility_key(job))
        for job in waiting
    ]
    for runner in runners:
        job, count = runner.job, len(runner.running.replicas)
        if runner.move:
            found.append(JobCandidate(job, ClassRole.MOVE, count, count, None, eligibility_key(job)))
        if runner.grow:
            most = job.gang.maximum - count
            found.append(JobCandidate(job, ClassRole.GROW, 1, most, runner.gpu_model, eligibility_key(job)))
    return found


def resume_candidates(
    runners: Iterable[RunningCandidate],
    rivals: list[JobCandidate],
    claims_on: Callable[[RunningCandidate], tuple[int, ...]],
    least_follower_of: Callable[[RunningCandidate], int],
) -> list[JobCandidate]:
    """Running jobs that could pay to preempt and to restart in a later slot, with the fewest replicas."""
    highest = max((one.job.priority for one in rivals), default=-1)
    return [
        JobCandidate(job, ClassRole.RESUME, job.gang.minimum, job.gang.minimum, None, eligibility_key(job))
        for runner in runners
        if runner.stop and not (job := runner.job).withheld
        if runner.drains or claims_on(runner) or highest >= least_follower_of(runner)
    ]


def running_candidates(
    snapshot: Snapshot, policy: Policy, windows: ReservationWindows, needed: frozenset[str], cache: EpochCache
) -> list[RunningCandidate]:
    """
    Running jobs that the policy allows to change, by name.

    Jobs in `needed`, on which pending jobs depend, stay unchanged unless they must leave their nodes.
    """
    of_jobs = placements_of_running(snapshot, cache)
    found = (_runner(snapshot, policy, job, of_jobs.of(job), windows) for job in snapshot.jobs if job.running)
    return [
        runner
        for runner in found
        if runner is not None
        and (runner.job.name not in needed or (runner.drains and (runner.stop or runner.move)))
    ]


def _runner(
    snapshot: Snapshot,
    policy: Policy,
    job: Job,
    tenure: RunningPlacement | None,
    windows: ReservationWindows,
) -> RunningCandidate | None:
    running, placement, rules = job.running, job.placement, policy.disruption
    if running is None or placement is None or tenure is None:
        return None
    count, nodes = len(running.replicas), snapshot.cluster.node_by_name
    drains = tenure.drains or windows.forced_leave_window(job) is not None
    ripe = rules.may_disturb(job, snapshot.taken_at)
    leaves = job.preemptible and drains
    still = job.locality.required is None and job.spread is None
    offers = snapshot.cluster.offers
    stop = (leaves or (rules.preempt and ripe)) and offers(ActionKind.PREEMPT)
    move = (leaves or (rules.migrate and ripe)) and offers(ActionKind.MIGRATE)
    shrink = (
        rules.resize
        and offers(ActionKind.SHRINK)
        and ripe
        and count > job.gang.minimum
        and satisfies_own_locality(job, running, nodes)
    )
    # Growth of a job with a required domain or a spread limit is not modelled.
    grow = (
        rules.resize
        and offers(ActionKind.GROW)
        and still
        and count < job.gang.maximum
        and not rules.is_in_resize_dwell(job, snapshot.taken_at)
    )
    if not (stop or move or shrink or grow):
        return None
    return RunningCandidate(
        job=job,
        running=running,
        placement=placement,
        gpu_model=tenure.gpu_model,
        stop=stop,
        shrink=shrink,
        grow=grow,
        move=move,
        drains=drains,
        least_follower=least_follower(policy, job, snapshot.taken_at),
    )


def satisfies_own_locality(job: Job, running: Running, nodes: dict[str, Node]) -> bool:
    """True if the running replicas satisfy the job's locality and spread; then fewer replicas do so too."""
    names = {replica.node for replica in running.replicas}
    if (required := job.locality.required) is not None and len(names) > 1:
        domains = {nodes[name].domain(required) for name in names}
        if len(domains) > 1 or None in domains:
            return False
    if job.spread is None:
        return True
    by_domain = Counter(
        nodes[replica.node].domain(job.spread.level) or (replica.node,) for replica in running.replicas
    )
    return max(by_domain.values()) <= job.spread.most


# Places of running jobs, in the form that the problem uses; they do not depend on the clock.


class RunningPlacement(NamedTuple):
    """Places of a running job with replicas that all hold the same amounts."""

    gpu_model: str | None
    drains: bool
    """One of its nodes is to be drained."""


def placements_of_running(snapshot: Snapshot, cache: EpochCache) -> JobFacts[RunningPlacement | None]:
    """
    The tenure of each running job.

    None if one of its nodes is missing, its GPUs are of several models, or its replicas differ in amounts.
    """
    cluster = snapshot.cluster
    draining = {node.name for node in cluster.nodes if node.drain}

    def find(job: Job) -> RunningPlacement | None:
        placement = job.placement
        if placement is None or not placement.nodes <= cluster.node_by_name.keys():
            return None
        models = {cluster.gpu_model_by_node.get(name) for name in placement.gpu_nodes}
        if len(models) != (1 if job.request.needs_gpu else 0) or not placement.is_even:
            return None
        return RunningPlacement(next(iter(models), None), not draining.isdisjoint(placement.nodes))

    return cache.job_facts(RunningPlacement, basis=cluster, find=find)
