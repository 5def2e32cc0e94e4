"""
Place gangs that need one domain before all other jobs; they may preempt rather than wait.

A domain rarely becomes free as a whole, since small jobs keep taking what becomes free in it. Such a gang
would lose more by waiting than its victims are worth, and later jobs find other nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics.greedy_fill import placement_order
from gpuplan.solvers.heuristics.list_scheduling import ListScheduler
from gpuplan.solvers.heuristics.preemption import PreemptionSearch

if TYPE_CHECKING:
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.ledger import Ledger


def place_gangs_first(ledger: Ledger, *, deadline: float | None) -> None:
    """Start gangs or reserve their start, each in the way that is worth most, until the deadline."""
    listing = ListScheduler(ledger, now=True, most=ledger.problem.depth, deadline=deadline)
    preemption = PreemptionSearch(ledger)
    for index in single_domain_gangs(ledger.problem):
        while ledger.jobs_left(index, now=False):
            if is_late(deadline):
                return
            if not _plan_one(listing, preemption, index):
                break


def single_domain_gangs(problem: Problem) -> list[int]:
    """Classes of gangs that need one domain and start alone, in the order of placement."""
    classes = problem.classes
    return [
        index
        for index in placement_order(problem)
        if classes[index].starts_alone and classes[index].needs_one_domain
    ]


def _plan_one(listing: ListScheduler, preemption: PreemptionSearch, index: int) -> bool:
    """Start or reserve one job, or preempt for it if that is worth more; False if it finds no place."""
    ledger = preemption.ledger
    mark, before = ledger.mark(), ledger.objective
    found = listing.plan_one(index)
    brought = ledger.objective - before
    if brought >= ledger.problem.classes[index].most_points:
        return found
    ledger.rollback(mark)
    if preemption.make_room(index) and ledger.objective - before > brought:
        return True
    ledger.rollback(mark)
    return listing.plan_one(index)
