"""
The rule about what preemption frees: it is for jobs that outrank those which were stopped or shrunk.

A job outranks another if its priority is higher by the policy's gap. The rule is stated by what would be
without them: were the victims of a priority and above still there, and the jobs that outrank that priority
neither started, grown nor moved, then everything else that is new would still fit.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from planner.models.mig import mig_geometry
from planner.models.placement import GpuShare, Placement
from planner.models.queue import ALL_MODELS
from planner.models.units import MILLI
from planner.models.verifier_capacity_rules import (
    charged_amounts,
    offered_amounts,
    rack_caps,
    watts_drawn,
)
from planner.models.verifier_disruption_rules import borrowing_queues
from planner.models.verifier_occupant import Change, unmatched
from planner.models.verifier_queue_rules import (
    held_all_along,
    kept_and_limit,
    of_replicas,
    usage_up_the_tree,
)
from planner.models.verifier_usage import children_first, gpu_milli
from planner.models.verifier_words import in_gpus, in_watts, in_words
from planner.models.violation import Rule, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.mig import MigGeometry
    from planner.models.placement import MigSlice, Replica
    from planner.models.queue import Queue
    from planner.models.verifier_case import Case


class Victim(NamedTuple):
    """A job that is stopped or shrunk, with the replicas it gives up."""

    job: Job
    replicas: tuple[Replica, ...]


def preemption(case: Case) -> Iterator[Violation]:
    """
    What preemption frees is taken only by jobs of a priority higher by the policy's gap.

    That goes for GPUs and all else of a node, for the quota of every queue above the victim's, and for the
    power of racks; what was free before is for any. Jobs that borrow make room for any: their queue is
    guaranteed less than it and the queues below it hold.
    """
    if victims := _victims(case):
        for priority in sorted({victim.job.priority for victim in victims}):
            without = _Without(case, priority, [each for each in victims if each.job.priority >= priority])
            yield from _on_nodes(without)
            yield from _in_queues(without)
            yield from _in_racks(without)


def _victims(case: Case) -> list[Victim]:
    """Jobs that give up replicas and borrow nothing."""
    found = [Victim(job, job.running.replicas) for job in case.stopped if job.running]
    for job, occupant in case.with_change(Change.SHRUNK):
        before = job.running.replicas if job.running else ()
        given_up = unmatched(before, occupant.placement.replicas)
        found.append(Victim(job, tuple(before[number] for number in given_up)))
    borrowing = borrowing_queues(case) if found else set()
    return [victim for victim in found if victim.job.queue not in borrowing]


@dataclass(frozen=True)
class _Without:
    """The plan, had victims of a priority and above stayed, and no job come or moved that outranks them."""

    case: Case
    priority: int
    victims: list[Victim]

    @property
    def least(self) -> int:
        """The least priority of a job that outranks them."""
        return self.priority + self.case.policy.disruption.priority_gap

    @property
    def leaders(self) -> list[Victim]:
        """Victims of just this priority."""
        return [victim for victim in self.victims if victim.job.priority == self.priority]

    @property
    def beside(self) -> str:
        """What a violation says of the victims."""
        name = min(victim.job.name for victim in self.leaders)
        return f"beside job {name} of priority {self.priority}, jobs of {self.least} or more not counted"

    def staying(self) -> Iterator[Placement]:
        """What jobs hold all along, had those that outrank the victims not moved."""
        yield from self.case.staying
        for job, _ in self.case.with_change(Change.MOVED):
            if job.priority >= self.least and job.placement:
                yield job.placement
        yield from (Placement(job=job.name, replicas=replicas) for job, replicas in self.victims)

    def new(self) -> Iterator[Placement]:
        """What jobs that do not outrank the victims hold with new replicas."""
        for job, occupant in self.case.arrivals:
            if job.priority < self.least:
                yield Placement(job=job.name, replicas=tuple(occupant.new_replicas))


def _on_nodes(without: _Without) -> Iterator[Violation]:
    """
    On nodes that a victim of just this priority leaves; others are no matter of it.

    Nodes that take nothing new at all are a matter of the rule `selection`.
    """
    case = without.case
    left = {replica.node for victim in without.leaders for replica in victim.replicas}
    names = {name for name in left if (node := case.nodes.get(name)) and node.schedulable}
    coming: dict[str, list[tuple[Job, Replica]]] = defaultdict(list)
    for placement in without.new():
        for replica in placement.replicas:
            if replica.node in names:
                coming[replica.node].append((case.jobs[placement.job], replica))
    if not coming:
        return
    there: dict[str, list[tuple[Job | None, Replica]]] = defaultdict(list)
    for placement in without.staying():
        if not placement.nodes.isdisjoint(coming):
            job = case.jobs.get(placement.job)
            for replica in placement.replicas:
                there[replica.node].append((job, replica))
    for name, new in coming.items():
        yield from _on_gpus(without, name, new, there[name])
        yield from _beside_gpus(without, case.nodes[name], new, there[name])


def _on_gpus(
    without: _Without, name: str, new: list[tuple[Job, Replica]], there: list[tuple[Job | None, Replica]]
) -> Iterator[Violation]:
    """A GPU, or a part of one, that a victim held is not taken by a job that does not outrank it."""
    gap = without.case.policy.disruption.priority_gap
    given: dict[int, list[tuple[Job, GpuShare | MigSlice]]] = defaultdict(list)
    for job, replicas in without.victims:
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
            allowed = f"priority {loser.priority + gap} or more"
            yield Violation(Rule.PREEMPTION, f"job {job.name} on node {name}", found, allowed)


def _meet(
    held: GpuShare | MigSlice, was: GpuShare | MigSlice, shares: int, geometry: MigGeometry | None
) -> bool:
    """True if two parts of one GPU could not both be held, whose shares come to so many thousandths."""
    if isinstance(held, GpuShare) and isinstance(was, GpuShare):
        return shares > MILLI
    if isinstance(held, GpuShare) or isinstance(was, GpuShare):
        return True
    one, other = (_covered(each, geometry) for each in (held, was))
    return held.instance == was.instance or not one.isdisjoint(other)


def _covered(held: MigSlice, geometry: MigGeometry | None) -> set[int]:
    """Memory slices of an instance, where they are known."""
    profile = geometry.profiles.get(held.profile) if geometry else None
    return set(range(held.start, held.start + profile.memory_slices)) if profile else set()


def _beside_gpus(
    without: _Without,
    node: Node,
    new: list[tuple[Job, Replica]],
    there: list[tuple[Job | None, Replica]],
) -> Iterator[Violation]:
    """CPU, memory, disk, countable resources and the power of a node."""
    case = without.case
    coming, held = defaultdict[str, int](int), defaultdict[str, int](int)
    for replicas, total in ((new, coming), (there, held)):
        for job, replica in replicas:
            for unit, amount in charged_amounts(case, job, replica).items():
                total[unit] += amount
    offered = offered_amounts(node)
    for unit, amount in coming.items():
        if amount and held[unit] + amount > (allowed := offered.get(unit, 0)):
            found = f"{in_words(held[unit] + amount, unit)} {without.beside}"
            yield Violation(Rule.PREEMPTION, f"node {node.name}", found, in_words(allowed, unit))
    if node.power_cap_watts and node.gpus and node.gpus.watts:
        watts, cap = node.gpus.watts, node.power_cap_watts * MILLI
        more = sum(gpu_milli(replica) for _, replica in new) * watts
        drawn = sum(gpu_milli(replica) for _, replica in there) * watts + more
        if more and drawn > cap:
            found = f"{in_watts(drawn)} {without.beside}"
            yield Violation(Rule.PREEMPTION, f"node {node.name}", found, in_watts(cap))


def _in_queues(without: _Without) -> Iterator[Violation]:
    tree = children_first(without.case.snapshot.queues)
    models = sorted({model for queue in tree for model in queue.gpu_models})
    for resource in (ALL_MODELS, *models):
        concerned = _above(tree, without, resource)
        kept, limit = kept_and_limit(tree, resource)
        held, after = _usage(without, resource)
        staying, used = usage_up_the_tree(tree, kept, held), usage_up_the_tree(tree, kept, after)
        for queue in tree:
            allowed = max(limit[queue.name], staying[queue.name])
            if queue.name in concerned and used[queue.name] > allowed:
                subject = f"queue {queue.name}" + (f" on {resource}" if resource != ALL_MODELS else "")
                found = f"{in_gpus(used[queue.name])} {without.beside}"
                yield Violation(Rule.PREEMPTION, subject, found, in_gpus(int(allowed)))


def _above(tree: list[Queue], without: _Without, resource: str) -> set[str]:
    """Queues at which a victim of just this priority counts."""
    parent = {queue.name: queue.parent for queue in tree}
    found: set[str] = set()
    for job, replicas in without.leaders:
        if of_replicas(without.case, replicas, resource):
            above: str | None = job.queue
            while above is not None:
                found.add(above)
                above = parent[above]
    return found


def _usage(without: _Without, resource: str) -> tuple[dict[str, int], dict[str, int]]:
    """Thousandths of GPUs held directly in each queue: by who would have stayed, and with what is new."""
    case = without.case
    held = defaultdict(int, held_all_along(case, resource))
    after = defaultdict(int, held)
    for job, replicas in without.victims:
        held[job.queue] += of_replicas(case, replicas, resource)
        after[job.queue] += of_replicas(case, replicas, resource)
    for job, occupant in case.changed:
        before = of_replicas(case, job.running.replicas, resource) if job.running else 0
        now = of_replicas(case, occupant.placement.replicas, resource)
        if job.priority < without.least:
            after[job.queue] += max(0, now - before)
        elif occupant.change is Change.MOVED:
            held[job.queue] += max(0, before - now)
            after[job.queue] += max(0, before - now)
    return held, after


def _in_racks(without: _Without) -> Iterator[Violation]:
    case = without.case
    if not (caps := rack_caps(case)):
        return
    lost = watts_drawn(case, [Placement(job=job.name, replicas=given) for job, given in without.leaders])
    staying = watts_drawn(case, without.staying())
    new = watts_drawn(case, without.new())
    for subject, names, watts in caps:
        coming = sum(new[name] for name in names)
        drawn = sum(staying[name] for name in names) + coming
        if coming and drawn > watts * MILLI and any(lost[name] for name in names):
            found = f"{in_watts(drawn)} {without.beside}"
            yield Violation(Rule.PREEMPTION, subject, found, in_watts(watts * MILLI))
