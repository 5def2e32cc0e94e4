"""
Backfilling: the first jobs that cannot start get reservations, and other jobs start only if they delay none.

A reservation holds nodes from the time when running jobs and earlier reservations are expected to free them.
With one reservation at a time this is EASY backfilling, with one for each job conservative backfilling. A
job that waits for something else, such as quota, gets none.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from gpuplan.models.problem.jobs import JobClass, Option, Shape
    from gpuplan.planner.simulate.baselines.orders import Contender
    from gpuplan.planner.simulate.baselines.places import PlacedJobs

    Ints: TypeAlias = NDArray[np.int64]

    Opening: TypeAlias = tuple[int, Option, Ints]
    """(seconds from now, option, replicas that fit on each of its nodes for as long as the job takes)."""

_PLENTY = 2**31
"""More replicas than any node has room for."""


def backfill(places: PlacedJobs, order: Iterable[Contender], *, depth: int | None) -> None:
    """Start pending jobs in order if that delays no reservation; at most `depth` jobs have one."""
    queue = list(order)
    outlook = FutureFreeResources(places, queue)
    reserved = 0
    for each in queue:
        job_class = places.class_of(each.name)
        if each.running or job_class is None or each.name in places.number_of:
            continue
        reserving = depth is None or reserved < depth
        opening = outlook.opening(job_class, each, later=reserving)
        if opening is None:
            continue
        at, option, room = opening
        if at:
            outlook.reserve(job_class, each, opening)
            reserved += 1
        elif places.start(each.name, (option,), outlook.nodes_of(option)[room > 0]):
            outlook.occupy(each)


class FutureFreeResources:
    """Free amounts of each node over time, from the expected durations."""

    def __init__(self, places: PlacedJobs, order: Iterable[Contender]) -> None:
        self._places = places
        capacity = places.ledger.capacity
        now: Ints = np.column_stack([capacity.gpu_left, capacity.free])
        self._times = [0]
        self._free: Ints = now[None].copy()
        """Shape (times, nodes, GPUs and resources)."""
        for each in order:
            if each.running and each.name in places.number_of:
                self._change(each.left, None, self._sites(each), 1)

    def nodes_of(self, option: Option) -> Ints:
        """Nodes of an option."""
        return self._places.ledger.feasibility.nodes_of(option)

    def opening(self, job_class: JobClass, each: Contender, *, later: bool) -> Opening | None:
        """First time at which a job has room until its end; only time 0 unless `later`."""
        best: Opening | None = None
        for option in job_class.options:
            first = self._first(job_class, option, each.seconds(option.gpu_model), later=later)
            if first is not None and (best is None or first[0] < best[0]):
                best = first[0], option, first[1]
        return best

    def _first(
        self, job_class: JobClass, option: Option, seconds: int, *, later: bool
    ) -> tuple[int, Ints] | None:
        times = self._times
        room = self._room(
            job_class.shape, self.nodes_of(option), len(times) if later else self._until(seconds)
        )
        short = np.flatnonzero(room.sum(axis=1) < job_class.minimum)
        position = 0
        while position < (len(times) if later else 1):
            end = self._until(times[position] + seconds)
            inside = short[np.searchsorted(short, position) : np.searchsorted(short, end)]
            if len(inside):
                position = int(inside[-1]) + 1
                continue
            throughout: Ints = room[position:end].min(axis=0)
            if throughout.sum() >= job_class.minimum:
                return times[position], throughout
            position += 1
        return None

    def _until(self, second: int) -> int:
        """Number of change times before a second."""
        return bisect_left(self._times, second)

    def _room(self, shape: Shape, nodes: Ints, instants: int) -> Ints:
        """Replicas of a shape that fit on each node at each of the first `instants` change times."""
        asked = np.array([shape.quota_milli, *shape.amounts], dtype=np.int64)
        needed = np.flatnonzero(asked)
        if not len(needed):
            return np.full((instants, len(nodes)), _PLENTY, dtype=np.int64)
        free = self._free[:instants, nodes][:, :, needed]
        room: Ints = np.maximum(0, (free // asked[needed]).min(axis=2))
        return room

    def occupy(self, each: Contender) -> None:
        """Subtract the resources of a job that has started."""
        number = self._places.number_of[each.name]
        model = self._places.ledger.placed[number].option.gpu_model
        self._change(0, each.seconds(model), self._sites(each), -1)

    def reserve(self, job_class: JobClass, each: Contender, opening: Opening) -> None:
        """Reserve places for a later start, first on the nodes with the least room."""
        start, option, room = opening
        nodes, missing = self.nodes_of(option), job_class.minimum
        taken = []
        for position in np.argsort(np.where(room > 0, room, _PLENTY), kind="stable").tolist():
            count = min(missing, int(room[position]))
            taken += [(int(nodes[position]), job_class.shape)] * count
            missing -= count
        self._change(start, start + each.seconds(option.gpu_model), taken, -1)

    def _sites(self, each: Contender) -> Iterator[tuple[int, Shape]]:
        placed = self._places.ledger.placed[self._places.number_of[each.name]]
        shape = self._places.problem.classes[placed.job_class].shape
        return ((site.node, shape) for site in placed.sites)

    def _change(self, start: int, end: int | None, sites: Iterable[tuple[int, Shape]], times: int) -> None:
        """Add (`times` 1) or subtract (-1) free amounts of sites in a span; `end` None is without an end."""
        first = self._instant(start)
        last = None if end is None else self._instant(end)
        for node, shape in sites:
            self._free[first:last, node] += times * np.array([shape.quota_milli, *shape.amounts])

    def _instant(self, second: int) -> int:
        """Index of a change time; inserts it if it is new."""
        index = bisect_left(self._times, second)
        if index == len(self._times) or self._times[index] != second:
            self._times.insert(index, second)
            self._free = np.insert(self._free, index, self._free[index - 1], axis=0)
        return index
