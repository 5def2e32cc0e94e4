"""Place the jobs of one class now, wherever they fit best."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.problem.jobs import one_of
from gpuplan.solvers.heuristics import gang_placement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Option
    from gpuplan.solvers.state.ledger import Ledger

    Ints: TypeAlias = NDArray[np.int64]


def place(ledger: Ledger, index: int, option: Option, *, jobs: int, nodes: Ints | None = None) -> int:
    """
    Place up to `jobs` jobs of a class on an option, wherever they fit best; returns the number placed.

    `nodes` restricts the choice.
    """
    job_class = ledger.problem.classes[index]
    jobs = min(jobs, ledger.jobs_left(index))
    if jobs > 0:
        jobs = min(jobs, ledger.queues.headroom(job_class, option, job_class.minimum))
    if jobs <= 0:
        return 0
    if not ledger.in_bulk[index]:
        placed = 0
        while placed < jobs and gang_placement.place_job(ledger, index, option, nodes):
            placed += 1
        return placed
    board = ledger.node_scores(index, option, nodes)
    sites = ledger.take(index, board, jobs * job_class.minimum)
    if not sites:
        return 0
    gangs = len(sites) // job_class.minimum
    # If further replicas bring less, other jobs may come before them.
    more = gangs * (job_class.initial_replicas(option) - job_class.minimum)
    sites += ledger.take(index, board, more)
    return len(ledger.settle(index, option, sites, jobs=gangs))


def is_single_replica(ledger: Ledger, index: int) -> bool:
    """True if a class's jobs are one replica each, and nodes differ by their room alone."""
    one = ledger.problem.classes[index].maximum == 1
    return ledger.in_bulk[index] and one and ledger.problem.slots == 1


def place_single(ledger: Ledger, index: int) -> bool:
    """Place one of its jobs left where it fits best, best option first; False if there is no room."""
    job_class = ledger.problem.classes[index]
    for as_one, options in job_class.choices:
        open_to = [option for option in options if ledger.queues.headroom(job_class, option, 1) > 0]
        if not open_to:
            continue
        choice = as_one if len(open_to) == len(options) else one_of(open_to)
        node = ledger.node_scores(index, choice).best(ledger.feasibility)
        if node is not None:
            option = next(each for each in open_to if ledger.group_of[node] in each.groups)
            ledger.settle_single(index, option, ledger.take_site_on(index, node))
            return True
    return False


def start_reserved(ledger: Ledger, number: int) -> bool:
    """Start a reserved job in slot 0 instead, on its best option; False if it fits nowhere."""
    index, mark = ledger.reserved[number].job_class, ledger.undo.mark()
    ledger.cancel_reservation(number)
    if any(place(ledger, index, option, jobs=1) for option in ledger.problem.classes[index].options):
        return True
    ledger.undo.rollback(mark)
    return False
