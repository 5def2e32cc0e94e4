"""
List scheduling over the slots of the horizon.

Jobs are taken in the order of `placement_queue`. Each job gets the start that is worth most, the earliest of
equals, in what the jobs before it leave free. A later start reserves its places, so no job later in the order
delays it: conservative backfilling (Feitelson & Weil, IPPS 1998; Mu'alem & Feitelson, IEEE TPDS 12(6), 2001).
With a limited depth only that many jobs reserve places; a depth of one is EASY backfilling (Lifka, JSSPP
1995).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.deadline import is_late
from gpuplan.solvers.heuristics import coscheduled_groups, future_reservations, placement
from gpuplan.solvers.heuristics.greedy_fill import grow_placed_jobs, grow_running_jobs, placement_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuplan.models.problem.jobs import JobClass, Option
    from gpuplan.solvers.heuristics.coscheduled_groups import CoStartGroup
    from gpuplan.solvers.state.ledger import Ledger

_NOW: Final = 0

_Entry: TypeAlias = tuple[int, int, int]
"""(position in the order, class, maximum jobs)."""


def reserve_best_starts(ledger: Ledger, *, deadline: float | None = None) -> None:
    """
    Reserve the best later start of every remaining job, in order, until nothing fits or the deadline passes.

    With a single slot nothing is done.
    """
    if ledger.problem.slots > 1 and not is_late(deadline):
        ListScheduler(ledger, now=False, most=None, deadline=deadline).run()


def schedule_in_order(ledger: Ledger, *, deadline: float | None = None) -> None:
    """
    Start every remaining job or reserve its start, in one pass; no job delays one before it in the order.

    The depth limits the reservations, and none is made after the deadline (an instant of `time.monotonic`);
    the other jobs may still start. Then elastic jobs grow.
    """
    most = ledger.problem.depth
    ListScheduler(ledger, now=True, most=most, deadline=deadline).run()
    grow_placed_jobs(ledger)
    roles = ((index, ledger.problem.classes[index].role) for index, _ in placement_queue(ledger))
    grow_running_jobs(ledger, [index for index, role in roles if role is ClassRole.GROW])


def reserve_resumptions(ledger: Ledger, stopped: Iterable[int]) -> None:
    """Reserve the best later start of each preempted job, those with most points first."""
    problem, listing = ledger.problem, ListScheduler(ledger, now=False, most=None)
    found = [index for each in stopped if (index := problem.incumbents[each].resume) is not None]
    for index in sorted(found, key=lambda index: (-problem.classes[index].best_later_points, index)):
        listing.plan_one(index)


def cancel_broken_starts(ledger: Ledger) -> None:
    """
    Cancel starts that other decisions have made infeasible.

    These are starts of jobs with a predecessor that was cancelled or comes later, and of jobs that no longer
    start together with their co-start group.
    """
    problem = ledger.problem
    bound = [index for index, one in enumerate(problem.classes) if one.needed or one.co_start is not None]
    party_of = coscheduled_groups.groups_by_class(problem) if bound else {}
    while bound:
        starts = {reserved.job_class: reserved.slot for reserved in ledger.reserved.values()}
        starts |= {placed.job_class: _NOW for placed in ledger.placed.values()}
        broken = []
        for index in bound:
            slot = starts.get(index)
            together = {starts.get(other) for other in party_of.get(index, (index,))}
            if slot is not None and (len(together) > 1 or not _predecessors_done(ledger, index, slot)):
                broken.append(index)
        if not broken:
            return
        for index in broken:
            cancel_starts(ledger, index)


def cancel_starts(ledger: Ledger, index: int) -> None:
    """Cancel every placement and reservation of a class."""
    for number in [number for number, each in ledger.reserved.items() if each.job_class == index]:
        ledger.cancel_reservation(number)
    for number in [number for number, each in ledger.placed.items() if each.job_class == index]:
        ledger.remove(number)


def _predecessors_done(ledger: Ledger, index: int, slot: int) -> bool:
    ready = ledger.starts.ready(index)
    return ready is not None and ready <= slot


class ListScheduler:
    """One pass of list scheduling."""

    def __init__(self, ledger: Ledger, *, now: bool, most: int | None, deadline: float | None = None) -> None:
        """`now` allows starts in slot 0 too; at most `most` jobs are reserved, none after the deadline."""
        self._ledger = ledger
        self._deadline = deadline
        self._now = now
        self._most = most
        """Maximum number of reservations; None is no limit."""
        self._party_of = coscheduled_groups.groups_by_class(ledger.problem)
        self._failed: dict[tuple[object, ...], int] = {}
        """By what decides whether jobs find a place: the least end slot for which no place was found."""

    def run(self) -> None:
        """Go through all remaining jobs in order; a job with predecessors joins once these are planned."""
        ledger = self._ledger
        problem = ledger.problem
        waiting: dict[int, _Entry] = {}
        queue: list[_Entry] = []
        followers: dict[int, list[int]] = {}
        for place, (index, most) in enumerate(placement_queue(ledger)):
            job_class = problem.classes[index]
            starts = job_class.role in (ClassRole.START, ClassRole.RESUME)
            if not starts or not ledger.jobs_left(index, now=False):
                continue
            entry = place, index, most
            if ledger.starts.ready(index) is None:
                waiting[index] = entry
                for each in job_class.predecessors:
                    if each.job_class is not None:
                        followers.setdefault(each.job_class, []).append(index)
            else:
                queue.append(entry)
        heapify(queue)
        while queue:
            _, index, most = heappop(queue)
            party = self._party_of.get(index, (index,))
            self._plan(party, most)
            for member in party:
                for follower in followers.get(member, ()):
                    if follower in waiting and ledger.starts.ready(follower) is not None:
                        heappush(queue, waiting.pop(follower))

    def plan_one(self, index: int) -> bool:
        """Start or reserve one job by itself, even if similar jobs failed: jobs may have left since then."""
        self._failed.clear()
        left = self._ledger.jobs_left(index, now=False)
        self._plan((index,), 1)
        return self._ledger.jobs_left(index, now=False) < left

    def _plan(self, party: CoStartGroup, most: int) -> None:
        ledger = self._ledger
        if any(ledger.starts.ready(each) is None or not ledger.jobs_left(each, now=False) for each in party):
            return  # planned again when the last job of the group becomes ready
        if len(party) > 1 or ledger.problem.classes[party[0]].co_start is not None:
            self._plan_party(party)
            return
        index = party[0]
        job_class = ledger.problem.classes[index]
        ready = ledger.starts.ready(index) or 0
        left = min(most, ledger.jobs_left(index, now=False))
        for slot, position in _starts(job_class):
            if left <= 0:
                return
            if slot < ready or (slot == _NOW and not self._now) or (slot > _NOW and not self._may_book):
                continue
            option = job_class.options[position]
            key = _placement_key(ledger, index, slot, option)
            # Nothing is removed during the pass, and a longer job needs more.
            if option.ends[slot] < self._failed.get(key, ledger.problem.slots + 1):
                left -= self._place(index, position, slot, left)
                if left > 0 and (self._may_book if slot else _only_room_matters(ledger, index)):
                    self._failed[key] = option.ends[slot]

    def _place(self, index: int, position: int, slot: int, jobs: int) -> int:
        """Start or reserve up to `jobs` jobs of a class in a slot; returns how many found a place."""
        ledger = self._ledger
        if slot == _NOW:
            return placement.place(ledger, index, ledger.problem.classes[index].options[position], jobs=jobs)
        placed = 0
        while (
            placed < jobs
            and self._may_book
            and future_reservations.reserve_start(ledger, index, position, slot) is not None
        ):
            placed += 1
        return placed

    def _plan_party(self, party: CoStartGroup) -> None:
        ledger = self._ledger
        if self._now and coscheduled_groups.start_group(ledger, party):
            return
        if self._most is not None and len(ledger.reserved) + len(party) > self._most:
            return
        if is_late(self._deadline):
            return
        for _, slot in sorted(
            coscheduled_groups.group_start_points(ledger, party), key=lambda each: (-each[0], each[1])
        ):
            if coscheduled_groups.reserve_group(ledger, party, slot) is not None:
                return

    @property
    def _may_book(self) -> bool:
        left = self._most is None or len(self._ledger.reserved) < self._most
        return left and not is_late(self._deadline)


def _starts(job_class: JobClass) -> list[tuple[int, int]]:
    """(slot, option) of the starts of a job that cost nothing, most points first, then the earliest."""
    found = []
    for position, option in enumerate(job_class.options):
        if job_class.startable and (points := job_class.points(option, job_class.maximum)) >= 0:
            found.append((-points, _NOW, position))
        for slot in range(max(1, job_class.earliest), len(option.later)):
            points_later = option.later[slot]
            if points_later is not None and points_later >= 0:
                found.append((-points_later, slot, position))
    return [(slot, position) for _, slot, position in sorted(found)]


def _placement_key(ledger: Ledger, index: int, slot: int, option: Option) -> tuple[object, ...]:
    """All that decides whether a job finds a place in a slot, except its duration."""
    job_class, tenant = ledger.problem.classes[index], ledger.tenants[index]
    return (
        slot,
        option.gpu_model,
        option.later_groups[slot] if slot > _NOW else option.groups,
        job_class.shape,
        job_class.minimum,
        job_class.together,
        job_class.queue,
        tenant.affinity,
        tenant.rank,
        tenant.claim,
    )


def _only_room_matters(ledger: Ledger, index: int) -> bool:
    """True if a start in slot 0 is never given up for the price of its nodes."""
    unpriced = not ledger.feasibility.is_priced(ledger.tenants[index])
    return unpriced and ledger.problem.classes[index].together.preferred is None


def pull_starts_forward(
    ledger: Ledger, *, deadline: float | None = None, enough: Callable[[], bool] = lambda: False
) -> None:
    """
    Start each reserved job now or in an earlier slot if possible, earliest start first.

    Jobs of a class are equivalent, so a class is given up in a slot as soon as one of its jobs fails. It ends
    at the deadline (an instant of `time.monotonic`), or once it is `enough`.
    """
    if not ledger.params.greedy.pull_forward:
        return
    problem = ledger.problem
    hopeless: set[tuple[int, int]] = set()
    """(class, slot) without room; there will be none, as jobs pulled forward free later slots only."""
    order = sorted(ledger.reserved, key=lambda number: (ledger.reserved[number].slot, number))
    for number in order:
        if is_late(deadline) or enough():
            return
        reserved = ledger.reserved[number]
        job_class = problem.classes[reserved.job_class]
        if ledger.current_priority is not None and job_class.priority < ledger.current_priority:
            continue
        if job_class.co_start is not None or job_class.needed or reserved.job_class in ledger.starts.awaited:
            continue
        for slot in range(job_class.earliest, reserved.slot):
            if (reserved.job_class, slot) in hopeless:
                continue
            if _move_to_slot(ledger, number, slot):
                break
            hopeless.add((reserved.job_class, slot))


def _move_to_slot(ledger: Ledger, number: int, slot: int) -> bool:
    """Move a reservation to an earlier slot on the first option on which that costs nothing."""
    index = ledger.reserved[number].job_class
    mark, before = ledger.undo.mark(), ledger.objective
    for position, option in enumerate(ledger.problem.classes[index].options):
        ledger.cancel_reservation(number)
        placed = (
            placement.place(ledger, index, option, jobs=1) > 0
            if slot == 0
            else option.later[slot] is not None
            and future_reservations.reserve_start(ledger, index, position, slot) is not None
        )
        if placed and ledger.objective >= before:
            return True
        ledger.undo.rollback(mark)
    return False
