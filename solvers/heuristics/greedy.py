"""Greedy: an answer in milliseconds, always."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics.bulk_preemption import trade
from gpuplan.solvers.heuristics.drain import drain
from gpuplan.solvers.heuristics.gang_preplacement import gangs_of, plan_gangs
from gpuplan.solvers.heuristics.greedy_fill import fill, ranking
from gpuplan.solvers.heuristics.list_scheduling import foresee, mend, schedule
from gpuplan.solvers.heuristics.node_scaling import close_idle, open_pools
from gpuplan.solvers.heuristics.preemption import Preemption, preempt, take_back
from gpuplan.solvers.heuristics.promise_reservations import start_firm
from gpuplan.solvers.heuristics.pull_forward import advance
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.migration_cycles import undo_circles

if TYPE_CHECKING:
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.desired_state import Target
    from gpuplan.models.problem.problem import Problem

_FEW: Final = 200
"""Up to so many incumbents jobs are always traded one by one only as well, which takes no time then."""


def greedy(problem: Problem, *, deadline: float | None = None, thorough: bool = False) -> Ledger:
    """
    Plan in one pass: drain, fill, open nodes of pools, preempt, and tidy up after that.

    Where priorities are tiers, that is done for one after the other, the highest first, and of several plans
    the one counts that is best for the highest priority in which they differ.

    Where running jobs may be stopped for waiting ones they are traded in bulk (see `trading`), and also one
    by one only where they are few or the plan is to be `thorough`, as nobody improves on it. Where a job may
    get its place either way, new nodes or preempted jobs may be the cheaper ones: both orders are tried.
    Nobody is moved but from nodes that ought to be drained. With more than one slot, who starts now and who
    later is decided in one pass; once more with gangs that need one domain ahead of all others, where one may
    preempt; with who starts now ahead; and so again, given that who is stopped for them is resumed later.

    After the first no order is begun that would not be done by the deadline (an instant of `time.monotonic`).
    Once it has passed nobody is preempted, no node opened and no later start planned any more; the first
    filling is always finished.
    """
    return _best(problem, deadline, thorough=thorough).ledger


def greedy_by_turns(
    problem: Problem, running: tuple[Placement, ...], *, deadline: float | None = None, thorough: bool = False
) -> dict[int, Target]:
    """
    What greedy has planned after the turn of each priority, without those that are lower.

    It is the plan that greedy makes if jobs of lower priority do not exist.
    """
    done = _best(problem, deadline, thorough=thorough)
    ledger, last = done.ledger, problem.priorities[-1]
    found = {last: ledger.target(running)}
    for priority, mark in reversed(list(zip(problem.priorities[:-1], done.marks, strict=False))):
        ledger.rollback(mark)
        ledger.turn = priority
        if not _tidy(ledger, deadline):
            break
        found[priority] = ledger.target(running)
    ledger.turn = None
    return found


def _best(problem: Problem, deadline: float | None, *, thorough: bool) -> _Done:
    done: list[_Done] = []
    began = time.monotonic()
    for way in ways(problem, thorough=thorough):
        # Another order takes about as long as each before.
        took = (time.monotonic() - began) / max(1, len(done))
        if not done or not is_late(deadline and deadline - took):
            done.append(_plan(problem, way, deadline))
    return max(done, key=lambda plan: plan.points)


def ways(problem: Problem, *, thorough: bool = False) -> list[Way]:
    """The orders that greedy tries."""
    may_open = any(pool.nodes for pool in problem.pools)
    may_preempt = any(each.stop_points is not None or each.shrinkable for each in problem.incumbents)
    orders = (True, False) if may_open and may_preempt else (True,)
    if problem.slots > 1:
        ahead = may_preempt and bool(gangs_of(problem))
        listings = [(True, False), *([(True, True)] if ahead else []), (False, False)]
        found = [
            Way(pools_first=pools_first, listed=listed, gangs_first=gangs_first)
            for listed, gangs_first in listings
            for pools_first in orders
        ]
        may_resume = any(each.resume is not None for each in problem.incumbents)
        return [*found, *([Way(pools_first=True, resuming=True)] if may_resume else [])]
    if not may_preempt:
        return [Way(pools_first=True)]
    alone = orders if thorough or len(problem.incumbents) <= _FEW else orders[:-1]
    return [Way(pools_first=not may_open, trading=True), *(Way(pools_first=each) for each in alone)]


@dataclass(frozen=True)
class Way:
    """In what order things are decided."""

    pools_first: bool
    """New nodes before preemption."""
    listed: bool = False
    """Later starts along with those of now."""
    gangs_first: bool = False
    """Before that, gangs that need one domain."""
    trading: bool = False
    """Running jobs give way in bulk before anybody starts."""
    resuming: bool = False
    """Who may be preempted is decided by what is lost if it starts again at its best."""
    moving: bool = True


@dataclass(frozen=True)
class _Done:
    """A plan made in one way."""

    ledger: Ledger
    points: tuple[int, ...]
    """Of the plan after each priority's turn, and in the end."""
    marks: tuple[int, ...]
    """Of the ledger after each priority's turn."""


def _plan(problem: Problem, way: Way, deadline: float | None) -> _Done:
    ledger = Ledger(problem)
    start_firm(ledger)
    drain(ledger, moving=way.moving)
    points, marks = [], []
    for ledger.turn in problem.priorities or (None,):
        _serve(ledger, way, deadline)
        points.append(ledger.objective)
        marks.append(ledger.mark())
    ledger.turn = None
    if not _tidy(ledger, deadline):
        return _plan(problem, replace(way, moving=False), deadline)
    return _Done(ledger, (*points[:-1], ledger.objective), tuple(marks))


def _tidy(ledger: Ledger, deadline: float | None) -> bool:
    """End a plan; False if jobs would have to move in a circle."""
    if not undo_circles(ledger):
        return False
    mend(ledger)
    foresee(ledger, deadline=deadline)
    close_idle(ledger)
    return True


def _serve(ledger: Ledger, way: Way, deadline: float | None) -> None:
    """Start whoever's turn it is."""
    problem = ledger.problem
    if problem.bookings:
        advance(ledger, deadline=deadline)
    if way.gangs_first:
        plan_gangs(ledger, deadline=deadline)
    if way.listed:
        schedule(ledger, deadline=deadline)
    elif way.trading and not is_late(deadline):
        trade(ledger, deadline=deadline)
    else:
        fill(ledger)
    if way.pools_first and not is_late(deadline):
        open_pools(ledger)
    if problem.incumbents and not way.trading and not is_late(deadline):
        preemption = Preemption(ledger, hopeful=way.resuming)
        preempted = preempt(ledger, ranking(problem), preemption, deadline=deadline)
        if preempted or way.gangs_first:
            take_back(ledger)
            fill(ledger)
    if not way.pools_first and not is_late(deadline):
        open_pools(ledger)
        take_back(ledger)
    if way.resuming:
        schedule(ledger, deadline=deadline)
