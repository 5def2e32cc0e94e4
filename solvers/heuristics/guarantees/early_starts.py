"""
Starts before the turn of their priority, for a guarantee: withdraw what it needs no more, and keep the order.

Guarantees come before all priorities, but among jobs that serve them as well the higher priority comes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.heuristics import placement
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.solvers.state.ledger import Ledger


def settle_early_starts(ledger: Ledger, early: set[int]) -> None:
    """
    At the end of a turn, withdraw or exchange starts made before their turn, and fill what is free then.

    `early` collects their numbers over all turns: a later start may meet the same guarantee.
    """
    if ledger.current_priority is None or not ledger.problem.guarantees:
        return
    if _withdraw_early_starts(ledger):
        fill_free_capacity(ledger)
        # Of several models of GPU, the fill may choose one that does not count for the guarantee.
        _withdraw_early_starts(ledger)
    early.update(_early_starts(ledger))
    start_higher_priorities(ledger, early & ledger.placed.keys())
    early.update(_early_starts(ledger))


def _early_starts(ledger: Ledger) -> list[int]:
    """Numbers of the starts of lower priority than that of the turn, without those that are promised."""
    classes, turn = ledger.problem.classes, ledger.current_priority
    return [
        number
        for number, placed in ledger.placed.items()
        if classes[placed.job_class].role is ClassRole.START
        and not classes[placed.job_class].firm
        and turn is not None
        and classes[placed.job_class].priority < turn
    ]


def _withdraw_early_starts(ledger: Ledger) -> int:
    """
    Withdraw starts made before their turn for a guarantee that needs them no more; returns their number.

    A job of higher priority may have come to the same queue since, by preemption or on a new node. The
    guarantee is met without the early start then, and its place belongs to jobs of higher priority.
    """
    classes, withdrawn = ledger.problem.classes, 0
    for number in sorted(
        _early_starts(ledger), key=lambda each: classes[ledger.placed[each].job_class].priority
    ):
        placed = ledger.placed[number]
        job_class = classes[placed.job_class]
        milli = job_class.shape.quota_milli * len(placed.sites)
        if not ledger.queues.quota.owed(job_class.queue, placed.option.gpu_model, less=milli):
            ledger.remove(number)
            withdrawn += 1
    return withdrawn


def start_higher_priorities(ledger: Ledger, numbers: Iterable[int]) -> bool:
    """
    Start waiting jobs in place of starts of lower priority among `numbers` where no guarantee loses by it.

    Then fill what is free; True if anything changed. At most `GreedyParams.order_tries` starts are tried.
    """
    classes, tries, changed = ledger.problem.classes, ledger.params.greedy.order_tries, False
    if len(ledger.problem.priorities) < 2:
        return False
    waiting = [
        index
        for index in ledger.problem.placement_order
        if classes[index].starts_alone and ledger.jobs_left(index)
    ]
    by_priority = sorted(numbers, key=lambda each: classes[ledger.placed[each].job_class].priority)
    for number in by_priority if waiting else ():
        if tries <= 0:
            break
        placed = ledger.placed[number]
        lower, before, mark = classes[placed.job_class], ledger.queues.points, ledger.undo.mark()
        higher = [i for i in waiting if classes[i].priority > lower.priority and ledger.jobs_left(i)]
        if not higher or not lower.starts_alone or lower.firm:
            continue
        least = ledger.objective - ledger.worth(placed)
        ledger.remove(number)
        after = ledger.undo.mark()
        for index in higher[:tries]:
            tries -= 1
            options = classes[index].options
            started = any(placement.place(ledger, index, option, jobs=1) for option in options)
            if started and ledger.queues.points >= before and ledger.objective > least:
                changed = True
                break
            ledger.undo.rollback(after)
        else:
            ledger.undo.rollback(mark)
    if changed:
        fill_free_capacity(ledger)
    return changed
