"""Rebooking: many later starts put on nodes in one order after the other, the best of which counts."""

from __future__ import annotations

import time
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.solvers.deadline import is_late

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.solvers.state.ledger import Ledger

Wanted: TypeAlias = tuple[int, int, int]
"""(class, position of the option, slot) of one job."""
Later: TypeAlias = tuple[int, int, int, int]
"""The same with a number of jobs, as in `Aggregate.later`."""

_ROUNDS: Final = 5

_JUMP: Final = 30
"""Places in the order by which a job gets ahead that came too late."""

_WHOLE_NODE: Final = 8
"""GPUs of a replica that needs a node of the usual size for itself."""


def book_gangs(ledger: Ledger, later: Iterable[Later]) -> None:
    """
    Book gangs that need one domain, where one comes free for them in their slot as things are.

    Before others take a node of it.
    """
    for index, position, slot, jobs in sorted(later, key=itemgetter(2)):
        if held(ledger, index) is None and ledger.problem.classes[index].needs_one_domain:
            for _ in range(jobs):
                ledger.book(index, position, slot)


def book_later(ledger: Ledger, later: Iterable[Later], *, deadline: float | None = None) -> tuple[int, int]:
    """Book all that are not booked yet and bring held ones forward: see `book_all` for what is returned."""
    wanted = list[Wanted]()
    ahead = Counter(each.job_class for each in ledger.booked.values())
    for index, position, slot, jobs in later:
        if (number := held(ledger, index)) is not None:
            _bring_forward(ledger, number, position, slot)
        else:
            done = min(jobs, ahead[index])
            ahead[index] -= done
            wanted += [(index, position, slot)] * min(jobs - done, ledger.jobs_left(index, now=False))
    return book_all(ledger, wanted, deadline=deadline)


def held(ledger: Ledger, index: int) -> int | None:
    """The number of the booking that is held for the one job of a class; None if there is none."""
    if not ledger.problem.classes[index].firm:
        return None
    return next((number for number, each in ledger.booked.items() if each.job_class == index), None)


def _bring_forward(ledger: Ledger, number: int, position: int, slot: int) -> None:
    """Start a job earlier than it is held for, if that is possible."""
    booked = ledger.booked[number]
    mark = ledger.mark()
    if slot < booked.slot:
        ledger.unbook(number)
        if ledger.book(booked.job_class, position, slot) is None:
            ledger.rollback(mark)


def book_all(ledger: Ledger, wanted: list[Wanted], *, deadline: float | None = None) -> tuple[int, int]:
    """
    Book each job in its slot or the first one after it with room; how many came too late, and not at all.

    Whoever came too late goes earlier in the next round (squeaky wheel optimization: Joslin & Clements,
    Journal of Artificial Intelligence Research 10, 1999). No job is booked after the deadline (an instant of
    `time.monotonic`), and no round is begun that would not be over by then.
    """
    order, began = sorted(wanted, key=lambda each: _first(ledger, each)), time.monotonic()
    mark, best, late = ledger.mark(), order, _book(ledger, order, deadline)
    most, took = ledger.objective, time.monotonic() - began
    for _ in range(_ROUNDS - 1):
        # What was best at first may have to be booked again.
        if not late or is_late(deadline and deadline - 2 * took):
            break
        ledger.rollback(mark)
        places = sorted(
            range(len(order)), key=lambda place: (place - _JUMP if place in late else place, place)
        )
        order = [order[place] for place in places]
        late = _book(ledger, order, deadline)
        if ledger.objective > most:
            most, best = ledger.objective, order
    if ledger.objective < most:
        ledger.rollback(mark)
        late = _book(ledger, best, None)
    return len(late), sum(slot == ledger.problem.slots for slot in late.values())


def _book(ledger: Ledger, order: list[Wanted], deadline: float | None) -> dict[int, int]:
    """Book jobs in turn: place in the order of those that came too late, with their slots; H for none."""
    slots, late = ledger.problem.slots, dict[int, int]()
    hopeless: set[Wanted] = set()
    for place, (index, position, slot) in enumerate(order):
        if is_late(deadline):
            late |= dict.fromkeys(range(place, len(order)), slots)
            break
        when = slot
        while when < slots and (
            (index, position, when) in hopeless or ledger.book(index, position, when) is None
        ):
            hopeless.add((index, position, when))
            when += 1
        if when > slot:
            late[place] = when
    return late


def _first(ledger: Ledger, wanted: Wanted) -> tuple[object, ...]:
    """Gangs that need one domain, then whole nodes, then slot by slot those that bring most."""
    index, position, slot = wanted
    job_class = ledger.problem.classes[index]
    points = job_class.options[position].later[slot] or 0
    return not job_class.needs_one_domain, job_class.shape.gpus < _WHOLE_NODE, slot, -points, wanted
