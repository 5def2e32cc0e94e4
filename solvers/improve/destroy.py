"""
Neighbourhood: the problem of the epoch restricted to some nodes, with all else as in the plan.

New jobs on these nodes are lifted off, and jobs that were preempted there are restored where possible. The
resources that are then free are assigned anew to these jobs and to all waiting ones. (Large neighbourhood
search: P. Shaw, "Using Constraint Programming and Local Search Methods to Solve Vehicle Routing Problems", CP
1998.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, Placement, Replica
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.units import MILLI
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.improve.subproblem import incumbents_on, is_freely_placed, is_inside
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.from_target import place_on_sites
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.improve.subproblem import Neighbourhood
    from gpuplan.solvers.state.assignment import JobAssignment, ReplicaSite
    from gpuplan.solvers.state.disruption_state import JobDisruption


@dataclass(frozen=True, slots=True)
class DestroyedPart:
    """What a plan had on some nodes."""

    placed: tuple[JobAssignment, ...]
    disruptions: tuple[tuple[int, JobDisruption], ...]
    """(running job, its disruption in the plan), of the jobs that were restored."""


@dataclass(frozen=True, slots=True)
class RepairedPart:
    """Changes on the nodes of a neighbourhood, in the indices of the whole problem."""

    disruptions: tuple[tuple[int, JobDisruption], ...]
    starts: tuple[tuple[int, tuple[ReplicaSite, ...]], ...]
    """(class, sites) of each job."""


def destroyable_nodes(ledger: Ledger) -> list[int]:
    """Nodes that a neighbourhood may have: with GPUs, in no pool that may change, no MIG, no joint limit."""
    problem = ledger.problem
    limited = problem.jointly_limited
    return [
        node
        for group in problem.groups
        if group.pool is None and group.gpus
        for node in group.nodes
        if not problem.nodes[node].mig
        and problem.nodes[node].closing_points is None
        and node not in limited
        and node not in ledger.pools.closed
    ]


def destroy_part(ledger: Ledger, nodes: Iterable[int]) -> DestroyedPart:
    """Take off some nodes the new jobs that are on these alone, and restore running jobs that left there."""
    inside = frozenset(nodes)
    # Only what is on these nodes alone is lifted: the rest of a gang would be left without these replicas.
    placed = [
        (number, each)
        for number in sorted({number for node in inside for number in ledger.sites.numbers_on[node]})
        for each in (ledger.placed[number],)
        if is_freely_placed(ledger, each.job_class) and all(site.node in inside for site in each.sites)
    ]
    for number, _ in placed:
        ledger.remove(number)
    disruptions = []
    for index in incumbents_on(ledger, inside):
        disruption = ledger.disruptions[index]
        if (
            disruption is None
            or disruption.kind is DisruptionKind.MOVE
            or not is_inside(ledger.problem.incumbents[index], inside)
        ):
            continue
        if vacate.restore_incumbent(ledger, index):
            disruptions.append((index, disruption))
    return DestroyedPart(tuple(each for _, each in placed), tuple(disruptions))


def incumbent_target(
    asked: Neighbourhood, lifted: DestroyedPart, params: PlacementParams = PlacementParams()
) -> DesiredState | None:
    """The plan's own answer to the question; None if that is not feasible."""
    problem = asked.problem
    ledger = Ledger(problem, params)
    class_of = {index: at for at, index in enumerate(asked.classes)}
    incumbent_of = {index: at for at, index in enumerate(asked.incumbents)}
    position = {node: at for at, node in enumerate(asked.nodes)}
    for index, disruption in lifted.disruptions:
        if index not in incumbent_of or not _disrupt(ledger, incumbent_of[index], disruption):
            return None
    for placed in lifted.placed:
        at = class_of.get(placed.job_class)
        sites = [replace(site, node=position[site.node]) for site in placed.sites]
        if at is None or not place_on_sites(ledger, at, sites):
            return None
    return target_of(ledger, unchanged_target(problem).placements)


def unchanged_target(problem: Problem) -> DesiredState:
    """The plan that changes nothing in a neighbourhood."""
    return DesiredState(tuple(_running(problem, incumbent) for incumbent in problem.incumbents))


def _running(problem: Problem, incumbent: Incumbent) -> Placement:
    milli = incumbent.shape.gpu_milli or MILLI
    return Placement(
        job=incumbent.job,
        replicas=tuple(
            Replica(
                node=problem.nodes[hold.node].name,
                gpus=tuple(GpuShare(index=gpu, milli=milli) for gpu in hold.gpus),
            )
            for hold in incumbent.holds
            if hold.node is not None
        ),
    )


def repaired_part(asked: Neighbourhood, answer: Ledger) -> RepairedPart:
    """Translate an answer to the indices of the whole problem."""
    leaving_now = answer.disruptions.having(DisruptionKind.STOP, DisruptionKind.SHRINK)
    return RepairedPart(
        tuple(
            (asked.incumbents[index], disruption)
            for index in leaving_now
            if (disruption := answer.disruptions[index]) is not None
        ),
        tuple(
            (
                asked.classes[placed.job_class],
                tuple(replace(site, node=asked.nodes[site.node]) for site in placed.sites),
            )
            for _, placed in sorted(answer.placed.items())
        ),
    )


def apply_repair(ledger: Ledger, answer: RepairedPart) -> bool:
    """Apply an answer about some nodes to the plan; False if part of it is infeasible."""
    return all(_disrupt(ledger, index, disruption) for index, disruption in answer.disruptions) and all(
        place_on_sites(ledger, index, sites) for index, sites in answer.starts
    )


def _disrupt(ledger: Ledger, index: int, disruption: JobDisruption) -> bool:
    if disruption.kind is DisruptionKind.STOP:
        return vacate.stop_incumbent(ledger, index)
    return vacate.shrink_incumbent(ledger, index, disruption.given_up)
