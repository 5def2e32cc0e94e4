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
from gpuplan.models.units import MILLI
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.improve.subproblem import is_free, is_inside, residents
from gpuplan.solvers.state.disruption_state import Leave
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.place_at import start_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.plan.desired_state import Target
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.improve.subproblem import Neighbourhood
    from gpuplan.solvers.state.assignment import Placed, Site
    from gpuplan.solvers.state.disruption_state import Fate


@dataclass(frozen=True, slots=True)
class Lifted:
    """What a plan had on some nodes."""

    placed: tuple[Placed, ...]
    fates: tuple[tuple[int, Fate], ...]
    """(running job, its fate in the plan), of the jobs that were restored."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Changes on the nodes of a neighbourhood, in the indices of the whole problem."""

    fates: tuple[tuple[int, Fate], ...]
    starts: tuple[tuple[int, tuple[Site, ...]], ...]
    """(class, sites) of each job."""


def may_be_asked_about(ledger: Ledger) -> list[int]:
    """Nodes that a neighbourhood may contain: not in pools, without MIG, under no power cap."""
    problem = ledger.problem
    capped = {node for cap in problem.power_caps for node in cap.nodes}
    return [
        node
        for group in problem.groups
        if group.pool is None and group.gpus
        for node in group.nodes
        if not problem.nodes[node].mig
        and problem.nodes[node].closing_points is None
        and node not in capped
        and node not in ledger.closed
    ]


def lift(ledger: Ledger, nodes: Iterable[int]) -> Lifted:
    """Take off some nodes the new jobs that are on these alone, and restore running jobs that left there."""
    inside = frozenset(nodes)
    placed = [
        (number, each)
        for number in sorted({number for node in inside for number in ledger.on_node[node]})
        for each in (ledger.placed[number],)
        if is_free(ledger, each.job_class) and all(site.node in inside for site in each.sites)
    ]
    for number, _ in placed:
        ledger.remove(number)
    fates = []
    for index in residents(ledger, inside):
        fate = ledger.fates[index]
        if (
            fate is None
            or fate.leave is Leave.MOVE
            or not is_inside(ledger.problem.incumbents[index], inside)
        ):
            continue
        if vacate.restore(ledger, index):
            fates.append((index, fate))
    return Lifted(tuple(each for _, each in placed), tuple(fates))


def as_it_was(asked: Neighbourhood, lifted: Lifted) -> Target | None:
    """The plan's own answer to the question; None if that is not feasible."""
    problem = asked.problem
    ledger = Ledger(problem)
    class_of = {index: at for at, index in enumerate(asked.classes)}
    incumbent_of = {index: at for at, index in enumerate(asked.incumbents)}
    position = {node: at for at, node in enumerate(asked.nodes)}
    for index, fate in lifted.fates:
        if index not in incumbent_of or not _leave(ledger, incumbent_of[index], fate):
            return None
    for placed in lifted.placed:
        at = class_of.get(placed.job_class)
        sites = [replace(site, node=position[site.node]) for site in placed.sites]
        if at is None or not start_at(ledger, at, sites):
            return None
    return ledger.target(tuple(_running(problem, incumbent) for incumbent in problem.incumbents))


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


def answered(asked: Neighbourhood, answer: Ledger) -> Answered:
    """Translate an answer to the indices of the whole problem."""
    leaving_now = answer.fates.having(Leave.STOP, Leave.SHRINK)
    return Answered(
        tuple(
            (asked.incumbents[index], fate)
            for index in leaving_now
            if (fate := answer.fates[index]) is not None
        ),
        tuple(
            (
                asked.classes[placed.job_class],
                tuple(replace(site, node=asked.nodes[site.node]) for site in placed.sites),
            )
            for _, placed in sorted(answer.placed.items())
        ),
    )


def carry_out(ledger: Ledger, answer: Answered) -> bool:
    """Apply an answer about some nodes to the plan; False if part of it is infeasible."""
    return all(_leave(ledger, index, fate) for index, fate in answer.fates) and all(
        start_at(ledger, index, sites) for index, sites in answer.starts
    )


def _leave(ledger: Ledger, index: int, fate: Fate) -> bool:
    if fate.leave is Leave.STOP:
        return vacate.stop(ledger, index)
    return vacate.shrink(ledger, index, fate.given_up)
