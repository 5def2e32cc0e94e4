"""
Migration cycles: a plan that migrates jobs in a cycle cannot be applied step by step.

A preempted or shrunk job frees its places at once. A migration waits until all that it takes is free; its own
old places count as free for itself.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.state.assignment import NOW, ReplicaSite
from gpuplan.solvers.state.disruption_state import DisruptionKind
from gpuplan.solvers.state.feasibility import Feasibility
from gpuplan.solvers.state.undo_log import UndoLog

if TYPE_CHECKING:
    from gpuplan.solvers.state.assignment import JobAssignment
    from gpuplan.solvers.state.constraints.constraint import Constraint
    from gpuplan.solvers.state.ledger import Ledger


def break_migration_cycles(ledger: Ledger) -> bool:
    """Restore jobs that can never migrate, removing new jobs on their places; False if that fails."""
    while stuck := deadlocked_moves(ledger):
        for number in stuck.values():
            ledger.remove(number)
        for index in sorted(stuck):
            if not vacate.restore_by_eviction(ledger, index):
                return False
    return True


def deadlocked_moves(ledger: Ledger) -> dict[int, int]:
    """Running jobs that can never migrate, with the numbers of their new placements."""
    problem = ledger.problem
    pending: dict[int, int] = {}
    for number, placed in sorted(ledger.placed.items()):
        job_class = problem.classes[placed.job_class]
        if job_class.role is ClassRole.MOVE and job_class.incumbent is not None:
            pending[job_class.incumbent] = number
    if not pending:
        return {}
    after = _constraints_after_stops(ledger)
    moved = True
    while moved and pending:
        moved = False
        for index, number in list(pending.items()):
            if _try_move(after, ledger, index, ledger.placed[number]):
                del pending[index]
                moved = True
    return pending


def _constraints_after_stops(ledger: Ledger) -> tuple[Constraint, ...]:
    """What is free once all preempted and shrunk jobs have left, and no others."""
    problem = ledger.problem
    free = Feasibility(problem, ledger.params)
    for node in ledger.pools.opened:
        free.capacity.set_usable(node, usable=True)
    for index in ledger.disruptions.having(DisruptionKind.STOP, DisruptionKind.SHRINK):
        disruption, incumbent = ledger.disruptions[index], problem.incumbents[index]
        for position in disruption.given_up if disruption is not None else ():
            if (site := ReplicaSite.of(incumbent.holds[position])) is not None:
                for each in free.constraints:
                    each.leave(index, site, 1)
    return free.constraints


def _try_move(after: tuple[Constraint, ...], ledger: Ledger, index: int, placed: JobAssignment) -> bool:
    """Migrate a job if all that it takes is free; False, and nothing changes, if not."""
    holds = ledger.problem.incumbents[index].holds
    old = [site for hold in holds if (site := ReplicaSite.of(hold)) is not None]
    undo = UndoLog()
    for each, site in product(after, old):
        undo.step(each.leave, (index, site, 1), (index, site, -1))
    for site in placed.sites:
        if not all(each.fits(placed.job_class, site, NOW) for each in after):
            undo.rollback(0)
            return False
        for each in after:
            there = placed.job_class, site, NOW
            undo.step(each.take, (*there, 1), (*there, -1))
    return True
