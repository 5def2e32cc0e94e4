"""Fill free capacity: place every job that fits, most points per scarce resource first."""

from __future__ import annotations

from functools import cache
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI
from gpuplan.solvers.heuristics import coscheduled_groups, gang_placement, placement
from gpuplan.solvers.params.placement import FillOrder
from gpuplan.solvers.state.placement_profile import NO_AFFINITY

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gpuplan.models.problem.jobs import JobClass, Option, PlacementKey, Shape
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.ledger import Ledger

_MULTI_GPU_MILLI: Final = 2 * MILLI


def fill_free_capacity(ledger: Ledger) -> None:
    """
    Place every job that still fits, in the order of `Problem.placement_order`, and let elastic jobs grow into
    the rest.

    Single-replica jobs of equal density take turns, with the jobs of each class spread evenly
    (`GreedyParams.fill_order`). Jobs with different demands then share nodes and use up their resources
    together. Placing class by class would fill nodes with jobs that all lack the same resource.

    Afterwards no unplaced job and no further replica of an elastic job fits anywhere at a profit.
    """
    classes = ledger.problem.classes
    growing = []
    full: set[int] = set()
    """Kinds of classes (`Ledger.alike`) without room; as filling frees nothing, they find none later."""
    party_of = coscheduled_groups.groups_by_class(ledger.problem)

    @cache
    def placed_of(wanted: int) -> list[int]:
        """Placed jobs of a class; all jobs of a class start before the first of them grows."""
        return [number for number, placed in ledger.placed.items() if placed.job_class == wanted]

    for _, equals in groupby(_ranked(ledger), key=lambda entry: entry[0][:4]):
        singles: list[tuple[int, int]] = []
        for _, index, size, most in equals:
            if size:
                _grow_to(ledger, placed_of(index), most, size)
            elif classes[index].role is ClassRole.GROW:
                growing.append(index)
            elif index in party_of:
                if all(ledger.jobs_left(each) for each in party_of[index]):
                    coscheduled_groups.start_group(ledger, party_of[index])
            elif placement.is_single_replica(ledger, index):
                singles.append((index, most))
            else:
                _place_jobs(ledger, index, most, full)
        _place_interleaved(ledger, singles, full)
    grow_placed_jobs(ledger)
    move_scaled_jobs(ledger)
    grow_running_jobs(ledger, growing)


def _place_jobs(ledger: Ledger, index: int, most: int, full: set[int]) -> None:
    """Place up to `most` jobs of a class on its options, the best first, unless it is known to be full."""
    job_class, jobs = ledger.problem.classes[index], min(most, ledger.jobs_left(index))
    by_room = ledger.problem.slots == 1 and _needs_only_room(ledger, index)
    if jobs <= 0 or (by_room and ledger.alike[index] in full):
        return
    if job_class.scaled:
        # A scaled job gets its size before the next job starts.
        while jobs > 0 and _place_scaled(ledger, index):
            jobs -= 1
        return
    for option in job_class.options:
        if _pays(ledger, index, option):
            jobs -= placement.place(ledger, index, option, jobs=jobs)
    if by_room and jobs > 0 and ledger.jobs_left(index):
        full.add(ledger.alike[index])


def _needs_only_room(ledger: Ledger, index: int) -> bool:
    """True if a job of a class starts wherever it has room, in one domain if it needs that, and quota."""
    job_class, tenant = ledger.problem.classes[index], ledger.tenants[index]
    if ledger.in_bulk[index]:
        return True
    if job_class.together.preferred is not None or job_class.role is not ClassRole.START:
        return False
    pays = all(job_class.points(option, job_class.minimum) >= 0 for option in job_class.options)
    return pays and tenant.affinity == NO_AFFINITY and not ledger.feasibility.is_priced(tenant)


def _place_scaled(ledger: Ledger, index: int) -> bool:
    """Place one scaled job on the option that brings most with the room it has; False if none pays."""
    job_class = ledger.problem.classes[index]
    best, chosen = 0, None
    for option in job_class.options:
        # The best option comes first, so that the others rarely have to be tried.
        if chosen is not None and job_class.points(option, job_class.initial_replicas(option)) <= best:
            continue
        mark, before = ledger.undo.mark(), ledger.objective
        if placement.place(ledger, index, option, jobs=1) and ledger.objective - before > best:
            best, chosen = ledger.objective - before, option
        ledger.undo.rollback(mark)
    return chosen is not None and bool(placement.place(ledger, index, chosen, jobs=1))


def _place_interleaved(ledger: Ledger, singles: Iterable[tuple[int, int]], full: set[int]) -> None:
    """Place jobs of several (class, maximum jobs), each of one replica, in the order of `FillOrder`."""
    classes, order = ledger.problem.classes, ledger.params.greedy.fill_order
    turns = []
    for index, most in singles:
        if ledger.alike[index] in full:
            continue
        jobs = min(most, ledger.jobs_left(index))
        size = classes[index].shape.quota_milli
        first = _goes_first(classes[index]) or order is FillOrder.LARGEST_FIRST
        rank = _wasted(classes[index].shape) if order is FillOrder.LEAST_WASTE else 0
        turns += [(rank, 0.0 if first else (turn + 0.5) / jobs, -size, index) for turn in range(jobs)]
    for _, _, _, index in sorted(turns):
        kind = ledger.alike[index]
        if kind not in full and ledger.jobs_left(index) and not placement.place_single(ledger, index):
            full.add(kind)


def _goes_first(job_class: JobClass) -> bool:
    """True if its jobs of one replica go before others, since they need several GPUs of one node."""
    return job_class.shape.quota_milli >= _MULTI_GPU_MILLI


def fill_orders(problem: Problem, singles: Collection[int]) -> Iterator[FillOrder]:
    """The orders in which jobs of these classes, each of one replica, are not placed in the same turns."""
    classes = [problem.classes[index] for index in singles]
    yield FillOrder.TURNS
    if len({_wasted(job_class.shape) for job_class in classes}) > 1:
        yield FillOrder.LEAST_WASTE
    if any(len(job_class.jobs) > 1 and not _goes_first(job_class) for job_class in classes):
        yield FillOrder.LARGEST_FIRST


def _wasted(shape: Shape) -> int:
    """Hundredths of a GPU that are left over if it is filled with such shares; 0 for other shapes."""
    return 100 * (MILLI % shape.gpu_milli) // MILLI if shape.gpu_milli else 0


def grow_running_jobs(ledger: Ledger, growing: Iterable[int]) -> None:
    """Add replicas to running elastic jobs, given by their classes, as far as these fit."""
    for index in growing:
        for option in ledger.problem.classes[index].options:
            placement.place(ledger, index, option, jobs=1)


def grow_placed_jobs(ledger: Ledger) -> None:
    """Add replicas to placed elastic jobs as far as these fit, most points per GPU first."""
    classes = ledger.problem.classes
    for number, placed in sorted(ledger.placed.items()):
        if classes[placed.job_class].elastic and not classes[placed.job_class].scaled:
            gang_placement.grow(ledger, number)
    _grow_scaled_jobs(ledger, sorted(ledger.placed))


def _grow_scaled_jobs(ledger: Ledger, numbers: Iterable[int]) -> None:
    """Add replicas to these placed jobs, most points per GPU first."""
    heap = [(-worth, number) for number in numbers if (worth := _next_replica(ledger, number)) > 0]
    heapify(heap)
    while heap:
        _, number = heappop(heap)
        before = len(ledger.placed[number].sites)
        gang_placement.grow(ledger, number, most=before + 1)
        if len(ledger.placed[number].sites) > before and (worth := _next_replica(ledger, number)) > 0:
            heappush(heap, (-worth, number))


def move_scaled_jobs(ledger: Ledger) -> None:
    """
    Give scaled jobs that start another GPU model where that brings more, with the GPUs that others then get.

    The first jobs crowd on the model that is best for each of them alone, while others stay idle. Jobs of the
    present priority are tried in turn until no move pays, up to `GreedyParams.model_moves` tries.
    """
    classes, turn = ledger.problem.classes, ledger.current_priority
    tries = ledger.params.greedy.model_moves if ledger.problem.slots == 1 else 0
    improved = True
    while improved:
        improved = False
        for number, placed in sorted(ledger.placed.items()):
            job_class = classes[placed.job_class]
            if not (job_class.scaled and job_class.starts_alone and turn in (None, job_class.priority)):
                continue
            for option in job_class.options if len(job_class.options) > 1 else ():
                if option is placed.option or number not in ledger.placed:
                    continue
                if tries == 0:
                    return
                tries -= 1
                improved = _moved(ledger, number, option) or improved


def _moved(ledger: Ledger, number: int, option: Option) -> bool:
    """Try to start a placed job on another option, with as many replicas as pay there."""
    mark, before, placed = ledger.undo.mark(), ledger.objective, ledger.placed[number]
    ledger.remove(number)
    if placement.place(ledger, placed.job_class, option, jobs=1):
        classes, left = ledger.problem.classes, placed.option.gpu_model
        moved = max(ledger.placed)
        gang_placement.grow(ledger, moved)
        there = (
            other
            for other, each in sorted(ledger.placed.items())
            if classes[each.job_class].scaled and each.option.gpu_model == left
        )
        _grow_scaled_jobs(ledger, there)
        if ledger.objective > before:
            return True
    ledger.undo.rollback(mark)
    return False


def _next_replica(ledger: Ledger, number: int) -> float:
    """Points per thousandth of a GPU of one more replica of a scaled job; 0 if it may have none."""
    placed = ledger.placed[number]
    job_class, more = ledger.problem.classes[placed.job_class], placed.option.further
    position = len(placed.sites) - job_class.minimum
    return more[position] / max(1, job_class.shape.quota_milli) if position < len(more) else 0.0


def _pays(ledger: Ledger, index: int, option: Option) -> bool:
    """False if a start costs more than it brings, as is possible with high tariffs."""
    job_class = ledger.problem.classes[index]
    return ledger.problem.slots == 1 or job_class.points(option, job_class.most(option)) >= 0


def placement_queue(ledger: Ledger) -> Iterator[tuple[int, int]]:
    """(class with jobs left, maximum jobs), best first; as many as a guarantee still lacks rank higher."""
    return ((index, most) for _, index, size, most in _ranked(ledger) if not size)


def _ranked(ledger: Ledger) -> list[tuple[PlacementKey, int, int, int]]:
    """
    As `placement_queue`, with the sort key and a size.

    The size is 0 for jobs that start; these come before growing jobs of the same rank. Otherwise it is the
    size to which placed jobs of the class grow, and the position of their option replaces the maximum number
    of jobs.
    """
    problem = ledger.problem
    entries: list[tuple[PlacementKey, int, int, int]] = []
    for index, job_class in enumerate(problem.classes):
        if not ledger.jobs_left(index, now=False):
            continue
        milli = job_class.shape.quota_milli * job_class.maximum
        model = job_class.options[0].gpu_model if job_class.options else None
        owed = ledger.queues.quota.owed(job_class.queue, model) if milli and problem.guarantees else []
        for most, _ in owed:
            bonus = sum(price * min(milli, missing) for missing, price in owed if missing >= most) // MILLI
            entries.append((problem.placement_key(index, bonus), index, 0, -(-most // milli)))
        rank = problem.placement_keys[index]
        entries.append((rank, index, 0, len(job_class.jobs)))
        if job_class.role is ClassRole.START and job_class.scaled and problem.slots == 1:
            entries += _growing(job_class, rank, index)
    return sorted(entries)


def _growing(
    job_class: JobClass, rank: PlacementKey, index: int
) -> Iterator[tuple[PlacementKey, int, int, int]]:
    """Sort keys for growing jobs that start now: each further replica by its points per GPU."""
    each = max(1, job_class.shape.quota_milli)
    for position, option in enumerate(job_class.options):
        size = job_class.minimum
        for points, run in groupby(option.further):
            size += sum(1 for _ in run)
            if points > 0:
                density = -float(f"{points / each:.1e}")
                yield (*rank[:3], max(rank[3], density), *rank[4:]), index, size, position


def _grow_to(ledger: Ledger, numbers: Iterable[int], position: int, size: int) -> None:
    """Grow the placed jobs of a class on one of its options to `size` replicas, as far as these fit."""
    for number in numbers:
        placed = ledger.placed[number]
        option = ledger.problem.classes[placed.job_class].options[position]
        if placed.option.gpu_model == option.gpu_model:
            gang_placement.grow(ledger, number, most=size)
