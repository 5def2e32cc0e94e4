"""Advancing: who is booked for later starts earlier after all where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.solvers.ledger import Ledger


def advance(ledger: Ledger) -> None:
    """
    Start now, or book for an earlier slot, whoever can be; the first to start goes first.

    Jobs of a class stand for each other, so a class is given up in a slot as soon as one of its jobs fails.
    """
    problem = ledger.problem
    hopeless: set[tuple[int, int]] = set()
    """(class, slot) without room; there will be none, as whoever is advanced then frees later slots only."""
    order = sorted(ledger.booked, key=lambda number: (ledger.booked[number].slot, number))
    for number in order:
        booked = ledger.booked[number]
        job_class = problem.classes[booked.job_class]
        if job_class.co_start is not None or job_class.needed or booked.job_class in ledger.awaited:
            continue
        for slot in range(job_class.earliest, booked.slot):
            if (booked.job_class, slot) in hopeless:
                continue
            mark, before = ledger.mark(), ledger.objective
            ledger.unbook(number)
            if _placed(ledger, booked.job_class, slot) and ledger.objective >= before:
                break
            ledger.rollback(mark)
            hopeless.add((booked.job_class, slot))


def _placed(ledger: Ledger, index: int, slot: int) -> bool:
    options = ledger.problem.classes[index].options
    if slot == 0:
        return any(ledger.place(index, option, jobs=1) for option in options)
    return any(
        option.later[slot] is not None and ledger.book(index, position, slot) is not None
        for position, option in enumerate(options)
    )
