"""
The rule about preemption: only jobs that may follow a victim use what it frees.

A job may follow a victim if its priority is higher by the policy's gap, or if it reclaims what the queue of
the victim borrows (`Entitlements`). The rule is checked by a hypothetical plan for each set of victims: these
victims stay, and jobs that may follow any of them do not start, grow or migrate. All other new placements
must still fit.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf, log2
from typing import TYPE_CHECKING, Final, NamedTuple

from gpuplan.models.mig import MigGeometry, mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica, unmatched
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.queue import ALL_MODELS, Queue
from gpuplan.models.timing.progress import unserved_seconds
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.job_changes import Change, JudgedPlacement
from gpuplan.models.verifier.messages import format_amount, format_watts
from gpuplan.models.verifier.quota_usage import children_first, held_gpu_milli, kept_and_limit
from gpuplan.models.verifier.rules.capacity import charged_amounts, offered_amounts, rack_caps, watts_drawn
from gpuplan.models.verifier.rules.quota import (
    amount_of_replicas,
    held_before_and_after,
    limited_resources,
    quota_subject,
    quota_text,
    usage_up_the_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.verifier.context import Context


_MAX_SETS: Final = 1024
"""Limit on the sets of jobs that are checked; reached only if claims of queues differ much."""


class PreemptedJob(NamedTuple):
    """A preempted or shrunk job, with the replicas on one GPU model that it gives up."""

    job: Job
    replicas: tuple[Replica, ...]
    model: str
    """GPU model; empty if it holds no GPUs."""


def preemption(case: Context) -> Iterator[Violation]:
    """
    Capacity freed by preemption is used only by jobs that may follow the victims.

    This covers GPUs and all other resources of a node, the quota of every queue above the victim, and the
    power of racks. Capacity that was free before is open to all jobs.
    """
    if not (victims := _victims(case)):
        return
    barred = _excluded_jobs(case, victims)
    # The strongest condition on jobs that may follow none of some victims is with all victims of which
    # that is true; so one hypothetical plan for each set of such jobs is enough.
    kinds = {each for each in barred if each}
    limits = _limits(case, victims)
    coming = [Placement(job=job.name, replicas=tuple(each.new_replicas)) for job, each in case.arrivals]
    for names in _intersections(kinds):
        # Thousands of victims have few kinds of bars between them, each as large as the plan.
        barring = {bars for bars in kinds if names <= bars}
        kept = [(victim, bars) for victim, bars in zip(victims, barred, strict=True) if bars in barring]
        without = _Without(case, names, kept, coming)
        yield from _on_nodes(without)
        yield from _in_queues(without, limits)
        yield from _in_racks(without)


def _victims(case: Context) -> list[PreemptedJob]:
    """Jobs that give up replicas, one entry per GPU model of these."""
    given_up = [(job, job.running.replicas) for job in case.stopped if job.running]
    for job, occupant in case.with_change(Change.SHRUNK):
        before = job.running.replicas if job.running else ()
        numbers = unmatched(before, occupant.placement.replicas)
        given_up.append((job, tuple(before[number] for number in numbers)))
    found = []
    for job, replicas in given_up:
        # What a queue is entitled to is counted by GPU model.
        by_model: dict[str, list[Replica]] = defaultdict(list)
        for replica in replicas:
            node = case.nodes.get(replica.node) if job.request.needs_gpu else None
            by_model[(node.gpu_model if node else None) or ALL_MODELS].append(replica)
        found += [PreemptedJob(job, tuple(there), model) for model, there in by_model.items()]
    return found


def _excluded_jobs(case: Context, victims: list[PreemptedJob]) -> list[frozenset[str]]:
    """
    For each victim, the jobs with new replicas that may not follow it.

    In a rollback the jobs of the plan that is undone may follow each other: it takes back that plan's choice.
    """
    alike: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for job, occupant in case.arrivals:
        alike[job.queue, job.priority, _fewest_new(job, occupant)].append(job.name)
    found: dict[tuple[str, int, bool, str], frozenset[str]] = {}
    undone, barred = case.undo.jobs, []
    for job, _, model in victims:
        queue, least, turn = job.queue, _least_priority(case, job), _in_turn(case, job)
        if (key := (queue, least, turn, model)) not in found:
            found[key] = frozenset(
                name
                for (own, level, milli), names in alike.items()
                if (level < least or (turn and case.entitlements.owns(queue, own)))
                and not case.entitlements.quotas(own, milli, queue, model)
                for name in names
            )
        bars = found[key]
        barred.append(bars - undone if job.name in undone else bars)
    return barred


def _least_priority(case: Context, job: Job) -> int:
    """
    Lowest priority of a job that may follow a running one without reclaiming what its queue borrows.

    Equal priority is not enough, whatever the policy, while the job is in its turn, nor if it starved before
    it started.
    """
    if (gap := case.policy.disruption.priority_gap) or job.running is None:
        return job.priority + gap
    starving = case.policy.horizon.backfill.starving
    if starving is not None and unserved_seconds(job, case.snapshot.taken_at) >= starving:
        return job.priority + 1
    return job.priority + (1 if _in_turn(case, job, gpus=False) else 0)


def _in_turn(case: Context, job: Job, *, gpus: bool = True) -> bool:
    """
    True if a running job was preempted and has run for less than its turn since; with GPUs only if asked.

    A turn doubles with each time that a job was preempted. For so long a job of a queue that may reclaim is
    not stopped for the priority of a job outside: what it holds would be reclaimed at once.
    """
    if job.running is None or (gpus and not job.request.total_gpu_milli):
        return False
    rules = case.policy.disruption
    saving = rules.checkpoint if job.checkpoint_duration is None else job.checkpoint_duration
    loading = rules.restart if job.restart_duration is None else job.restart_duration
    had = max(0.0, (case.snapshot.taken_at - job.running.started_at).total_seconds())
    doublings = log2(1 + had // max(saving + loading, case.policy.objective.shortest))
    return doublings < job.preemptions


def _fewest_new(job: Job, occupant: JudgedPlacement) -> int:
    """Minimum thousandths of GPUs that a job adds when it starts or grows."""
    replicas = {Change.STARTED: job.gang.minimum, Change.GROWN: 1}.get(occupant.change, 0)
    return replicas * job.request.total_gpu_milli


def _intersections(sets: set[frozenset[str]]) -> list[frozenset[str]]:
    """All nonempty intersections of any of some sets."""
    found: dict[frozenset[str], None] = {}
    for one in sorted(sets, key=lambda names: (-len(names), sorted(names))):
        found |= dict.fromkeys(common for other in list(found) if (common := one & other))
        found[one] = None
        # What is left out here is not checked: the rule gets weaker, not stricter.
        if len(found) > _MAX_SETS:
            break
    return list(found)


@dataclass(frozen=True)
class _Without:
    """The hypothetical plan in which some victims stay, and jobs that may follow any of them do not come."""

    case: Context
    names: frozenset[str]
    """Jobs with new replicas that may follow none of the victims."""
    kept: list[tuple[PreemptedJob, frozenset[str]]]
    """The victims, each with all jobs that may not follow it."""
    coming: list[Placement]
    """New replicas of all jobs."""

    @property
    def victims(self) -> list[PreemptedJob]:
        """Jobs that stay in the hypothetical plan."""
        return [victim for victim, _ in self.kept]

    def is_closed(self, there: list[PreemptedJob]) -> bool:
        """
        True if exactly these jobs may follow none of the victims in a place.

        If more jobs may not, another set of victims gives a stronger condition.
        """
        bars, closed = self._bars_and_closed
        sets = frozenset([bars[id(victim)] for victim in there])
        if sets not in closed:
            closed[sets] = bool(sets) and frozenset.intersection(*sets) == self.names
        return closed[sets]

    @cached_property
    def _bars_and_closed(self) -> tuple[dict[int, frozenset[str]], dict[frozenset[frozenset[str]], bool]]:
        """The jobs that may not follow each victim, and the answers of `is_closed`, by the sets of these."""
        return {id(victim): bars for victim, bars in self.kept}, {}

    def beside(self, there: list[PreemptedJob]) -> str:
        """Words of a violation for the victims in a place."""
        priority = min(victim.job.priority for victim in there)
        name = min(victim.job.name for victim in there if victim.job.priority == priority)
        least = _least_priority(self.case, self.case.jobs[name])
        others = (job for job, _ in self.case.arrivals if job.name not in self.names)
        reclaim = any(job.priority < least for job in others)
        also = ", or that reclaim lent quota," if reclaim else ""
        return f"beside job {name} of priority {priority}, jobs of {least} or more{also} not counted"

    def staying(self) -> Iterator[Placement]:
        """Holdings before and after the plan; jobs that may follow a victim keep their old places."""
        yield from self.case.staying
        for job, _ in self.case.with_change(Change.MOVED):
            if job.name not in self.names and job.placement:
                yield job.placement
        yield from (Placement(job=each.job.name, replicas=each.replicas) for each in self.victims)

    def new(self) -> Iterator[Placement]:
        """New replicas of jobs that may follow none of the victims."""
        return (each for each in self.coming if each.job in self.names)


def _on_nodes(without: _Without) -> Iterator[Violation]:
    """
    Violations on nodes that a victim leaves.

    Nodes that accept no jobs are checked by the rule `selection`.
    """
    case = without.case
    left: dict[str, list[PreemptedJob]] = defaultdict(list)
    for victim in without.victims:
        for name in {replica.node for replica in victim.replicas}:
            left[name].append(victim)
    names = {
        name
        for name, there in left.items()
        if (node := case.nodes.get(name)) and node.schedulable and without.is_closed(there)
    }
    coming: dict[str, list[tuple[Job, Replica]]] = defaultdict(list)
    for placement in without.new():
        for replica in placement.replicas:
            if replica.node in names:
                coming[replica.node].append((case.jobs[placement.job], replica))
    if not coming:
        return
    there_by_node: dict[str, list[tuple[Job | None, Replica]]] = defaultdict(list)
    for placement in without.staying():
        if not placement.nodes.isdisjoint(coming):
            job = case.jobs.get(placement.job)
            for replica in placement.replicas:
                there_by_node[replica.node].append((job, replica))
    for name, new in coming.items():
        staying = there_by_node[name]
        yield from _on_gpus(without, name, left[name], new, staying)
        yield from _beside_gpus(case, case.nodes[name], new, staying, partial(without.beside, left[name]))


def _on_gpus(
    without: _Without,
    name: str,
    victims: list[PreemptedJob],
    new: list[tuple[Job, Replica]],
    there: list[tuple[Job | None, Replica]],
) -> Iterator[Violation]:
    """A GPU, or a part of one, that a victim held is not taken by a job that may not follow it."""
    given: dict[int, list[tuple[Job, GpuShare | MigSlice]]] = defaultdict(list)
    for job, replicas, _ in victims:
        for replica in replicas:
            for held in replica.gpus if replica.node == name else ():
                given[held.index].append((job, held))
    shares: dict[int, int] = defaultdict(int)
    for _, replica in (*new, *there):
        for held in replica.gpus:
            shares[held.index] += held.milli if isinstance(held, GpuShare) else 0
    geometry = mig_geometry(without.case.nodes[name].gpu_model or "")
    for job, replica in new:
        taken = (
            victim
            for held in replica.gpus
            for victim, was in given.get(held.index, ())
            if _meet(held, was, shares[held.index], geometry)
        )
        loser = min(taken, key=lambda victim: (-victim.priority, victim.name), default=None)
        if loser is not None:
            found = f"priority {job.priority} in place of job {loser.name} of priority {loser.priority}"
            allowed = f"priority {_least_priority(without.case, loser)} or more"
            yield Violation(Rule.PREEMPTION, f"job {job.name} on node {name}", found, allowed)


def _meet(
    held: GpuShare | MigSlice, was: GpuShare | MigSlice, shares: int, geometry: MigGeometry | None
) -> bool:
    """True if two parts of one GPU cannot both be held; `shares` is the sum of all shares on it."""
    if isinstance(held, GpuShare) and isinstance(was, GpuShare):
        return shares > MILLI
    # MIG mode is of a whole GPU: an instance and a share of it exclude each other.
    if isinstance(held, GpuShare) or isinstance(was, GpuShare):
        return True
    one, other = (_covered(each, geometry) for each in (held, was))
    return held.instance == was.instance or not one.isdisjoint(other)


def _covered(held: MigSlice, geometry: MigGeometry | None) -> set[int]:
    """Memory slices of an instance; empty if unknown."""
    profile = geometry.profiles.get(held.profile) if geometry else None
    return set(range(held.start, held.start + profile.memory_slices)) if profile else set()


def _beside_gpus(
    case: Context,
    node: Node,
    new: list[tuple[Job, Replica]],
    there: list[tuple[Job | None, Replica]],
    beside: Callable[[], str],
) -> Iterator[Violation]:
    """Violations of CPU, memory, disk, countable resources and power of a node."""
    coming, held = defaultdict[str, int](int), defaultdict[str, int](int)
    for replicas, total in ((new, coming), (there, held)):
        for job, replica in replicas:
            for unit, amount in charged_amounts(case, job, replica).items():
                total[unit] += amount
    offered = offered_amounts(node)
    for unit, amount in coming.items():
        # Jobs that stay may hold more than there is (`cpu_memory`); only what comes can be at fault.
        if amount and held[unit] + amount > (allowed := offered.get(unit, 0)):
            found = f"{format_amount(held[unit] + amount, unit)} {beside()}"
            yield Violation(Rule.PREEMPTION, f"node {node.name}", found, format_amount(allowed, unit))
    if node.power_cap_watts and node.gpus and node.gpus.watts:
        watts, cap = node.gpus.watts, node.power_cap_watts * MILLI
        more = sum(held_gpu_milli(replica) for _, replica in new) * watts
        drawn = sum(held_gpu_milli(replica) for _, replica in there) * watts + more
        if more and drawn > cap:
            found = f"{format_watts(drawn)} {beside()}"
            yield Violation(Rule.PREEMPTION, f"node {node.name}", found, format_watts(cap))


class _Limits(NamedTuple):
    """Limits of one resource, and the amounts that are the same for all sets of victims."""

    resource: str
    tree: list[Queue]
    """All queues, children first."""
    kept: dict[str, float]
    limit: dict[str, float]
    held: dict[str, int]
    """What running jobs directly in each queue hold both before and after the plan."""
    changed: list[tuple[Job, bool, int]]
    """Jobs that start, grow or migrate: whether it migrates, and how much more it holds afterwards."""
    lost: dict[int, int]
    """What each victim gives up, by its identity."""


def _limits(case: Context, victims: list[PreemptedJob]) -> list[_Limits]:
    """Limits of all resources that any queue limits."""
    tree, found = children_first(case.snapshot.queues), []
    for resource in limited_resources(tree):
        kept, limit = kept_and_limit(tree, resource)
        if all(most == inf for most in limit.values()):
            continue
        changed = []
        for job, occupant in case.changed:
            before = amount_of_replicas(case, job.running.replicas, resource) if job.running else 0
            now = amount_of_replicas(case, occupant.placement.replicas, resource)
            changed.append((job, occupant.change is Change.MOVED, now - before))
        held = held_before_and_after(case, resource)
        lost = {id(each): amount_of_replicas(case, each.replicas, resource) for each in victims}
        found.append(_Limits(resource, tree, kept, limit, held, changed, lost))
    return found


def _in_queues(without: _Without, limits: list[_Limits]) -> Iterator[Violation]:
    for each in limits:
        held, after = _usage(without, each)
        used = usage_up_the_tree(each.tree, each.kept, after)
        if not (over := [queue for queue in each.tree if used[queue.name] > each.limit[queue.name]]):
            continue
        staying = usage_up_the_tree(each.tree, each.kept, held)
        concerned = _above(without, each)
        for queue in over:
            there = concerned.get(queue.name, [])
            # A queue that is over its limit already may stay there; nothing may come on top.
            if used[queue.name] > staying[queue.name] and without.is_closed(there):
                found = f"{quota_text(used[queue.name], each.resource)} {without.beside(there)}"
                subject = quota_subject(queue, each.resource)
                most = max(each.limit[queue.name], staying[queue.name])
                allowed = quota_text(int(most), each.resource)
                yield Violation(Rule.PREEMPTION, subject, found, allowed)


def _above(without: _Without, limits: _Limits) -> dict[str, list[PreemptedJob]]:
    """The victims that count at each queue."""
    parent = {queue.name: queue.parent for queue in limits.tree}
    found: dict[str, list[PreemptedJob]] = defaultdict(list)
    for victim in without.victims:
        if limits.lost[id(victim)]:
            above: str | None = victim.job.queue
            while above is not None:
                found[above].append(victim)
                above = parent[above]
    return found


def _usage(without: _Without, limits: _Limits) -> tuple[dict[str, int], dict[str, int]]:
    """What is held directly in each queue: by jobs that stay, and with new replicas added."""
    held = defaultdict(int, limits.held)
    for victim in without.victims:
        held[victim.job.queue] += limits.lost[id(victim)]
    # A job that may follow a victim does not move in the hypothetical plan: it keeps its old places.
    for job, moves, more in limits.changed:
        if moves and job.name not in without.names:
            held[job.queue] += max(0, -more)
    after = defaultdict(int, held)
    for job, _, more in limits.changed:
        if job.name in without.names:
            after[job.queue] += max(0, more)
    return held, after


def _in_racks(without: _Without) -> Iterator[Violation]:
    case = without.case
    if not (caps := rack_caps(case)):
        return
    lost = [
        (each, watts_drawn(case, [Placement(job=each.job.name, replicas=each.replicas)]))
        for each in without.victims
    ]
    staying = watts_drawn(case, without.staying())
    new = watts_drawn(case, without.new())
    for subject, names, watts in caps:
        coming = sum(new[name] for name in names)
        drawn = sum(staying[name] for name in names) + coming
        there = [victim for victim, watts_lost in lost if any(watts_lost[name] for name in names)]
        if coming and drawn > watts * MILLI and without.is_closed(there):
            found = f"{format_watts(drawn)} {without.beside(there)}"
            yield Violation(Rule.PREEMPTION, subject, found, format_watts(watts * MILLI))
