"""List scheduling: jobs are placed in a given order if there is room, with or without preemption."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuplan.planner.simulate.baselines.contenders import Contender
    from gpuplan.planner.simulate.baselines.places import PlacedJobs


def start_in_order(places: PlacedJobs, order: Iterable[Contender], *, skipping: bool) -> None:
    """
    Start pending jobs in order; without `skipping`, stop at the first job without room.

    A job that would not fit even without the other jobs does not block the jobs after it.
    """
    for each in order:
        if each.running or each.name in places.number_of or places.start(each.name):
            continue
        if not skipping and places.fits_alone(each.name):
            return


def serve_in_order(
    places: PlacedJobs, order: Sequence[Contender], may_stop: Callable[[Contender], bool]
) -> None:
    """
    Place each job as if the jobs after it in the order did not exist, except those that may not stop.

    A running job stays in place unless an earlier job needs its place; it then continues elsewhere if there
    is room. A job without room is skipped.
    """
    for position, each in enumerate(order):
        if each.name in places.number_of or places.start(each.name):
            continue
        behind = [
            other
            for other in order[position + 1 :]
            if other.running and other.name in places.number_of and may_stop(other)
        ]
        _make_room(places, each, behind)


def _make_room(places: PlacedJobs, wanting: Contender, behind: list[Contender]) -> None:
    """Take off the last jobs in order until a job fits, and put back jobs at places that it does not need."""
    job_class = places.class_of(wanting.name)
    if job_class is None:
        return
    needed = job_class.shape.quota_milli * job_class.minimum
    if places.free_milli + sum(each.gpu_milli for each in behind) < needed:
        return
    gone = []
    while behind:
        gone.append(behind.pop())
        places.remove(gone[-1].name)
        if places.free_milli >= needed and places.start(wanting.name):
            break
    # Earlier jobs in the order return first; if the job did not fit, all places are free again.
    for each in reversed(gone):
        places.restore(each.name)
