"""Ledger → Target: names, replicas, and the nodes to add and remove."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.plan.solution import DesiredState, LaterStart
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI
from gpuplan.solvers.heuristics import coscheduled_groups
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.constraints.capacity import choose_gpus
from gpuplan.solvers.state.disruption_state import DisruptionKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Node
    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import JobAssignment
    from gpuplan.solvers.state.ledger import Ledger


def target_of(ledger: Ledger, running: tuple[Placement, ...]) -> DesiredState:
    """
    The desired state of the cluster: running jobs stay unless the ledger says otherwise.

    Within a class the first job in order gets the first place.
    """
    problem = ledger.problem
    by_job = {placement.job: placement for placement in running}
    for index in ledger.disruptions.having(DisruptionKind.STOP, DisruptionKind.MOVE):
        by_job.pop(problem.incumbents[index].job, None)
    for index in ledger.disruptions.having(DisruptionKind.SHRINK):
        job, disruption = problem.incumbents[index].job, ledger.disruptions[index]
        kept = (
            replica
            for position, replica in enumerate(by_job[job].replicas)
            if disruption is None or position not in disruption.given_up
        )
        by_job[job] = Placement(job=job, replicas=tuple(kept))
    added = _added(ledger)
    names = {index: node.name for index, node in enumerate(problem.nodes)}
    names |= {index: node.name for index, node in added.items()}
    next_job = [iter(job_class.jobs) for job_class in problem.classes]
    known = _known_placements(ledger)
    for number, placed in sorted(ledger.placed.items()):
        job_class = problem.classes[placed.job_class]
        job = next(next_job[placed.job_class])
        before, placement = known.get(number, (None, None))
        if before is not placed or placement is None or placement.job != job or added:
            replicas = tuple(replica_of(problem, job_class, site, names[site.node]) for site in placed.sites)
            if job_class.role is ClassRole.GROW:
                replicas = (*by_job[job].replicas, *replicas)
            placement = Placement(job=job, replicas=replicas)
            if job_class.role is not ClassRole.GROW and not added:
                known[number] = placed, placement
        by_job[job] = placement
    return DesiredState(
        placements=tuple(placement for _, placement in sorted(by_job.items())),
        added=tuple(node for _, node in sorted(added.items())),
        removed=tuple(sorted(problem.nodes[node].name for node in ledger.pools.closed)),
        planned=_later_starts(ledger, names, next_job) if ledger.reserved else (),
    )


def _known_placements(ledger: Ledger) -> dict[int, tuple[JobAssignment, Placement]]:
    """
    By number, a started job and its placement in an earlier target of the same ledger.

    Not with nodes that a pool adds: their names depend on which of them are in use.
    """
    found = ledger.shared.setdefault(Placement, {})
    if not isinstance(found, dict):
        raise TypeError(found)
    return found


def _later_starts(
    ledger: Ledger, names: dict[int, str], next_job: list[Iterator[str]]
) -> tuple[LaterStart, ...]:
    """
    The reservations; within a class the first job in order gets the earliest one.

    Jobs that must have a promise get one first; then the reservations made first, as many as the depth
    allows.
    """
    problem, sites = ledger.problem, color_intervals(ledger)
    promised = _promised_numbers(ledger)
    found = []
    # Within a class and slot the promised ones have the lower numbers, so that names follow the order.
    for number, reserved in sorted(ledger.reserved.items(), key=lambda each: (each[1].slot, each[0])):
        job_class = problem.classes[reserved.job_class]
        replicas = tuple(replica_of(problem, job_class, site, names[site.node]) for site in sites[number])
        job = next(next_job[reserved.job_class])
        found.append(LaterStart(job, reserved.slot, replicas, promised=number in promised))
    return tuple(sorted(found, key=lambda planned: planned.job))


def _promised_numbers(ledger: Ledger) -> set[int]:
    """
    Numbers of the reservations that are promises, no more than the depth allows with those already made.

    A preempted job that resumes later gets its promise before other jobs.

    Jobs that start together are promised that together or not at all, and no job is promised a start after an
    unpromised one: such a promise could not be kept.
    """
    problem = ledger.problem
    if problem.depth is None:
        return set(ledger.reserved)
    party_of = coscheduled_groups.groups_by_class(problem)
    number_of = {reserved.job_class: number for number, reserved in ledger.reserved.items()}
    affinity = {
        number: {
            number_of[each]
            for each in party_of.get(reserved.job_class, (reserved.job_class,))
            if each in number_of
        }
        | {number}
        for number, reserved in ledger.reserved.items()
    }
    first = {
        number
        for number, reserved in ledger.reserved.items()
        if (job_class := problem.classes[reserved.job_class]).firm or job_class.role is ClassRole.RESUME
    }
    promised = set[int]().union(*(affinity[number] for number in first))
    room = problem.depth - len(promised)
    for number in sorted(ledger.reserved):
        if number in promised or len(affinity[number]) > room:
            continue
        awaited = {
            number_of[each.job_class]
            for member in affinity[number]
            for each in problem.classes[ledger.reserved[member].job_class].predecessors
            if each.job_class in number_of
        }
        if awaited <= promised:
            promised |= affinity[number]
            room -= len(affinity[number])
    return promised


def _added(ledger: Ledger) -> dict[int, Node]:
    """The nodes opened, by index; they are equal, so the first names go to those in use."""
    found: dict[int, Node] = {}
    for index, pool in enumerate(ledger.problem.pools):
        used = sorted(node for node, of in ledger.pools.opened.items() if of == index)
        found |= dict(zip(used, pool.nodes, strict=False))
    return found


def replica_of(problem: Problem, job_class: JobClass, site: ReplicaSite, node: str) -> Replica:
    """A replica of a class on a site, as a placement has it; `node` is the name of the site's node."""
    shape = job_class.shape
    cpu_milli, memory_mib, disk_mib, *further = job_class.asked or shape.amounts
    shares = (_share(gpu, shape.gpu_milli or MILLI) for gpu in sorted(site.gpus))
    in_order = sorted(site.slices, key=lambda part: (part[0], part[2]))
    slices = (MigSlice(index=gpu, profile=profile, start=start) for gpu, profile, start in in_order)
    # All of it comes from values that were checked before.
    return Replica.model_construct(
        node=node,
        gpus=(*shares, *slices),
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        disk_mib=disk_mib,
        resources={
            name: amount
            for name, amount in zip(problem.resources[3:], further, strict=True)
            if amount and " " not in name  # the power of GPUs is counted, but is nothing that a job requests
        },
    )


@lru_cache(maxsize=4096)
def _share(index: int, milli: int) -> GpuShare:
    """A share of a GPU; nothing else of a target is made so often, and so often equal."""
    return GpuShare(index=index, milli=milli)


def color_intervals(ledger: Ledger) -> dict[int, tuple[ReplicaSite, ...]]:
    """
    The sites of every reservation, by number, with the indices of all GPUs (interval colouring).

    In order of start, each reservation takes GPUs that are free then. A GPU of a running or newly placed job
    becomes free once and stays free until the next reservation; the timeline ensures that there are enough.
    """
    found: dict[int, list[ReplicaSite]] = {number: [] for number in ledger.reserved}
    free_from: dict[int, list[int]] = {}
    classes = ledger.problem.classes
    on_node: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, reserved in sorted(ledger.reserved.items(), key=lambda each: (each[1].slot, each[0])):
        for position, site in enumerate(reserved.sites):
            on_node[site.node].append((number, position))
    chosen: dict[tuple[int, int], ReplicaSite] = {}
    for node, replicas in on_node.items():
        free_from[node] = ledger.timeline.free_from(node) if ledger.timeline is not None else []
        for number, position in replicas:
            reserved = ledger.reserved[number]
            job_class, site = classes[reserved.job_class], reserved.sites[position]
            if job_class.shape.gpus:
                end = job_class.options[reserved.option].ends[reserved.slot]
                free = [gpu for gpu, slot in enumerate(free_from[node]) if slot <= reserved.slot]
                groups = ledger.problem.nodes[node].gpu_groups
                site = ReplicaSite(node, choose_gpus(free, groups, job_class.shape.gpus))
                for gpu in site.gpus:
                    free_from[node][gpu] = end
            chosen[number, position] = site
    for number, reserved in ledger.reserved.items():
        found[number] = [chosen[number, position] for position in range(len(reserved.sites))]
    return {number: tuple(sites) for number, sites in found.items()}
