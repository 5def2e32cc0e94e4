"""List scheduling: jobs in an order, each placed if there is room, with running ones stopped or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuplan.planner.simulate.baselines.contenders import Contender
    from gpuplan.planner.simulate.baselines.places import Places


def start_in_order(places: Places, order: Iterable[Contender], *, skipping: bool) -> None:
    """
    Start waiting jobs in order; without `skipping` the first for which there is no room ends it.

    One for which there never is, as things stand, does not hold up the others.
    """
    for each in order:
        if each.running or each.name in places.number_of or places.start(each.name):
            continue
        if not skipping and places.fits_alone(each.name):
            return


def serve_in_order(places: Places, order: Sequence[Contender], may_stop: Callable[[Contender], bool]) -> None:
    """
    Each job has room as if those behind it in the order were not there, but for those that may not stop.

    A running job stays where it is unless a job ahead of it needs its place; it then goes on elsewhere if
    there is room. A job for which there is no room is skipped.
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


def _make_room(places: Places, wanting: Contender, behind: list[Contender]) -> None:
    """Take off the last in order until a job fits, and put back those it does not need the places of."""
    job_class = places.class_of(wanting.name)
    if job_class is None:
        return
    needed = job_class.shape.quota_milli * job_class.minimum
    if places.free_milli + sum(each.gpu_milli for each in behind) < needed:
        return
    gone = []
    while behind:
        gone.append(behind.pop())
        places.take_off(gone[-1].name)
        if places.free_milli >= needed and places.start(wanting.name):
            break
    # The better ones return first; where the job did not fit, all of them find their places free.
    for each in reversed(gone):
        places.put_back(each.name)
