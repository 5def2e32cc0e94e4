"""Carry on the last plan, and place newer jobs by greedy's rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.problem.jobs import Role
from gpuplan.solvers.heuristics.greedy_fill import fill, ranking
from gpuplan.solvers.heuristics.node_scaling import close_idle, open_pools
from gpuplan.solvers.heuristics.preemption import Preemption, take_back
from gpuplan.solvers.targets.from_target import replay
from gpuplan.solvers.targets.migration_cycles import undo_circles

if TYPE_CHECKING:
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.desired_state import Target
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.ledger import Ledger

_FEW: Final = 500
"""With more newcomers the last plan says little, and preempting for all takes as long as greedy."""


def carry_on(
    problem: Problem, running: tuple[Placement, ...], last: Target, newcomers: frozenset[str]
) -> Target | None:
    """
    The last plan of one slot, with more jobs in it; None if it is no longer feasible.

    Every job that fits beside it starts. Jobs are preempted only for newcomers, where that pays: all other
    jobs had their turn when the last plan was made. Equal jobs start in the order of the queue, whichever
    came last.
    """
    problem = _known_first(problem, last)
    ledger = replay(problem, last, staying=_staying(running, last))
    if ledger is None:
        return None
    for ledger.turn in problem.priorities or (None,):
        fill(ledger)
        open_pools(ledger)
        if len(newcomers) <= _FEW and _make_room(ledger, newcomers):
            take_back(ledger)
            fill(ledger)
    ledger.turn = None
    if not undo_circles(ledger):
        return None
    close_idle(ledger)
    return ledger.target(running)


def _staying(running: tuple[Placement, ...], last: Target) -> frozenset[str]:
    """Names of the jobs that keep running unchanged."""
    there = {placement.job: placement.replicas for placement in last.placements}
    return frozenset(each.job for each in running if each.replicas == there.get(each.job))


def _known_first(problem: Problem, last: Target) -> Problem:
    """The problem with the jobs of each class reordered: those in the last plan first, in its order."""
    placed = {placement.job: number for number, placement in enumerate(last.placements)}
    after = len(placed)
    return replace(
        problem,
        classes=tuple(
            replace(each, jobs=tuple(sorted(each.jobs, key=lambda name: placed.get(name, after))))
            if each.role is Role.START and any(name in placed for name in each.jobs)
            else each
            for each in problem.classes
        ),
    )


def _make_room(ledger: Ledger, newcomers: frozenset[str]) -> bool:
    """Preempt for as many jobs of each class as are new in it; True if a job was placed."""
    preemption, made = Preemption(ledger), False
    for index in ranking(ledger.problem):
        job_class = ledger.problem.classes[index]
        # No job is preempted for only part of the jobs that start together.
        if not job_class.starts_alone:
            continue
        for _ in newcomers.intersection(job_class.jobs):
            if not ledger.jobs_left(index) or not preemption.make_room(index):
                break
            made = True
    return made
