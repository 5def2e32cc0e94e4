"""Pull jobs with a future start forward to the earliest slot that has room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.solvers.deadline import is_late

if TYPE_CHECKING:
    from gpuplan.solvers.state.ledger import Ledger


def pull_starts_forward(ledger: Ledger, *, deadline: float | None = None) -> None:
    """
    Start each reserved job now or in an earlier slot if possible, until the deadline; earliest start first.

    Jobs of a class are equivalent, so a class is given up in a slot as soon as one of its jobs fails.
    """
    if not ledger.params.greedy.pull_forward:
        return
    problem = ledger.problem
    hopeless: set[tuple[int, int]] = set()
    """(class, slot) without room; there will be none, as jobs pulled forward free later slots only."""
    order = sorted(ledger.booked, key=lambda number: (ledger.booked[number].slot, number))
    for number in order:
        if is_late(deadline):
            return
        booked = ledger.booked[number]
        job_class = problem.classes[booked.job_class]
        if ledger.current_priority is not None and job_class.priority < ledger.current_priority:
            continue
        if job_class.co_start is not None or job_class.needed or booked.job_class in ledger.awaited:
            continue
        for slot in range(job_class.earliest, booked.slot):
            if (booked.job_class, slot) in hopeless:
                continue
            if _move_to_slot(ledger, number, slot):
                break
            hopeless.add((booked.job_class, slot))


def _move_to_slot(ledger: Ledger, number: int, slot: int) -> bool:
    """Move a reservation to an earlier slot on the first option on which that costs nothing."""
    index = ledger.booked[number].job_class
    mark, before = ledger.mark(), ledger.objective
    for position, option in enumerate(ledger.problem.classes[index].options):
        ledger.cancel_reservation(number)
        placed = (
            ledger.place(index, option, jobs=1) > 0
            if slot == 0
            else option.later[slot] is not None and ledger.reserve_start(index, position, slot) is not None
        )
        if placed and ledger.objective >= before:
            return True
        ledger.rollback(mark)
    return False
