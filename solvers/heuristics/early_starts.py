"""Jobs that started before the turn of their priority, since a guarantee of their queue needed them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole

if TYPE_CHECKING:
    from gpuplan.solvers.state.ledger import Ledger


def withdraw_early_starts(ledger: Ledger) -> int:
    """
    Withdraw early starts that no guarantee needs any more, lowest priority first; returns their number.

    A job of higher priority may have come to the same queue since, by preemption or on a new node. The
    guarantee is met without the early start then, and its place belongs to jobs of higher priority.
    """
    problem, turn = ledger.problem, ledger.current_priority
    if turn is None or not problem.guarantees:
        return 0
    early = [
        number
        for number, placed in ledger.placed.items()
        if problem.classes[placed.job_class].role is ClassRole.START
        and problem.classes[placed.job_class].priority < turn
    ]
    withdrawn = 0
    for number in sorted(early, key=lambda each: problem.classes[ledger.placed[each].job_class].priority):
        mark, placed = ledger.mark(), ledger.placed[number]
        ledger.remove(number)
        if ledger.quota.owed(problem.classes[placed.job_class].queue, placed.option.gpu_model):
            ledger.rollback(mark)
        else:
            withdrawn += 1
    return withdrawn
