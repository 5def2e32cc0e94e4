"""Carry on the last plan, and place newer jobs by greedy's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.guarantees.idle_gpus import use_idle_gpus
from gpuplan.solvers.heuristics.pool_nodes import close_idle_nodes, open_pool_nodes
from gpuplan.solvers.heuristics.preemption import PreemptionSearch
from gpuplan.solvers.heuristics.vacate import restore_preempted
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.targets.from_target import ledger_of
from gpuplan.solvers.targets.migration_cycles import break_migration_cycles
from gpuplan.solvers.targets.to_target import target_of

if TYPE_CHECKING:
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.solution import DesiredState
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.ledger import Ledger


def extend_last_plan(
    problem: Problem,
    running: tuple[Placement, ...],
    last: DesiredState,
    newcomers: frozenset[str],
    params: PlacementParams = PlacementParams(),
    *,
    exchanges: bool = False,
    deadline: float | None = None,
) -> DesiredState | None:
    """
    The last plan of one slot, with more jobs in it; None if it is no longer feasible.

    Every job that fits beside it starts. Jobs are preempted only for newcomers, where that pays: all other
    jobs had their turn when the last plan was made. Equal jobs start in the order of the queue, whichever
    came last. With `exchanges`, jobs of the plan are then exchanged until the deadline for others that use
    idle GPUs for unmet guarantees.
    """
    problem = _known_first(problem, last)
    ledger = ledger_of(problem, last, staying=_staying(running, last), params=params)
    if ledger is None:
        return None
    for ledger.current_priority in problem.priorities or (None,):
        fill_free_capacity(ledger)
        open_pool_nodes(ledger)
        if len(newcomers) <= params.preemption.few_newcomers and _make_room(ledger, newcomers):
            restore_preempted(ledger)
            fill_free_capacity(ledger)
    ledger.current_priority = None
    if exchanges:
        use_idle_gpus(ledger, deadline=deadline)
    if not break_migration_cycles(ledger):
        return None
    close_idle_nodes(ledger)
    return target_of(ledger, running)


def _staying(running: tuple[Placement, ...], last: DesiredState) -> frozenset[str]:
    """Names of the jobs that keep running unchanged."""
    there = {placement.job: placement.replicas for placement in last.placements}
    return frozenset(each.job for each in running if each.replicas == there.get(each.job))


def _known_first(problem: Problem, last: DesiredState) -> Problem:
    """The problem with the jobs of each class reordered: those in the last plan first, in its order."""
    placed = {placement.job: number for number, placement in enumerate(last.placements)}
    after = len(placed)
    return replace(
        problem,
        classes=tuple(
            replace(each, jobs=tuple(sorted(each.jobs, key=lambda name: placed.get(name, after))))
            if each.role is ClassRole.START and any(name in placed for name in each.jobs)
            else each
            for each in problem.classes
        ),
    )


def _make_room(ledger: Ledger, newcomers: frozenset[str]) -> bool:
    """Preempt for as many jobs of each class as are new in it; True if a job was placed."""
    preemption: PreemptionSearch | None = None  # looks at all running jobs, and not all turns have newcomers
    made = False
    for index in ledger.problem.placement_order:
        job_class = ledger.problem.classes[index]
        # No job is preempted for only part of the jobs that start together.
        if not job_class.starts_alone:
            continue
        for _ in newcomers.intersection(job_class.jobs):
            if not ledger.jobs_left(index):
                break
            preemption = preemption or PreemptionSearch(ledger)
            if not preemption.make_room(index):
                break
            made = True
    return made
