"""Order of jobs: the planned starts of predecessors, and the slot by which a class may start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.solvers.state.constraints.constraint import Constraint, Shortage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.problem.jobs import Option
    from gpuplan.models.problem.problem import Problem
    from gpuplan.solvers.state.assignment import ReplicaSite
    from gpuplan.solvers.state.constraints.constraint import Places


class PlannedStarts(Constraint):
    """Planned starts of the jobs for which others wait."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        awaited = (each.job_class for one in problem.classes for each in one.predecessors)
        self.awaited = frozenset(index for index in awaited if index is not None)
        """Classes of one job that are predecessors of others."""
        self._begun: dict[int, tuple[int, Option]] = {}
        """Slot and option of the starts of these jobs."""

    def count_job(
        self, index: int, option: Option, sites: Sequence[ReplicaSite], slot: int, times: int
    ) -> None:
        """See `Constraint`: record the slot and option of an awaited job's start."""
        if index in self.awaited:
            if times > 0:
                self._begun[index] = slot, option
            else:
                del self._begun[index]

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`."""
        job_class = places.job_class
        if job_class.needed:
            return Shortage(ReasonCode.DEPENDENCY, {"needed": job_class.needed})
        if job_class.earliest > 0:
            return Shortage(ReasonCode.BEGIN_TIME, {"slot": job_class.earliest})
        return None

    def ready(self, index: int) -> int | None:
        """
        The first slot by which enough predecessors of a class have started or ended, as far as it is planned.

        None if that is not within the horizon, or if too few of them are planned so far.
        """
        job_class = self._problem.classes[index]
        if not job_class.needed:
            return 0
        slots = []
        for each in job_class.predecessors:
            if each.job_class is None:
                slots.append(each.slot)
            elif (begun := self._begun.get(each.job_class)) is not None:
                slot, option = begun
                slots.append(option.ends[slot] if each.ended else slot + 1)
        slots = sorted(slot for slot in slots if slot < self._problem.slots)
        return slots[job_class.needed - 1] if len(slots) >= job_class.needed else None
