"""
Make up for what a placed answer lacks of the floors of higher priorities.

An answer of the block model brings each priority its floor, often just that. One gang without a place, or a
few jobs that start a slot later, and the plan is worth nothing, though it is better than any other by points.
So jobs of lower priority give way, and most of them return to where they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.list_scheduling import (
    ListScheduler,
    cancel_broken_starts,
    pull_starts_forward,
    reserve_best_starts,
)

if TYPE_CHECKING:
    from gpuplan.solvers.state.assignment import FutureAssignment, JobAssignment
    from gpuplan.solvers.state.ledger import Ledger


def meet_priority_floors(ledger: Ledger, *, deadline: float | None = None) -> int:
    """
    Let jobs of priorities below their floor take places of starts of lower priority.

    The starts of lower priority are taken back, waiting jobs start or are reserved until the floor is met,
    and later starts are pulled forward if it is not. Then what was taken back returns to its own sites, or
    finds others. Nothing changes if the floors are missed by as much as before, or if the deadline (an
    instant of `time.monotonic`) has passed; between two priorities too. Returns the number of starts lost.
    """
    lost = 0
    for priority, floor in ledger.problem.floors:
        if ledger.served[priority] >= floor or is_late(deadline):
            continue
        mark, before, starts = ledger.undo.mark(), ledger.served[priority], _lower_starts(ledger, priority)
        _meet_floor(ledger, priority, floor, deadline)
        if ledger.served[priority] <= before:
            ledger.undo.rollback(mark)
        lost += max(0, starts - _lower_starts(ledger, priority))
    return lost


def _lower_starts(ledger: Ledger, priority: int) -> int:
    """Number of starts of lower priority, now and later."""
    starts = [each.job_class for each in ledger.placed.values()]
    starts += [each.job_class for each in ledger.reserved.values()]
    return sum(ledger.problem.classes[index].priority < priority for index in starts)


def _meet_floor(ledger: Ledger, priority: int, floor: int, deadline: float | None) -> None:
    problem = ledger.problem
    now, later = _take_back(ledger, priority)
    listing = ListScheduler(ledger, now=True, most=None, deadline=deadline)

    def enough() -> bool:
        return ledger.served[priority] >= floor

    for index in problem.placement_order:
        if problem.classes[index].starts_alone and problem.classes[index].priority >= priority:
            while not enough() and listing.plan_one(index):
                pass
    pull_starts_forward(ledger, deadline=deadline, enough=enough)
    homeless = [
        each.job_class for each in now if ledger.commit_at(each.job_class, each.option, each.sites) is None
    ]
    homeless += [each.job_class for each in later if ledger.reserve_at(each) is None]
    for index in homeless:
        listing.plan_one(index)
    fill_free_capacity(ledger)
    cancel_broken_starts(ledger)
    pull_starts_forward(ledger, deadline=deadline)
    reserve_best_starts(ledger, deadline=deadline)


def _take_back(ledger: Ledger, priority: int) -> tuple[list[JobAssignment], list[FutureAssignment]]:
    """Cancel the starts of lower priority, now and later; returns them in the order of placement."""
    classes = ledger.problem.classes
    rank = {index: position for position, index in enumerate(ledger.problem.placement_order)}

    def gives_way(index: int) -> bool:
        each = classes[index]
        return each.starts_alone and each.priority < priority and not each.firm

    now = {number: each for number, each in ledger.placed.items() if gives_way(each.job_class)}
    later = {number: each for number, each in ledger.reserved.items() if gives_way(each.job_class)}
    for number in now:
        ledger.remove(number)
    for number in later:
        ledger.cancel_reservation(number)
    return (
        sorted(now.values(), key=lambda each: rank[each.job_class]),
        sorted(later.values(), key=lambda each: rank[each.job_class]),
    )
