"""
Exchange starts for jobs that a guarantee is owed to and that a quota keeps out.

Greedy starts jobs by their points per GPU. So a quota above several queues may be used up by a queue that is
owed nothing, or less, before the turn of one that is. The price of a quota shows only in such an exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.preemption import PreemptionSearch
from gpuplan.solvers.state.disruption_state import DisruptionKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.solvers.state.constraints.quota import QuotaDemand
    from gpuplan.solvers.state.ledger import Ledger


def exchange_for_guarantees(ledger: Ledger, *, deadline: float | None = None) -> bool:
    """
    Start jobs that a guarantee is owed to in place of other starts that use up their quota, where that pays.

    The others have no higher priority. Then fill what is free; True if anything changed.
    """
    preemption: PreemptionSearch | None = None  # looks at all running jobs, and is seldom needed
    changed, hopeless = False, set[int]()
    for index in ledger.problem.placement_order:
        queue = ledger.problem.classes[index].queue
        if queue in hopeless or not _is_owed(ledger, index) or not _is_kept_out(ledger, index):
            continue
        preemption = preemption or PreemptionSearch(ledger)
        while queue not in hopeless and not is_late(deadline) and _is_owed(ledger, index):
            if not _exchange(ledger, preemption, index):
                # Jobs of the same queue meet the same quotas, and are worth less.
                hopeless.add(queue)
            changed |= queue not in hopeless
    changed |= _restore_stopped(ledger, deadline)
    if changed:
        vacate.restore_preempted(ledger)
        fill_free_capacity(ledger)
    return changed


def _restore_stopped(ledger: Ledger, deadline: float | None) -> bool:
    """Restore preempted jobs in place of starts of this turn that use up their quota, where that pays."""
    problem, quota, restored = ledger.problem, ledger.queues.quota, False
    for index in ledger.disruptions.having(DisruptionKind.STOP):
        one = problem.incumbents[index]
        if is_late(deadline):
            break
        mark, before, amounts = ledger.undo.mark(), ledger.objective, one.shape.quota.times(len(one.holds))
        removed = 0
        while found := next(quota.exceeded_limits(one.queue, one.gpu_model, amounts), None):
            number = None
            back = [(one.queue, one.gpu_model, one.quota_milli)]
            pays = before - ledger.objective < ledger.disruptions.loss(index) + quota.points_of(back)
            if pays and removed < ledger.params.greedy.exchanges:
                number = _cheapest(ledger, ledger.current_priority, found)
            if number is None:
                break
            ledger.remove(number)
            removed += 1
        # Without quota in the way its return was tried before.
        paid = removed > 0 and found is None and vacate.restore_by_eviction(ledger, index)
        if paid and ledger.objective > before:
            restored = True
        else:
            ledger.undo.rollback(mark)
    return restored


def _is_owed(ledger: Ledger, index: int) -> bool:
    """True if a job of a class may start, and would help to meet a guarantee."""
    job_class = ledger.problem.classes[index]
    if not job_class.starts_alone or not job_class.shape.quota_milli or not ledger.jobs_left(index):
        return False
    return any(ledger.queues.quota.owed(job_class.queue, each.gpu_model) for each in job_class.options)


def _is_kept_out(ledger: Ledger, index: int) -> bool:
    """True if a quota keeps a class out on some option; if none does, a start was tried before."""
    job_class = ledger.problem.classes[index]
    return any(_blocked(ledger, job_class, option) is not None for option in job_class.options)


def _exchange(ledger: Ledger, preemption: PreemptionSearch, index: int) -> bool:
    """Start one job of a class in place of others that its quota counts; False if that does not pay."""
    job_class = ledger.problem.classes[index]
    for option in job_class.options:
        mark, before, most = ledger.undo.mark(), ledger.objective, ledger.params.greedy.exchanges
        removed = 0
        while removed < most and (blocked := _blocked(ledger, job_class, option)) is not None:
            number = _cheapest(ledger, job_class.priority, blocked, but=job_class)
            if number is None:
                break
            ledger.remove(number)
            removed += 1
        # A job that no quota keeps out was tried before.
        started = removed > 0 and (
            placement.place(ledger, index, option, jobs=1) > 0 or preemption.make_room(index)
        )
        if started and ledger.objective > before:
            return True
        ledger.undo.rollback(mark)
    return False


def _blocked(ledger: Ledger, job_class: JobClass, option: Option) -> QuotaDemand | None:
    return ledger.queues.exceeded_limit(job_class, option, job_class.minimum)


def _cheapest(
    ledger: Ledger, priority: int | None, obstacle: QuotaDemand, but: JobClass | None = None
) -> int | None:
    """The start that costs least for each unit of quota that it gives back; None without one."""
    quota, least, cheapest = ledger.queues.quota, np.inf, None
    for own, number, freed in sorted(_removable(ledger, priority, obstacle, but)):
        if own >= least:
            break
        placed = ledger.placed[number]
        job_class = ledger.problem.classes[placed.job_class]
        milli = job_class.shape.quota_milli * len(placed.sites)
        lost = own - quota.points_of([(job_class.queue, placed.option.gpu_model, -milli)]) / freed
        if lost < least:
            least, cheapest = lost, number
    return cheapest


def _removable(
    ledger: Ledger, priority: int | None, obstacle: QuotaDemand, but: JobClass | None
) -> Iterator[tuple[float, int, int]]:
    """
    (points for each unit of quota that it gives back, number, units) of starts that may be taken back.

    These are of no higher priority. The points leave guarantees out, which can only miss more.
    """
    classes = ledger.problem.classes
    for number, placed in ledger.placed.items():
        other = classes[placed.job_class]
        free = other.starts_alone and not other.firm and (priority is None or other.priority <= priority)
        if free and other is not but:
            amount = other.shape.quota_on(placed.option.gpu_model, obstacle.budget.resource)
            if freed := obstacle.relief(other.queue, amount * len(placed.sites)):
                yield ledger.worth(placed) / freed, number, freed
