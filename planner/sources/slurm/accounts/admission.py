"""
Limits that are no quotas: of the pending jobs, those beyond a limit are held.

In the order in which Slurm looks at them, each pending job may start if all its limits leave room for it
beside the running jobs and those before it. So whatever a plan starts, no limit is exceeded while the running
jobs stay; a plan that stops one of them does not use what it leaves before the next epoch, and a job that has
room and no places keeps the room from those behind it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.planner.sources.slurm.accounts.limits import LimitId, taken_by
from gpuplan.planner.sources.slurm.values import LONGEST_REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from gpuplan.models.job import Job
    from gpuplan.planner.sources.slurm.accounts.limits import AccountLimits, Limit
    from gpuplan.planner.sources.slurm.accounts.quotas import QuotaTree
    from gpuplan.planner.sources.slurm.values import Record

Counts: TypeAlias = "list[tuple[Limit, int]]"
"""The limits that a job counts for, with how much."""


def admitted(
    jobs: Collection[tuple[Job, Record]],
    limits: AccountLimits,
    tree: QuotaTree,
    note: Callable[[str, str], None],
) -> list[Job]:
    """The jobs with their records, without the records; pending ones beyond a limit are held."""
    counted = {id(job): _counts(record, limits, running=job.running is not None) for job, record in jobs}
    pending = [job for job, _ in jobs if job.running is None and not job.held]
    room = _Room(
        tree,
        running=[counted[id(job)] for job, _ in jobs if job.running is not None],
        pending=[counted[id(job)] for job in pending],
    )
    held: dict[int, str] = {}
    for job in sorted(pending, key=_turn):
        if reasons := room.lacks(counted[id(job)]):
            held[id(job)] = "; ".join(reasons)
            note(f"job {job.name}", held[id(job)])
        else:
            room.take(counted[id(job)])
    return [
        job.model_copy(update={"held": True, "hold_reason": held[id(job)][:LONGEST_REASON]})
        if id(job) in held
        else job
        for job, _ in jobs
    ]


class _Room:
    """What limits leave."""

    def __init__(self, tree: QuotaTree, *, running: Iterable[Counts], pending: Iterable[Counts]) -> None:
        """What the running jobs leave."""
        self._tree = tree
        self._running = _sum(running)
        self._used = self._running.copy()
        self._demand = self._running + _sum(pending)

    def take(self, counts: Counts) -> None:
        """Let a job have what it counts for."""
        self._used.update({limit.id: amount for limit, amount in counts})

    def lacks(self, counts: Counts) -> list[str]:
        """
        Why a job cannot start beside the running jobs and those before it; empty if it can.

        A limit that all jobs together do not reach keeps none back. A job of which a quota leaves too little
        beside the running ones alone takes no room of the others: jobs behind it would wait for one that does
        not start.
        """
        in_force = [(limit, amount) for limit, amount in counts if limit.in_force]
        scarce = [each for each in in_force if self._demand[each[0].id] > each[0].most]
        others = [each for each in scarce if not self._tree.covers(each[0].id)]
        if not others:
            return []
        quotas = [each for each in in_force if self._tree.covers(each[0].id)]
        return [*self._beyond(others, self._used), *self._beyond(quotas, self._running)]

    @staticmethod
    def _beyond(counts: Counts, used: Mapping[LimitId, int]) -> Iterator[str]:
        for limit, amount in counts:
            if used[limit.id] + amount > limit.most:
                unit = " MiB" if limit.id.tres == "mem" else ""
                yield (
                    f"the limit {limit.text} does not allow it now: it needs {amount:,}{unit}, "
                    f"{used[limit.id]:,}{unit} are in use or go to jobs before it"
                )


def _sum(all_counts: Iterable[Counts]) -> Counter[LimitId]:
    total = Counter[LimitId]()
    for counts in all_counts:
        total.update({limit.id: amount for limit, amount in counts})
    return total


def without_limit(records: Collection[Record], limits: AccountLimits) -> Mapping[LimitId, int]:
    """What running jobs take of limits that are not in force for them."""
    found = Counter[LimitId]()
    for record in records:
        for limit, amount in _counts(record, limits, running=True):
            if not limit.in_force:
                found[limit.id] += amount
    return found


def _counts(record: Record, limits: AccountLimits, *, running: bool) -> Counts:
    """The limits that a job counts for, with how much."""
    taken = taken_by(record, running=running)
    found = (limit for limit in limits.of(limits.payer(record)) if limit.together)
    return [(limit, amount) for limit in found if (amount := taken.get(limit.id.tres, 0))]


def _turn(job: Job) -> tuple[int, int, str, int, str]:
    """Place of a job in Slurm's order: the higher priority first, then the earlier submission."""
    return -job.priority, -job.weight_milli, job.submitted_at.isoformat(), len(job.name), job.name
