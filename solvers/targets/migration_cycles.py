"""
Migration cycles: a plan that migrates jobs in a cycle cannot be applied step by step.

A preempted or shrunk job frees its places at once. A migration waits until all that it takes is free; its own
old places count as free for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.heuristics import vacate
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.constraints.capacity import NodeCapacities
from gpuplan.solvers.state.disruption_state import DisruptionKind

if TYPE_CHECKING:
    from gpuplan.models.problem.jobs import Incumbent
    from gpuplan.solvers.state.assignment import JobAssignment
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
    free = _capacity_after_stops(ledger)
    moved = True
    while moved and pending:
        moved = False
        for index, number in list(pending.items()):
            if _try_move(free, problem.incumbents[index], ledger.placed[number]):
                del pending[index]
                moved = True
    return pending


def _capacity_after_stops(ledger: Ledger) -> NodeCapacities:
    """Free capacity once all preempted and shrunk jobs have left, and no others."""
    free = NodeCapacities(ledger.problem)
    for node in ledger.pools.opened:
        free.set_usable(node, usable=True)
    for index in ledger.disruptions.having(DisruptionKind.STOP, DisruptionKind.SHRINK):
        disruption, incumbent = ledger.disruptions[index], ledger.problem.incumbents[index]
        for position in disruption.given_up if disruption is not None else ():
            if (site := ReplicaSite.of(incumbent.holds[position])) is not None:
                free.charge(incumbent.shape, site, -1)
    return free


def _try_move(free: NodeCapacities, incumbent: Incumbent, placed: JobAssignment) -> bool:
    """Migrate a job if all that it takes is free; False, and nothing changes, if not."""
    old = [site for hold in incumbent.holds if (site := ReplicaSite.of(hold)) is not None]
    for site in old:
        free.charge(incumbent.shape, site, -1)
    taken: list[ReplicaSite] = []
    for site in placed.sites:
        if not free.fits(incumbent.shape, site):
            break
        free.charge(incumbent.shape, site, 1)
        taken.append(site)
    else:
        return True
    for site in taken:
        free.charge(incumbent.shape, site, -1)
    for site in old:
        free.charge(incumbent.shape, site, 1)
    return False
