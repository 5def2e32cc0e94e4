"""
Holding: promises are kept before anything else is decided.

Jobs that were promised a start are booked first, the earliest promise in front, then those that starve. What
is booked is firm: every other decision has to leave these places free.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from planner.models.cluster import MigInstance
from planner.models.problem import Booking, Hold
from planner.solvers import booking, parties
from planner.solvers.ledger import Ledger
from planner.solvers.site import Site, sites_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.models.problem import JobClass, Problem, Promised
    from planner.solvers.parties import Party


def hold(problem: Problem) -> Problem:
    """
    The problem with a booking for every job that was promised a start, or starves, wherever one is possible.

    A promised job that is due starts now: on its places, or else elsewhere, or else as early as it can. One that
    is not due yet is booked for the last slot it was promised: on its places, or else elsewhere then or before,
    or else after it, which is a slip. One that waits for jobs without a booking gets none here: it is planned
    with the others. Companions that start together are booked together, or not at all.
    """
    if not any(job_class.firm for job_class in problem.classes):
        return problem
    ledger = Ledger(problem)
    party_of = parties.party_of(problem)
    left = sorted(
        (index for index, job_class in enumerate(problem.classes) if job_class.firm),
        key=lambda index: _urgency(problem.classes[index]),
    )
    while left:
        # Whoever waits for another firm job comes after it, whatever their names.
        again = []
        for index in left:
            party = party_of.get(index, (index,))
            if any(not ledger.jobs_left(each, now=False) for each in party):
                continue
            if any(ledger.ready(each) is None for each in party):
                again.append(index)
                continue
            _hold_party(ledger, party, index)
        if len(again) == len(left):
            break
        left = again
    return replace(problem, bookings=tuple(_bookings(ledger)))


def start_firm(ledger: Ledger) -> None:
    """Start the jobs whose bookings say now, on a ledger with which nothing was done yet."""
    for firm in ledger.problem.bookings:
        if firm.slot == 0:
            sites = [site for hold in firm.holds if (site := Site.of(hold)) is not None]
            _start_at(ledger, firm.job_class, firm.option, tuple(sites))


def _urgency(job_class: JobClass) -> tuple[int, int, str]:
    if job_class.promise is not None:
        return 0, job_class.promise.start, job_class.jobs[0]
    return 1, job_class.starving or 0, job_class.jobs[0]


def _hold_party(ledger: Ledger, party: Party, index: int) -> None:
    """Take the first of the ways in which all of a party can start; none may be left."""
    for way in _ways(ledger, party, ledger.problem.classes[index].promise):
        mark = ledger.mark()
        if way():
            return
        ledger.rollback(mark)


def _ways(ledger: Ledger, party: Party, promise: Promised | None) -> Iterator[Callable[[], bool]]:
    last = ledger.problem.slots - 1
    if promise is not None:
        held = 0 if promise.start == 0 else min(promise.latest, last)
        yield partial(_all_on_their_places, ledger, party, held)
    yield partial(parties.start, ledger, party)
    for slot in range(1, last + 1):
        yield partial(_books, ledger, party, slot)


def _books(ledger: Ledger, party: Party, slot: int) -> bool:
    return parties.book(ledger, party, slot) is not None


def _all_on_their_places(ledger: Ledger, party: Party, slot: int) -> bool:
    """Start or book every class of a party on the places it was promised; False if one of them cannot."""
    return all(_on_its_places(ledger, index, slot) for index in party)


def _on_its_places(ledger: Ledger, index: int, slot: int) -> bool:
    job_class = ledger.problem.classes[index]
    promise = job_class.promise
    if promise is None or not promise.holds:
        return False
    sites = sites_of(job_class.shape, promise.holds)
    if slot == 0:
        return _start_at(ledger, index, promise.option, sites)
    return booking.book_at(ledger, index, promise.option, slot, sites) is not None


def _start_at(ledger: Ledger, index: int, position: int, sites: tuple[Site, ...]) -> bool:
    """Start one job on sites; where these have no indices of whole GPUs, on any of the node."""
    job_class = ledger.problem.classes[index]
    option = job_class.options[position]
    mark, taken = ledger.mark(), list[Site]()
    possible = job_class.startable and len(sites) >= job_class.minimum and ledger.jobs_left(index) > 0
    for site in sites if possible else ():
        there = ledger.within(option, np.array([site.node], dtype=np.int64))
        if not len(there) or not ledger.room(index, there, 1)[0]:
            break
        if not site.gpus and not site.slices:
            taken.append(ledger.take_one(index, site.node))
        elif ledger.may_take(index, site):
            ledger.take_site(index, site)
            taken.append(site)
    kept = len(taken) == len(sites) and booking.keeps_together(ledger, index, tuple(taken))
    if possible and kept and ledger.settle(index, option, taken, jobs=1):
        return True
    ledger.rollback(mark)
    return False


def _bookings(ledger: Ledger) -> Iterator[Booking]:
    """What a ledger came to, those that start now in front."""
    classes = ledger.problem.classes
    for _, placed in sorted(ledger.placed.items()):
        position = classes[placed.job_class].options.index(placed.option)
        yield Booking(placed.job_class, position, 0, tuple(_hold(site) for site in placed.sites))
    for _, booked in sorted(ledger.booked.items()):
        holds = tuple(_hold(site) for site in booked.sites)
        yield Booking(booked.job_class, booked.option, booked.slot, holds)


def _hold(site: Site) -> Hold:
    slices = tuple((gpu, MigInstance(profile=profile, start=start)) for gpu, profile, start in site.slices)
    return Hold(site.node, site.gpus, slices)
