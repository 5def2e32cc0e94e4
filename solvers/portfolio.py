"""
The pipeline: greedy always answers; exact solvers and then neighbourhoods improve on it in time.

    greedy → bound and rounded vertex of the linear relaxation → exact optimum of the block model
           → placed on nodes → verified → neighbourhoods, each solved exactly, until the time is up → verified

The best verified plan wins, whoever made it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from planner.models.solution import Ended
from planner.models.target import Target
from planner.solvers.continuing import carry_on
from planner.solvers.greedy import greedy
from planner.solvers.holding import hold, start_firm
from planner.solvers.inquiring import EnoughError, Inquiry
from planner.solvers.interface import Headroom
from planner.solvers.ledger import Ledger
from planner.solvers.search import LAST_PLAN, NOBODY, Limits, Search
from planner.solvers.worker import run_apart

if TYPE_CHECKING:
    from planner.models.placement import Placement
    from planner.models.problem import Problem
    from planner.models.solution import Solution
    from planner.solvers.search import Check, Watch

GREEDY: Final = "greedy"
REFINER: Final = "neighbourhoods"
REFINING: Final = "planner.solvers.refining:refine"

_MANY_NODES: Final = 5_000
"""From so many on the first solver begins while greedy plans."""

_CHECKS_OF_GREEDY: Final = 10
"""Greedy takes as long as so many checks of a plan, about."""

__all__ = ["Limits", "solve"]


def solve(
    problem: Problem,
    running: tuple[Placement, ...],
    limits: Limits,
    check: Check,
    watch: Watch | None = None,
    *,
    began: float | None = None,
    warm: Target | None = None,
    newcomers: frozenset[str] = frozenset(),
    settled: bool = False,
) -> Solution:
    """
    Answer a problem within limits; `check` is the verifier on the epoch's snapshot and policy.

    Never worse than greedy, or in a hurry than `warm`, nor than leaving all as it is, and never later than
    the limit by more than the time to place, verify and clean up, whatever an exact solver does. The bound is
    the least that was proven: at worst the problem's ceiling. `watch` is shown how the search goes. Once
    there is a plan an interruption (KeyboardInterrupt) ends the search with it; a second is passed on. Time
    counts from the instant (of `time.monotonic`) at which the epoch `began`, to pose the problem included;
    without it from now.

    `warm` is a plan to begin with, carried on with jobs that are `newcomers` to it; of equally good ones it
    is kept, and if there is no time to look for a better one nothing else is done. If all is `settled`, all
    stays as it is, and only the bound is looked for.
    """
    search = Search(problem, running, limits, check, watch, began)
    if settled:
        search.rest()
    elif warm is not None:
        _carry_on(search, warm, newcomers)
    if problem.slots > 1:
        with search.phase("hold"):
            search.problem = hold(problem)
    search.greedy_objective = search.best.objective
    try:
        if _is_hurried(search):
            search.ended = Ended.SETTLED if settled else Ended.TIME
            return search.solution()
        if len(problem.nodes) >= _MANY_NODES and limits.solvers and search.left > 0 and not settled:
            _plan_large(search)
            return search.solution()
        if not settled:
            _start(search)
        if not search.proven:
            _improve(search)
    except KeyboardInterrupt:
        if search.best.solver == NOBODY:
            raise
        search.ended = Ended.INTERRUPTED
    return search.solution()


def _carry_on(search: Search, last: Target, newcomers: frozenset[str]) -> None:
    """The last plan with newcomers in it, or as it is if that cannot be."""
    with search.phase("carry on"):
        target = carry_on(search.problem, search.running, last, newcomers)
    if target is None or not search.offer(LAST_PLAN, target):
        search.offer(LAST_PLAN, last)


def _is_hurried(search: Search) -> bool:
    """True if there is the last plan to go on with, and not the time to look for a better one."""
    has_plan = search.best.solver == LAST_PLAN and not search.limits.deterministic
    return has_plan and search.left < _CHECKS_OF_GREEDY * search.one_check


def _start(search: Search) -> None:
    """Greedy's plan."""
    search.tell(GREEDY)
    with search.phase("greedy"):
        deadline = None if search.limits.deterministic else search.deadline
        ledger = greedy(search.problem, deadline=deadline, thorough=not search.limits.solvers)
    if not search.offer(GREEDY, ledger.target(search.running)) and search.problem.bookings:
        # Nothing but what was promised: whatever else went wrong, that is kept.
        kept = Ledger(search.problem)
        start_firm(kept)
        search.offer(GREEDY, kept.target(search.running))
    search.greedy_objective = search.judged


def _improve(search: Search) -> None:
    """Get a bound; try the exact solvers in turn until one answers; then refine the best plan."""
    limits = search.limits
    if _is_out_of_time(search):
        return
    if not limits.solvers or search.ended is Ended.SETTLED:
        Inquiry(search, None).made()
        for solver in limits.solvers[:1] if not search.proven else ():
            # What is small is soon proven to be the best.
            Inquiry(search, solver, relax=False).made()
        return
    _ask(search, limits.solvers, relax=True)
    if not search.proven:
        _refine(search)


def _ask(search: Search, solvers: tuple[str, ...], *, relax: bool) -> None:
    """Ask solvers in turn until one answers."""
    for solver in solvers:
        if search.left <= 0:
            return
        inquiry = Inquiry(search, solver, relax=relax)
        if inquiry.made() or search.proven:
            return
        relax = not inquiry.relaxed


def _plan_large(search: Search) -> None:
    """Have the first solver begin while greedy plans, since to state the model alone takes as long."""
    inquiry = Inquiry(search, search.limits.solvers[0])
    with inquiry.begun() as child:
        _start(search)
        if _is_out_of_time(search):
            return
        answered = search.proven or inquiry.ended(child)
    if not answered:
        _ask(search, search.limits.solvers[1:], relax=not inquiry.relaxed)
    if not search.proven:
        _refine(search)


def _is_out_of_time(search: Search) -> bool:
    """True if there is no time for more than greedy's plan, which is then said."""
    limits = search.limits
    if search.left > 0:
        return False
    search.ended = Ended.TIME
    search.failures += [(solver, f"no time left of {limits.seconds:g} s") for solver in limits.solvers[:1]]
    return True


def _refine(search: Search) -> None:
    """Improve the best plan neighbourhood by neighbourhood, in a process that can be killed."""
    limits = search.limits
    if search.problem.slots > 1:
        return
    if search.left <= search.one_check:
        search.ended = Ended.TIME
        return
    budget = limits.budget(search.deadline)
    begun_at, newest = search.best.objective, list[Target]()
    asked = search.best.solver in limits.solvers
    solver = search.best.solver if asked else REFINER

    def listen(message: object) -> None:
        if isinstance(message, Target):
            newest[:] = [message]
        elif isinstance(message, Headroom):
            search.believe("configurations", begun_at + message.points)
        search.tell(REFINER)
        # In between only if there is time for another check at the end.
        spare = budget.deadline - time.monotonic() > 4 * search.one_check
        if newest and not limits.deterministic and spare:
            search.offer(solver, newest.pop(), stage=REFINER)
        if not limits.deterministic and search.proven:
            raise EnoughError

    with search.phase("refine"), suppress(EnoughError):
        arguments = (search.problem, search.running, search.best.target, budget)
        outcome = run_apart(REFINING, arguments, budget.seconds, listen)
        late = outcome.killed or time.monotonic() >= budget.deadline
        rested = Ended.TICKS if limits.deterministic else Ended.EXHAUSTED
        search.ended = Ended.TIME if late or search.ended is Ended.TIME else rested
        if outcome.failure:
            search.failures.append((REFINER, outcome.failure))
    if newest:
        search.offer(solver, newest.pop(), stage=REFINER)
