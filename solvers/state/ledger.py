"""
Ledger: a plan under construction on nodes.

It knows what is free, which jobs came and left, and the objective. Each step is recorded, so that a trial can
be rolled back.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.solvers.heuristics import future_reservations, gang_placement
from gpuplan.solvers.params.placement import PlacementParams
from gpuplan.solvers.state.assignment import sites_to_reserve
from gpuplan.solvers.state.job_ledger import JobLedger

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import Option
    from gpuplan.models.problem.problem import Problem

    Ints: TypeAlias = NDArray[np.int64]


class Ledger(JobLedger):
    """Places and reserves jobs where they fit best."""

    def __init__(self, problem: Problem, params: PlacementParams = PlacementParams()) -> None:
        super().__init__(problem, params)
        self._reserve_firm()

    def place(self, index: int, option: Option, *, jobs: int, nodes: Ints | None = None) -> int:
        """
        Place up to `jobs` jobs of a class on an option, wherever they fit best; returns the number placed.

        `nodes` restricts the choice.
        """
        job_class = self.problem.classes[index]
        jobs = min(jobs, self.jobs_left(index), self.headroom(job_class, option, job_class.minimum))
        if jobs <= 0:
            return 0
        if not self.in_bulk[index]:
            placed = 0
            while placed < jobs and gang_placement.place_job(self, index, option, nodes):
                placed += 1
            return placed
        board = self.node_scores(index, option, nodes)
        sites = self.take(index, board, jobs * job_class.minimum)
        if not sites:
            return 0
        gangs = len(sites) // job_class.minimum
        # If further replicas bring less, other jobs may come before them.
        more = gangs * (job_class.initial_replicas(option) - job_class.minimum)
        sites += self.take(index, board, more)
        return len(self.settle(index, option, sites, jobs=gangs))

    def is_single_replica(self, index: int) -> bool:
        """True if a class's jobs are one replica each, and nodes differ by their room alone."""
        return self.in_bulk[index] and self.problem.classes[index].maximum == 1 and self.problem.slots == 1

    def place_single(self, index: int) -> bool:
        """Place a job of such a class where it fits best, best option first; False if there is no room."""
        job_class = self.problem.classes[index]
        for _, paid in groupby(job_class.options, key=lambda option: option.points + option.once):
            options = [option for option in paid if self.headroom(job_class, option, 1) > 0]
            if not options or not self.jobs_left(index):
                continue
            groups = tuple(group for option in options for group in option.groups)
            node = self.node_scores(index, replace(options[0], groups=groups)).best(self)
            if node is not None:
                option = next(each for each in options if self.group_of[node] in each.groups)
                return bool(self.settle(index, option, [self.take_site_on(index, node)], jobs=1))
        return False

    def grow(self, number: int, nodes: Ints | None = None, *, most: int | None = None) -> None:
        """See `gang_placement.grow`."""
        gang_placement.grow(self, number, nodes, most=most)

    def reserve_start(self, index: int, position: int, slot: int, nodes: Ints | None = None) -> int | None:
        """See `future_reservations.reserve_start`."""
        return future_reservations.reserve_start(self, index, position, slot, nodes)

    def cancel_reservation(self, number: int) -> None:
        """Cancel a reservation."""
        future_reservations.cancel_reservation(self, number)

    def start_reserved(self, number: int) -> bool:
        """Start a reserved job in slot 0 instead, on its best option; False if it fits nowhere."""
        index, mark = self.booked[number].job_class, self.mark()
        self.cancel_reservation(number)
        if any(self.place(index, option, jobs=1) for option in self.problem.classes[index].options):
            return True
        self.rollback(mark)
        return False

    def _reserve_firm(self) -> None:
        """Begin with the firm reservations of the problem; those of slot 0 are started later."""
        for booked in self.problem.bookings:
            if booked.slot > 0:
                shape = self.problem.classes[booked.job_class].shape
                sites = sites_to_reserve(shape, booked.holds)
                future_reservations.reserve_start_at(
                    self, booked.job_class, booked.option, booked.slot, sites
                )
        self.clear()
