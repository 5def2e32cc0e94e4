"""
The rule about preemption: only jobs that may follow a victim use what it frees.

In each place where there are victims (a node, a queue with all below it, a rack) the rule is checked by a
hypothetical plan for each set of them: these victims stay, and jobs that may follow any of them
(`preempted`) do not start, grow or migrate. All other new placements must still fit.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.mig import MigGeometry, mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import format_amount, format_watts
from gpuplan.models.verifier.quota_usage import children_first, held_gpu_milli, kept_and_limit
from gpuplan.models.verifier.rules.capacity import charged_amounts, offered_amounts, rack_caps, watts_drawn
from gpuplan.models.verifier.rules.preempted import (
    intersections,
    least_priority,
    sets_of_barred,
    victims_and_barred,
)
from gpuplan.models.verifier.rules.quota import (
    amount_of_replicas,
    held_before_and_after,
    limited_resources,
    quota_subject,
    quota_text,
    usages_up_the_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.queue import Queue
    from gpuplan.models.verifier.context import Context
    from gpuplan.models.verifier.rules.preempted import Barred, PreemptedJob


def preemption(case: Context) -> Iterator[Violation]:
    """
    Capacity freed by preemption is used only by jobs that may follow the victims.

    This covers GPUs and all other resources of a node, the quota of every queue above the victim, and the
    power of racks. Capacity that was free before is open to all jobs.
    """
    if barred := victims_and_barred(case):
        yield from _on_nodes(case, barred)
        yield from _in_queues(case, barred)
        yield from _in_racks(case, barred)


def _beside(case: Context, names: frozenset[str], there: list[PreemptedJob]) -> str:
    """Words of a violation for the victims in a place, which none of the named jobs may follow."""
    priority = min(victim.job.priority for victim in there)
    name = min(victim.job.name for victim in there if victim.job.priority == priority)
    least = least_priority(case, case.jobs[name])
    reclaim = any(job.priority < least for job, _ in case.arrivals if job.name not in names)
    also = ", or that reclaim lent quota," if reclaim else ""
    return f"beside job {name} of priority {priority}, jobs of {least} or more{also} not counted"


def _on_nodes(case: Context, barred: list[Barred]) -> Iterator[Violation]:
    """
    Violations on nodes that a victim leaves.

    Nodes that accept no jobs are checked by the rule `selection`.
    """
    left: dict[str, list[Barred]] = defaultdict(list)
    for victim, bars in barred:
        for name in {replica.node for replica in victim.replicas}:
            if (node := case.nodes.get(name)) and node.schedulable:
                left[name].append((victim, bars))
    coming = _by_node(case, _arrived(case), left)
    staying, moved = _by_node(case, case.staying, coming), _by_node(case, _moved(case), coming)
    for name in coming:
        for names, victims in sets_of_barred(left[name]):
            new = [(job, replica) for job, replica in coming[name] if job and job.name in names]
            if not new:
                continue
            there = [
                *staying[name],
                *((job, replica) for job, replica in moved[name] if job and job.name not in names),
                *((each.job, held) for each in victims for held in each.replicas if held.node == name),
            ]
            yield from _on_gpus(case, name, victims, new, there)
            yield from _beside_gpus(
                case, case.nodes[name], new, there, partial(_beside, case, names, victims)
            )


def _by_node(
    case: Context, placements: Iterable[Placement], nodes: Mapping[str, object]
) -> dict[str, list[tuple[Job | None, Replica]]]:
    """The replicas on some nodes, each with its job, if that is known."""
    found: dict[str, list[tuple[Job | None, Replica]]] = defaultdict(list)
    for placement in placements:
        if not placement.nodes.isdisjoint(nodes):
            job = case.jobs.get(placement.job)
            for replica in placement.replicas:
                if replica.node in nodes:
                    found[replica.node].append((job, replica))
    return found


def _on_gpus(
    case: Context,
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
    geometry = mig_geometry(case.nodes[name].gpu_model or "")
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
            allowed = f"priority {least_priority(case, loser)} or more"
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
    """Limits of one resource on queues, and what the plan changes of what they hold."""

    resource: str
    tree: list[Queue]
    """All queues, children first."""
    kept: dict[str, float]
    limit: dict[str, float]
    held: dict[str, int]
    """What running jobs directly in each queue hold both before and after the plan."""
    changed: list[tuple[Job, bool, int]]
    """Jobs that start, grow or migrate: whether it migrates, and how much more it holds afterwards."""
    lost: list[int]
    """What each victim gives up."""


def _limits(case: Context, barred: list[Barred]) -> Iterator[_Limits]:
    """Limits of all resources that any queue limits."""
    tree = children_first(case.snapshot.queues)
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
        lost = [amount_of_replicas(case, victim.replicas, resource) for victim, _ in barred]
        yield _Limits(resource, tree, kept, limit, held, changed, lost)


def _in_queues(case: Context, barred: list[Barred]) -> Iterator[Violation]:
    """Violations of the limits of queues above a victim."""
    sets = intersections({bars for _, bars in barred})
    for each in _limits(case, barred):
        held, after = _usage(barred, sets, each)
        there = _above(barred, each)
        for queue in each.tree:
            limit = each.limit[queue.name]
            usages = zip(sets, held[queue.name], after[queue.name], strict=True)
            # A queue that is over its limit already may stay there; nothing may come on top.
            for names, before, used in [one for one in usages if one[2] > limit and one[2] > one[1]]:
                concerned = [(victim, bars) for victim, bars in there[queue.name] if names <= bars]
                if not _is_closed(names, concerned):
                    continue
                beside = _beside(case, names, [victim for victim, _ in concerned])
                found = f"{quota_text(used, each.resource)} {beside}"
                allowed = quota_text(int(max(limit, before)), each.resource)
                yield Violation(Rule.PREEMPTION, quota_subject(queue, each.resource), found, allowed)


def _is_closed(names: frozenset[str], there: list[Barred]) -> bool:
    """
    True if exactly these jobs may follow none of the victims in a place.

    If more jobs may not, another set of victims gives a stronger condition.
    """
    return bool(there) and frozenset.intersection(*{bars for _, bars in there}) == names


def _above(barred: list[Barred], limits: _Limits) -> dict[str, list[Barred]]:
    """The victims that count at each queue."""
    parent = {queue.name: queue.parent for queue in limits.tree}
    found: dict[str, list[Barred]] = defaultdict(list)
    for (victim, bars), lost in zip(barred, limits.lost, strict=True):
        above: str | None = victim.job.queue if lost else None
        while above is not None:
            found[above].append((victim, bars))
            above = parent[above]
    return found


def _usage(
    barred: list[Barred], sets: list[frozenset[str]], limits: _Limits
) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """
    What each queue uses in the hypothetical plan of each set: by jobs that stay, and with new replicas added.

    Only victims that no job of the set may follow stay.
    """
    held = {queue.name: [limits.held.get(queue.name, 0)] * len(sets) for queue in limits.tree}
    given_up: dict[tuple[frozenset[str], str], int] = defaultdict(int)
    for (victim, bars), lost in zip(barred, limits.lost, strict=True):
        given_up[bars, victim.job.queue] += lost
    stays = {bars: [names <= bars for names in sets] for bars, _ in given_up}
    for (bars, queue), lost in given_up.items():
        held[queue] = _increased(held[queue], lost, stays[bars])
    # As in `_moved`.
    for job, moves, more in limits.changed:
        if moves and more < 0:
            stays_put = [job.name not in names for names in sets]
            held[job.queue] = _increased(held[job.queue], -more, stays_put)
    after = dict(held)
    for job, _, more in limits.changed:
        if more > 0:
            comes = [job.name in names for names in sets]
            after[job.queue] = _increased(after[job.queue], more, comes)
    up = partial(usages_up_the_tree, limits.tree, limits.kept, cases=len(sets))
    return up(held), up(after)


def _increased(usages: list[int], amount: int, where: list[bool]) -> list[int]:
    return [usage + amount if here else usage for usage, here in zip(usages, where, strict=True)]


def _arrived(case: Context) -> list[Placement]:
    """New replicas of all jobs."""
    return [Placement(job=job.name, replicas=tuple(each.new_replicas)) for job, each in case.arrivals]


def _moved(case: Context) -> list[Placement]:
    """
    Old places of the jobs that migrate.

    A job that may follow a victim does not move in the hypothetical plan: it keeps its old places.
    """
    return [job.placement for job, _ in case.with_change(Change.MOVED) if job.placement]


def _in_racks(case: Context, barred: list[Barred]) -> Iterator[Violation]:
    """Violations of the power caps of racks."""
    if not (caps := rack_caps(case)):
        return
    rack_of = {name: number for number, (_, nodes, _) in enumerate(caps) for name in nodes}
    staying = _by_rack(case, case.staying, rack_of)
    coming, moved = _by_rack(case, _arrived(case), rack_of), _by_rack(case, _moved(case), rack_of)
    left: dict[int, list[Barred]] = defaultdict(list)
    given: dict[tuple[int, int], int] = {}
    for victim, bars in barred:
        old = Placement(job=victim.job.name, replicas=victim.replicas)
        for rack, ((_, watts),) in _by_rack(case, [old], rack_of).items():
            left[rack].append((victim, bars))
            given[rack, id(victim)] = watts
    for rack, there in left.items():
        subject, _, cap = caps[rack]
        always = sum(watts for _, watts in staying[rack])
        for names, victims in sets_of_barred(there):
            more = sum(watts for name, watts in coming[rack] if name in names)
            kept = sum(watts for name, watts in moved[rack] if name not in names)
            drawn = always + kept + sum(given[rack, id(victim)] for victim in victims) + more
            if more and drawn > cap * MILLI:
                found = f"{format_watts(drawn)} {_beside(case, names, victims)}"
                yield Violation(Rule.PREEMPTION, subject, found, format_watts(cap * MILLI))


def _by_rack(
    case: Context, placements: Iterable[Placement], rack_of: Mapping[str, int]
) -> dict[int, list[tuple[str, int]]]:
    """(job, thousandths of watts that it draws) by number of each rack with a cap on which it draws any."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for placement in placements:
        drawn: dict[int, int] = defaultdict(int)
        for name, watts in watts_drawn(case, [placement]).items():
            if name in rack_of and watts:
                drawn[rack_of[name]] += watts
        for rack, watts in drawn.items():
            found[rack].append((placement.job, watts))
    return found
