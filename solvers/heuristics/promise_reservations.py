"""
Reserve places for promised starts before anything else is decided.

Jobs with a promised start come first, the earliest promise first, then starving jobs. These reservations are
firm: every other decision leaves their places free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.cluster import MigInstance
from gpuplan.models.problem.jobs import FirmReservation, HeldResources
from gpuplan.solvers.heuristics import coscheduled_groups
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.assignment import (
    FutureAssignment,
    ReplicaSite,
    firm_assignment,
    sites_to_reserve,
)
from gpuplan.solvers.state.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.heuristics.coscheduled_groups import CoStartGroup


def reserve_promised_starts(problem: Problem, params: PlacementParams = PlacementParams()) -> Problem:
    """
    The problem with a firm reservation for every job with a promised start, or starving, where possible.

    First every job that still can gets its own places: now if its promise is due, otherwise in the last slot
    that the promise allows. Then the other jobs get other places: now, or in the first slot in which they
    fit, even after the promised one. So a job that lost its places takes none from a job that did not. A job
    that waits for jobs without a reservation gets none here: it is planned with the others. Jobs that start
    together are reserved together, or not at all.
    """
    if not any(job_class.firm for job_class in problem.classes):
        return problem
    ledger = Ledger(problem, params)
    firm = sorted(
        (index for index, job_class in enumerate(problem.classes) if job_class.firm),
        key=lambda index: _urgency(problem.classes[index]),
    )
    # Jobs that were promised a GPU by its index go before jobs that can use any GPU of the node.
    _reserve_all(
        ledger,
        sorted(firm, key=lambda index: _takes_any_gpu(problem.classes[index])),
        _start_at_promised_sites,
    )
    _reserve_all(ledger, firm, _start_anywhere)
    return replace(problem, firm_reservations=tuple(_firm_reservations(ledger)))


def start_firm_reservations(ledger: Ledger) -> None:
    """
    Start the jobs with firm reservations for now, on an unchanged ledger.

    A job that waits for one of them could not be reserved before, and is reserved now.
    """
    for firm in ledger.problem.firm_reservations:
        if firm.slot == 0:
            sites = [site for hold in firm.holds if (site := ReplicaSite.of(hold)) is not None]
            _start_at(ledger, firm.job_class, firm.option, tuple(sites))
    for firm in ledger.problem.firm_reservations:
        if firm.slot > 0 and ledger.jobs_left(firm.job_class, now=False):
            ledger.reserve_at(firm_assignment(ledger.problem, firm))


def _urgency(job_class: JobClass) -> tuple[int, int, str]:
    if job_class.promise is not None:
        return 0, job_class.promise.start, job_class.jobs[0]
    return 1, job_class.starving or 0, job_class.jobs[0]


def _reserve_all(ledger: Ledger, left: list[int], way: Callable[[Ledger, CoStartGroup], bool]) -> None:
    """Reserve places for firm jobs in one way, in order; a job that waits for others comes after them."""
    party_of = coscheduled_groups.groups_by_class(ledger.problem)
    while left:
        again = []
        for index in left:
            party = party_of.get(index, (index,))
            if any(not ledger.jobs_left(each, now=False) for each in party):
                continue
            if any(ledger.starts.ready(each) is None for each in party):
                again.append(index)
                continue
            mark = ledger.undo.mark()
            if not way(ledger, party):
                ledger.undo.rollback(mark)
        if len(again) == len(left):
            return
        left = again


def _takes_any_gpu(job_class: JobClass) -> bool:
    return not job_class.shape.gpu_milli and not job_class.shape.mig


def _start_at_promised_sites(ledger: Ledger, party: CoStartGroup) -> bool:
    """Start or reserve every class of a co-start group on its promised places; False if one cannot be."""
    promises = [ledger.problem.classes[index].promise for index in party]
    starts = {
        0 if promise.start == 0 else min(promise.latest, ledger.problem.slots - 1)
        for promise in promises
        if promise is not None
    }
    in_order = sorted(party, key=lambda index: _takes_any_gpu(ledger.problem.classes[index]))
    return len(starts) == 1 and all(_on_its_places(ledger, index, max(starts)) for index in in_order)


def _start_anywhere(ledger: Ledger, party: CoStartGroup) -> bool:
    """Start or reserve a co-start group as early as all its classes can; at a loss only if promised."""
    promised = any(ledger.problem.classes[index].promise is not None for index in party)
    for slot in range(ledger.problem.slots):
        mark, before = ledger.undo.mark(), ledger.objective
        found = (
            coscheduled_groups.reserve_group(ledger, party, slot) is not None
            if slot
            else coscheduled_groups.start_group(ledger, party)
        )
        if found and (promised or ledger.objective >= before):
            return True
        ledger.undo.rollback(mark)
    return False


def _on_its_places(ledger: Ledger, index: int, slot: int) -> bool:
    job_class = ledger.problem.classes[index]
    promise = job_class.promise
    if promise is None or not promise.holds:
        return False
    sites = sites_to_reserve(job_class.shape, promise.holds)
    if slot == 0:
        return _start_at(ledger, index, promise.option, sites)
    return ledger.reserve_at(FutureAssignment(index, promise.option, slot, sites)) is not None


def _start_at(ledger: Ledger, index: int, position: int, sites: tuple[ReplicaSite, ...]) -> bool:
    """Start one job on sites; a site without indices of whole GPUs stands for any GPUs of its node."""
    job_class = ledger.problem.classes[index]
    option = job_class.options[position]
    mark, taken = ledger.undo.mark(), list[ReplicaSite]()
    possible = job_class.startable and len(sites) >= job_class.minimum and ledger.jobs_left(index) > 0
    for site in sites if possible else ():
        there = ledger.feasibility.nodes_within(option, np.array([site.node], dtype=np.int64))
        if not len(there) or not ledger.feasibility.admits_now(ledger.tenants[index], there)[0]:
            break
        if (site.gpus or site.slices) and ledger.sites.may_take(index, site):
            ledger.sites.take(index, site)
            taken.append(site)
        elif not site.gpus and not site.slices and ledger.feasibility.room(index, there, 1)[0]:
            taken.append(ledger.take_site_on(index, site.node))
    kept = len(taken) == len(sites) and ledger.domains.satisfies(job_class.together, taken)
    if possible and kept and ledger.settle(index, option, taken, jobs=1):
        return True
    ledger.undo.rollback(mark)
    return False


def _firm_reservations(ledger: Ledger) -> Iterator[FirmReservation]:
    """Starts and reservations on the ledger as firm reservations, starts of now first."""
    classes = ledger.problem.classes
    for _, placed in sorted(ledger.placed.items()):
        position = classes[placed.job_class].options.index(placed.option)
        yield FirmReservation(
            placed.job_class, position, 0, tuple(_held_resources(site) for site in placed.sites)
        )
    for _, reserved in sorted(ledger.reserved.items()):
        holds = tuple(_held_resources(site) for site in reserved.sites)
        yield FirmReservation(reserved.job_class, reserved.option, reserved.slot, holds)


def _held_resources(site: ReplicaSite) -> HeldResources:
    slices = tuple((gpu, MigInstance(profile=profile, start=start)) for gpu, profile, start in site.slices)
    return HeldResources(site.node, site.gpus, slices)
