"""Greedy: an answer in milliseconds, always."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solvers.carrying_out import undo_circles
from planner.solvers.draining import drain
from planner.solvers.eviction import preempt, take_back
from planner.solvers.filling import fill, ranking
from planner.solvers.ledger import Ledger
from planner.solvers.scaling import close_idle, open_pools

if TYPE_CHECKING:
    from planner.models.problem import Problem


def greedy(problem: Problem) -> Ledger:
    """
    Plan in one pass: drain, fill, open nodes of pools, preempt, and tidy up after that.

    Where a job may get its place either way, new nodes or preempted jobs may be the cheaper ones: both orders
    are tried. Nobody is moved but from nodes that ought to be drained.
    """
    ledger = _plan(problem, pools_first=True)
    may_open = any(pool.nodes for pool in problem.pools)
    may_preempt = any(each.stop_points is not None or each.shrinkable for each in problem.incumbents)
    if may_open and may_preempt:
        ledger = max(ledger, _plan(problem, pools_first=False), key=lambda plan: plan.objective)
    return ledger


def _plan(problem: Problem, *, pools_first: bool, moving: bool = True) -> Ledger:
    ledger = Ledger(problem)
    drain(ledger, moving=moving)
    fill(ledger)
    if pools_first:
        open_pools(ledger)
    if problem.incumbents and preempt(ledger, ranking(problem)):
        take_back(ledger)
        fill(ledger)
    if not pools_first:
        open_pools(ledger)
        take_back(ledger)
    if not undo_circles(ledger):
        return _plan(problem, pools_first=pools_first, moving=False)
    close_idle(ledger)
    return ledger
