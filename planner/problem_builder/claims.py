"""Claims: which candidates may take what a running job holds, whatever the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.job import HIGHEST_PRIORITY
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.planner.problem_builder.quotas import Holding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.planner.problem_builder.candidates import JobCandidate, RunningCandidate
    from gpuplan.planner.problem_builder.quotas import Owed, Reclaiming

_Asked: TypeAlias = tuple[str, int, int]
"""The queue of a candidate, its fewest new thousandths of GPUs, and its priority; 0 if that has no effect."""

_Held: TypeAlias = tuple[Holding, int | None]
"""A holding, and for jobs in their turn the lowest priority of those that need not await it."""


class Claims:
    """
    Claims of candidates on what running jobs hold, numbered from 1.

    A candidate has one if it may reclaim. A running job in its turn that some candidates of enough priority
    have to await is outranked by none, and those that need not await it have a claim.
    """

    def __init__(
        self, reclaiming: Reclaiming, wanting: Iterable[JobCandidate], runners: Iterable[RunningCandidate]
    ) -> None:
        self._reclaiming = reclaiming
        wanting, runners = list(wanting), [runner for runner in runners if runner.stop or runner.shrink]
        highest: dict[str, int] = {}
        for one in wanting:
            highest[one.job.queue] = max(highest.get(one.job.queue, 0), one.job.priority)
        self._awaited = frozenset(
            runner.job.name
            for runner in runners
            if runner.job.preemptions
            and any(
                priority >= runner.least_follower and reclaiming.keeps_turn(runner.job, queue)
                for queue, priority in highest.items()
            )
        )
        lent = sorted({self._held(runner) for runner in runners}, key=repr)
        # Most candidates are owed nothing, and most running jobs hold nothing that was lent.
        in_turn = [held for held in lent if held[1] is not None]
        given = [held for held in lent if held[1] is not None or reclaiming.is_lent(held[0])]
        # Jobs that are owed the same reclaim the same.
        alike: dict[tuple[str, Owed, int], frozenset[_Held]] = {}
        taken: dict[_Asked, frozenset[_Held]] = {}
        for queue, milli, priority in {self._asked(one) for one in wanting}:
            owed = reclaiming.owed(queue, milli)
            if (key := (queue, owed, priority)) not in alike:
                among = given if owed else in_turn
                alike[key] = frozenset(held for held in among if self._may_take(queue, milli, priority, held))
            taken[queue, milli, priority] = alike[key]
        numbers = {
            found: number
            for number, found in enumerate(
                sorted({each for each in taken.values() if each}, key=lambda each: sorted(map(repr, each))), 1
            )
        }
        self._of = {asked: numbers.get(found, 0) for asked, found in taken.items()}
        self._on = {held: tuple(numbers[found] for found in numbers if held in found) for held in lent}

    def of(self, candidate: JobCandidate) -> int:
        """The claim of a candidate; 0 if it has none or cannot start now."""
        return self._of.get(self._asked(candidate), 0)

    def on(self, runner: RunningCandidate) -> tuple[int, ...]:
        """Claims on the resources of a running job."""
        return self._on.get(self._held(runner), ())

    def least_follower(self, runner: RunningCandidate) -> int:
        """Lowest priority of jobs without a claim that may take what a running job gives up."""
        return HIGHEST_PRIORITY + 1 if runner.job.name in self._awaited else runner.least_follower

    def _asked(self, one: JobCandidate) -> _Asked:
        return one.job.queue, min_new_gpu_milli(one), one.job.priority if self._awaited else 0

    def _held(self, runner: RunningCandidate) -> _Held:
        least = runner.least_follower if runner.job.name in self._awaited else None
        return (runner.job.queue, runner.gpu_model), least

    def _may_take(self, queue: str, milli: int, priority: int, held: _Held) -> bool:
        holding, least = held
        if least is not None and priority >= least and not self._reclaiming.owns(holding[0], queue):
            return True
        return self._reclaiming.may_take(queue, milli, holding)


def min_new_gpu_milli(candidate: JobCandidate) -> int:
    """Fewest thousandths of GPUs that a candidate adds to its queue's usage; 0 for a migration."""
    return (
        0 if candidate.role is ClassRole.MOVE else candidate.job.request.total_gpu_milli * candidate.minimum
    )
