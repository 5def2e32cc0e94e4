"""
Incumbents: running jobs that may be preempted, shrunk, grown or migrated, if that could pay.

Changes that the rules allow but the planner does not consider are counted (`left_out`). Disruption budgets
rule out changes that exceed them alone, and limit those that would exceed them together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from gpuplan.models.placement import MigSlice
from gpuplan.models.plan.plan import LeftOut
from gpuplan.models.policy.settings import BudgetUnit
from gpuplan.models.problem.jobs import ClassRole, HeldResources, Incumbent
from gpuplan.models.problem.problem import DisruptionLimit
from gpuplan.models.value.disruption_cost import disruption_points
from gpuplan.planner.problem_builder.candidates import placements_of_running, satisfies_own_locality
from gpuplan.planner.problem_builder.earliest_start import running_predecessors, running_with_dependencies

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuplan.models.eligibility.disruption_budgets import BudgetState
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.epoch_cache import EpochCache, JobFacts
    from gpuplan.planner.problem_builder.candidates import Filters, JobCandidate, RunningCandidate
    from gpuplan.planner.problem_builder.claims import Claims
    from gpuplan.planner.problem_builder.job_classes import Classifier
    from gpuplan.planner.problem_builder.node_groups import NodeGroups
    from gpuplan.planner.problem_builder.resource_vectors import ResourceVectors
    from gpuplan.planner.problem_builder.start_values import StartValues


Order: TypeAlias = tuple[int, tuple[int, ...]]
"""Rank of a running job, and the reclaim claims on what it holds."""


class IncumbentOptions(NamedTuple):
    """Changes of a running job that could pay."""

    runner: RunningCandidate
    stop: bool
    shrink: bool
    move: bool

    @property
    def may_free_resources(self) -> bool:
        """True if jobs may take its places, quota or power; then it needs a rank."""
        return self.stop or self.shrink


def incumbent_options(
    sites: NodeGroups,
    runners: Iterable[RunningCandidate],
    wanting: Iterable[JobCandidate],
    trees: Mapping[str, str],
    claims: Claims,
    *,
    capped: bool,
    further_quotas: bool = False,
) -> list[IncumbentOptions]:
    """
    Changes of each running job that could pay.

    Preempting or shrinking a job can pay in three cases:

    - a candidate has enough priority and could use one of its nodes, its quota in the same queue tree
      (`trees` has the root of each limited tree; a job without GPUs needs quota only with `further_quotas`),
      or its power if racks are `capped`;
    - a candidate has a claim on what the job holds;
    - the job must leave its nodes.

    Migration is always kept if allowed: the job may have to make room for another migration.
    """
    wanting = list(wanting)
    pressure = _highest_priority_by_group(sites, wanting)
    # Rack power may be the only shortage, and every node of the rack can free it.
    for_power = max((one.job.priority for one in wanting if one.job.request.needs_gpu), default=-1)
    in_tree: dict[str, int] = {}
    for candidate in wanting:
        if candidate.job.queue in trees and (further_quotas or candidate.job.request.needs_gpu):
            root = trees[candidate.job.queue]
            in_tree[root] = max(in_tree.get(root, 0), candidate.job.priority)
    on_node = {
        sites.nodes[index].name: pressure.get(number, -1)
        for number, group in enumerate(sites.groups)
        if not sites.opens[number]
        for index in group.nodes
    }
    found = []
    for runner in runners:
        job = runner.job
        there = [on_node[name] for name in runner.placement.nodes if name in on_node]
        for_quota = in_tree.get(trees.get(job.queue, ""), -1)
        rival = max(for_quota, for_power if capped else -1, *there)
        pressed = rival >= claims.least_follower(runner) or bool(claims.on(runner))
        leaves = pressed or runner.drains
        found.append(
            IncumbentOptions(
                runner,
                stop=runner.stop and leaves,
                shrink=runner.shrink and leaves,
                move=runner.move,
            )
        )
    return found


def _highest_priority_by_group(sites: NodeGroups, wanting: Iterable[JobCandidate]) -> dict[int, int]:
    """Highest priority of the candidates that could use a group, by group."""
    pressure: dict[int, int] = {}
    first: dict[tuple[Filters, str | None], JobCandidate] = {}
    for candidate in wanting:
        key = candidate.filters, candidate.gpu_model
        if key not in first or first[key].job.priority < candidate.job.priority:
            first[key] = candidate
    for candidate in first.values():
        for groups in sites.allowed(candidate).values():
            for group in sites.open_in(groups, 0):
                pressure[group] = max(pressure.get(group, 0), candidate.job.priority)
    return pressure


@dataclass(frozen=True, slots=True)
class SingleJobClasses:
    """Running jobs that may migrate, grow or resume, by name; each is a class of its own."""

    movers: Mapping[str, JobCandidate]
    growers: Mapping[str, JobCandidate]
    resumers: Mapping[str, JobCandidate]

    @classmethod
    def of(cls, candidates: Iterable[JobCandidate]) -> SingleJobClasses:
        """Select them from all candidates."""
        by_role: dict[ClassRole, dict[str, JobCandidate]] = {role: {} for role in ClassRole}
        for one in candidates:
            by_role[one.role][one.job.name] = one
        return cls(by_role[ClassRole.MOVE], by_role[ClassRole.GROW], by_role[ClassRole.RESUME])


class Incumbents:
    """The incumbents of a problem, and their classes, which follow those of pending jobs."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        sites: NodeGroups,
        shapes: ResourceVectors,
        timing: StartValues,
        classes: list[JobClass],
        cache: EpochCache,
    ) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._shapes = shapes
        self._holds = held_resources(snapshot, sites, cache)
        self._timing = timing
        self._queues = {queue.name: index for index, queue in enumerate(snapshot.queues)}
        self.classes = classes
        self.found: list[Incumbent] = []

    def add(
        self, outlook: IncumbentOptions, lone: SingleJobClasses, classifier: Classifier, order: Order
    ) -> None:
        """Add a running job as an incumbent, unless no change of it could pay."""
        runner, number = outlook.runner, len(self.found)
        mover = lone.movers.get(runner.job.name) if outlook.move else None
        grower = lone.growers.get(runner.job.name)
        resumer = lone.resumers.get(runner.job.name) if outlook.stop else None
        move = self._append(classifier.class_of_running(mover, number)) if mover else None
        grow = self._append(classifier.class_of_running(grower, number)) if grower else None
        resume = self._append(classifier.class_of_running(resumer, number)) if resumer else None
        if outlook.stop or outlook.shrink or move is not None or grow is not None:
            found = self._incumbent(outlook, order)
            self.found.append(found._replace(move=move, grow=grow, resume=resume))

    def _append(self, job_class: JobClass | None) -> int | None:
        if job_class is None:
            return None
        self.classes.append(job_class)
        return len(self.classes) - 1

    def _incumbent(self, outlook: IncumbentOptions, order: Order) -> Incumbent:
        runner, policy, now = outlook.runner, self._policy, self._snapshot.taken_at
        job, count = runner.job, len(runner.running.replicas)
        earnings, ahead = self._timing.start_value, self._timing.ahead
        # With a single slot the remaining time has no effect.
        left = self._timing.remaining(job) if ahead else 0
        leaving = -earnings.completion(job, runner.gpu_model, count, seconds=left)
        # A migration has no lateness price; a preemption has.
        stopping = leaving - (earnings.saved_lateness(job, start=0, seconds=left) if ahead else 0)
        lost = disruption_points(policy, job, now)
        stopping -= lost + earnings.delay_points(job)
        leaving -= lost
        return Incumbent(
            job=job.name,
            shape=self._shapes.freed(runner),
            holds=self._holds.of(job),
            queue=self._queues[job.queue],
            gpu_model=runner.gpu_model,
            rank=order[0],
            stop_points=stopping if outlook.stop else None,
            leave_points=leaving - policy.prices.migration,
            shrink_points=earnings.further(
                job, runner.gpu_model, range(count, job.gang.minimum - 1, -1), seconds=left
            )
            if outlook.shrink
            else (),
            resize_points=-lost - policy.prices.resize,
            min_replicas=job.gang.minimum if outlook.shrink else count,
            leave_reward=policy.owed(policy.prices.drain) if runner.drains else 0,
            until=self._timing.until(job) if ahead else 1,
            claims=order[1],
        )


def held_resources(
    snapshot: Snapshot, sites: NodeGroups, cache: EpochCache
) -> JobFacts[tuple[HeldResources, ...]]:
    """What each replica of each running job holds; node indices are those of `sites`."""

    def find(job: Job) -> tuple[HeldResources, ...]:
        return tuple([_hold(replica, sites) for replica in job.running.replicas]) if job.running else ()

    return cache.job_facts(HeldResources, basis=(snapshot.cluster, sites.index), find=find)


def _hold(replica: Replica, sites: NodeGroups) -> HeldResources:
    index = sites.index.get(replica.node)
    if index is None:
        return HeldResources(None)
    gpus = sites.nodes[index].gpus
    if gpus and not gpus.details:
        return HeldResources(node=index, gpus=replica.shared_gpus)
    # No other job can use an unhealthy GPU.
    sound = [held for held in replica.gpus if gpus and gpus.by_index[held.index].healthy]
    return HeldResources(
        node=index,
        gpus=tuple(sorted(held.index for held in sound if not isinstance(held, MigSlice))),
        slices=tuple(
            sorted(
                ((held.index, held.instance) for held in sound if isinstance(held, MigSlice)),
                key=lambda held: (held[0], held[1].start),
            )
        ),
    )


def left_out(snapshot: Snapshot, policy: Policy, cache: EpochCache) -> tuple[LeftOut, ...]:
    """Kinds of changes left out with a count above 0; a proof of optimality does not cover them."""
    found = _jobs_left_out(snapshot, policy, cache), _nodes_left_out(snapshot, policy)
    return tuple(LeftOut(what=what, count=count) for each in found for what, count in each if count)


def _jobs_left_out(snapshot: Snapshot, policy: Policy, cache: EpochCache) -> Iterator[tuple[str, int]]:
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


def _nodes_left_out(snapshot: Snapshot, policy: Policy) -> Iterator[tuple[str, int]]:
    rules = policy.pools
    if rules.scale_up and rules.scale_down and snapshot.cluster.pools:
        there = Counter(node.pool for node in snapshot.cluster.nodes)
        full = (0 < pool.maximum <= there[pool.name] for pool in snapshot.cluster.pools)
        yield "exchanging a node of a full pool for a new one", sum(full)


def disruptable(states: Sequence[BudgetState], runners: Iterable[RunningCandidate]) -> list[RunningCandidate]:
    """The running candidates without changes that exceed a budget by themselves."""
    runners = list(runners)
    left: dict[str, list[BudgetState]] = {}
    for state in states:
        for name in state.members:
            left.setdefault(name, []).append(state)
    return list(_within(left, runners)) if left else runners


def _within(
    left: dict[str, list[BudgetState]], runners: Iterable[RunningCandidate]
) -> Iterator[RunningCandidate]:
    for runner in runners:
        states = left.get(runner.job.name, ())
        leaves = all(state.size(runner.job) <= state.left for state in states)
        # To shrink is to give up one replica at least, so that room for one is enough.
        shrinks = all(state.left > 0 for state in states)
        found = runner._replace(
            stop=runner.stop and leaves, move=runner.move and leaves, shrink=runner.shrink and shrinks
        )
        if found.stop or found.move or found.shrink or found.grow:
            yield found


def disruption_limits(
    states: Iterable[BudgetState], incumbents: Sequence[Incumbent]
) -> Iterator[DisruptionLimit]:
    """The limit of each budget that the changes offered could exceed."""
    places = {incumbent.job: index for index, incumbent in enumerate(incumbents)}
    for state in states:
        members = sorted(places[name] for name in state.members if name in places)
        limit = DisruptionLimit(
            state.budget.name, state.left, tuple(members), state.budget.counts is BudgetUnit.JOBS
        )
        # A budget that all changes together keep needs no row in the model.
        if sum(limit.taken(_most_given_up(incumbents[index])) for index in members) > limit.left:
            yield limit


def _most_given_up(incumbent: Incumbent) -> int:
    """The most replicas that any change offered takes from a running job."""
    leaves = incumbent.stop_points is not None or incumbent.move is not None
    return len(incumbent.holds) - (0 if leaves else incumbent.min_replicas)
