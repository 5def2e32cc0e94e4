"""Drain nodes: migrate running jobs off nodes that should be drained, or preempt them if that pays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.solvers.heuristics import vacate

if TYPE_CHECKING:
    from gpuplan.solvers.state.ledger import Ledger


def vacate_drained_nodes(ledger: Ledger, *, moving: bool) -> None:
    """Migrate (if `moving`) or else preempt running jobs that earn points by leaving, most points first."""
    incumbents = ledger.problem.incumbents
    asked = [index for index, incumbent in enumerate(incumbents) if incumbent.leave_reward > 0]
    for index in sorted(asked, key=lambda index: (-incumbents[index].leave_reward, index)):
        if not (moving and migrate_incumbent(ledger, index)):
            mark, before = ledger.mark(), ledger.objective
            if not vacate.stop_incumbent(ledger, index) or ledger.objective <= before:
                ledger.rollback(mark)


def migrate_incumbent(ledger: Ledger, index: int) -> bool:
    """Migrate a running job to its first option that pays; False, and nothing changes, if none does."""
    job_class = ledger.problem.incumbents[index].move
    if job_class is None:
        return False
    mark, before = ledger.mark(), ledger.objective
    for option in ledger.problem.classes[job_class].options:
        gone = vacate.vacate_for_move(ledger, index)
        if gone and ledger.place(job_class, option, jobs=1) and ledger.objective > before:
            return True
        ledger.rollback(mark)
    return False
