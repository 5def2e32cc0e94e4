"""Reserve the later starts of an answer on nodes."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import future_reservations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.solvers.state.ledger import Ledger

StartRequest: TypeAlias = tuple[int, int, int]
"""(class, position of the option, slot) of one job."""
StartRequests: TypeAlias = tuple[int, int, int, int]
"""As `StartRequest`, with a number of jobs, as in `Aggregate.later`."""


def reserve_gang_starts(ledger: Ledger, later: Iterable[StartRequests]) -> None:
    """
    Reserve the start of gangs that need one domain, where one is free for them in their slot.

    It runs before other jobs take nodes of the domain.
    """
    for index, position, slot, jobs in sorted(later, key=itemgetter(2)):
        if firm_reservation_of(ledger, index) is None and ledger.problem.classes[index].needs_one_domain:
            for _ in range(jobs):
                future_reservations.reserve_start(ledger, index, position, slot)


def reserve_later_starts(
    ledger: Ledger, later: Iterable[StartRequests], *, deadline: float | None = None
) -> tuple[int, int]:
    """Reserve all remaining starts and pull held ones forward; returns as `reserve_all_starts`."""
    wanted = list[StartRequest]()
    ahead = Counter(each.job_class for each in ledger.reserved.values())
    for index, position, slot, jobs in later:
        if (number := firm_reservation_of(ledger, index)) is not None:
            _reserve_earlier(ledger, number, position, slot)
        else:
            done = min(jobs, ahead[index])
            ahead[index] -= done
            wanted += [(index, position, slot)] * min(jobs - done, ledger.jobs_left(index, now=False))
    return reserve_all_starts(ledger, wanted, deadline=deadline)


def firm_reservation_of(ledger: Ledger, index: int) -> int | None:
    """Number of the reservation held for the one job of a firm class; None if there is none."""
    if not ledger.problem.classes[index].firm:
        return None
    return next((number for number, each in ledger.reserved.items() if each.job_class == index), None)


def _reserve_earlier(ledger: Ledger, number: int, position: int, slot: int) -> None:
    """Start a job earlier than it is reserved for, if possible."""
    reserved = ledger.reserved[number]
    mark = ledger.undo.mark()
    if slot < reserved.slot:
        ledger.cancel_reservation(number)
        if future_reservations.reserve_start(ledger, reserved.job_class, position, slot) is None:
            ledger.undo.rollback(mark)


def reserve_all_starts(
    ledger: Ledger, wanted: list[StartRequest], *, deadline: float | None = None
) -> tuple[int, int]:
    """
    Reserve each job in its slot or the first later one with room; returns (all late jobs, jobs without a
    slot).

    No job is reserved after the deadline (an instant of `time.monotonic`).
    """
    slots, late, missed = ledger.problem.slots, 0, 0
    # Room only shrinks while starts are reserved: equal jobs do not try again where one found none.
    hopeless: set[StartRequest] = set()
    for place, (index, position, slot) in enumerate(
        sorted(wanted, key=lambda each: _reservation_order(ledger, each))
    ):
        if is_late(deadline):
            left = len(wanted) - place
            return late + left, missed + left
        when = slot
        while when < slots and (
            (index, position, when) in hopeless
            or future_reservations.reserve_start(ledger, index, position, when) is None
        ):
            hopeless.add((index, position, when))
            when += 1
        late += when > slot
        missed += when == slots
    return late, missed


def _reservation_order(ledger: Ledger, wanted: StartRequest) -> tuple[object, ...]:
    """Sort key: gangs that need one domain, then whole nodes, then slot by slot the most points."""
    index, position, slot = wanted
    job_class = ledger.problem.classes[index]
    points = job_class.options[position].later[slot] or 0
    small = job_class.shape.gpus < ledger.params.rounding.whole_node_gpus
    return not job_class.needs_one_domain, small, slot, -points, wanted
