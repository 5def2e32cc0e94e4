"""Quotas of queues: what they may still take, now, in later slots, and beside victims that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.queue import UNLIMITED
from gpuplan.solvers.state.constraints.constraint import Constraint, Shortage
from gpuplan.solvers.state.constraints.quota import QuotaColumns, QuotaLedger, QuotaTable, future_quota

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuplan.models.eligibility.preemption_order import ClaimantOrIncumbent
    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.models.problem.problem import Problem
    from gpuplan.models.queue import QuotaAmounts
    from gpuplan.solvers.state.assignment import ReplicaSite, Span
    from gpuplan.solvers.state.constraints.constraint import Places
    from gpuplan.solvers.state.constraints.preemption_ranks import VictimSets
    from gpuplan.solvers.state.constraints.quota import QuotaDemand
    from gpuplan.solvers.state.resource_timeline import ResourceTimeline


class QueueQuotas(Constraint):
    """Quotas of queues in slot 0 and in later slots; with a single slot the later ones cost nothing."""

    def __init__(
        self, problem: Problem, victims: VictimSets, timeline: ResourceTimeline | None, few_sets: int
    ) -> None:
        self._problem, self._victims, self._timeline = problem, victims, timeline
        self.quota = QuotaLedger(problem)
        self._beside = _beside(problem, len(victims), few_sets)
        """If the victims of a set had stayed, by set."""
        self.future = None if timeline is None else future_quota(problem)
        """Quotas in later slots; None if there are none."""
        self._undisturbed = None if timeline is None or not problem.may_disturb else future_quota(problem)
        """The same beside running jobs as they run now, see `Feasibility.undisturbed`."""
        self._rooms: dict[tuple[int, str | None, bool, int, int], QuotaAmounts] = {}
        """What queues may still take now, by what it depends on, until anything changes."""

    @property
    def points(self) -> int:
        """Price of unmet guarantees that changes have saved."""
        return self.quota.points

    def headroom(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """How many portions of `replicas` replicas the class's queue may hold from now until their end."""
        now = self.headroom_now(job_class, option, replicas)
        # Without reservations, quota that is free now stays free: other jobs only end.
        if self.future is None or not self._has_reservations or now <= 0:
            return now
        return min(now, _headroom(self.future, job_class, option, replicas, (1, option.ends[0])))

    def headroom_now(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """The same for this instant alone."""
        asked = job_class.shape.quota
        if not self.quota.is_limited or not any(asked):
            return UNLIMITED
        if replicas != 1:
            asked = asked.times(replicas)
        known = job_class.role is ClassRole.MOVE
        # Many classes in a row ask about the same queue.
        key = job_class.queue, option.gpu_model, known, job_class.rank, job_class.claim
        if (room := self._rooms.get(key)) is None:
            room = self._rooms[key] = self._room(job_class.queue, option.gpu_model, job_class, known=known)
        return room.portions(asked)

    def _room(
        self, queue: int, gpu_model: str | None, comer: ClaimantOrIncumbent, *, known: bool
    ) -> QuotaAmounts:
        room, binding = self.quota.room(queue, gpu_model, known=known), self._victims.binding(comer)
        if not len(binding):
            return room
        return room.least(self._beside.room(queue, gpu_model, binding, known=known))

    def future_headroom(self, job_class: JobClass, option: Option, replicas: int, span: Span) -> int:
        """How many portions of `replicas` replicas the class's queue may reserve in all slots of a span."""
        if self.future is None:
            return UNLIMITED
        room = _headroom(self.future, job_class, option, replicas, span)
        if self._undisturbed is None or job_class.role is not ClassRole.START:
            return room
        return min(room, _headroom(self._undisturbed, job_class, option, replicas, span))

    def return_headroom(self, incumbent: Incumbent) -> int:
        """How many replicas of a running job may return, now and until its end."""
        where = incumbent.queue, incumbent.gpu_model
        room = self._room(*where, incumbent, known=True)
        if self.future is not None and self._has_reservations:
            room = room.least(self.future.room(*where, slice(1, incumbent.until), known=True))
        return room.portions(incumbent.shape.quota)

    def exceeded_limit(self, job_class: JobClass, option: Option, replicas: int) -> QuotaDemand | None:
        """The first limit that `replicas` more replicas would break, at the lowest queue with it."""
        asked = job_class.queue, option.gpu_model, job_class.shape.quota.times(replicas)
        if (found := next(self.quota.exceeded_limits(*asked), None)) is not None:
            return found
        binding = self._victims.binding(job_class)
        return self._beside.exceeded_limit(*asked, binding) if len(binding) else None

    def shortage(self, places: Places) -> Shortage | None:
        """See `Constraint`; of several GPU models the one with the least excess is told."""
        job_class = places.job_class
        asked = job_class.shape.quota.times(places.replicas)
        for code, alone in ((ReasonCode.EXCEEDS_MAX_QUOTA, True), (ReasonCode.WAITING_FOR_QUOTA, False)):
            broken = {
                option: next(
                    self.quota.exceeded_limits(job_class.queue, option.gpu_model, asked, alone=alone), None
                )
                for option in places.options
            }
            places.options = [option for option in places.options if broken[option] is None]
            if not places.options:
                found = min((each for each in broken.values() if each), key=lambda each: each.excess)
                return Shortage(code, self._numbers(found))
        kept = [each for each in places.options if self.headroom(job_class, each, places.replicas) > 0]
        if kept:
            places.options = kept
            return None
        # Quota that preemption frees is for others, or promised to later starts.
        return Shortage(ReasonCode.NOT_CHOSEN, {"queue": self._problem.queues[job_class.queue]})

    def _numbers(self, found: QuotaDemand) -> dict[str, int | str]:
        return {
            "queue": self._problem.queues[found.queue],
            "resource": found.budget.resource,
            "used": found.used,
            "limit": found.limit or 0,
            "needed": found.needed,
        }

    def may_give_up(self, incumbent: int, positions: Collection[int]) -> bool:
        """See `Constraint`."""
        one = self._problem.incumbents[incumbent]
        columns = self._victims.idle_columns_with(one)
        if not len(columns):
            return True
        room = self._beside.room(one.queue, one.gpu_model, columns, known=True)
        return room.portions(one.shape.quota) >= 0

    def count_job(
        self, index: int, option: Option, sites: Sequence[ReplicaSite], slot: int, times: int
    ) -> None:
        """See `Constraint`."""
        job_class = self._problem.classes[index]
        taken = job_class.shape.quota.times(times * len(sites))
        if not any(taken):
            return
        where, new = (job_class.queue, option.gpu_model, taken), job_class.role is not ClassRole.MOVE
        if slot == 0:
            self.quota.change(*where, new=new)
            self._count_beside(*where, job_class, new=new)
        if self.future is not None:
            self.future.change(*where, slice(max(1, slot), option.ends[slot]), new=new)
        if slot and self._undisturbed is not None and job_class.role is ClassRole.START:
            self._undisturbed.change(*where, slice(slot, option.ends[slot]), new=new)

    def give_up(self, incumbent: int, positions: Collection[int], times: int, moves: bool) -> None:
        """See `Constraint`."""
        one = self._problem.incumbents[incumbent]
        given = one.shape.quota.times(-times * len(positions))
        if any(given):
            where = one.queue, one.gpu_model, given
            self.quota.change(*where)
            self._count_beside(*where, self._victims.follower(incumbent, moves=moves), new=False)
            if self.future is not None:
                self.future.change(*where, slice(1, one.until))
        self._rooms.clear()  # what binds a class changes, too

    @property
    def _has_reservations(self) -> bool:
        return self._timeline is not None and bool(self._timeline.reservations)

    def _count_beside(
        self,
        queue: int,
        gpu_model: str | None,
        taken: QuotaAmounts,
        comer: ClaimantOrIncumbent,
        *,
        new: bool,
    ) -> None:
        """Count in the sets of victims that bind `comer`."""
        self._rooms.clear()
        if len(self._victims) and len(columns := self._victims.columns_binding(comer)):
            self._beside.change(queue, gpu_model, taken, columns, new=new)


def _beside(problem: Problem, sets: int, few: int) -> QuotaTable | QuotaColumns:
    """Quotas by set of victims, in the form that is faster for so many."""
    if sets <= few:
        return QuotaColumns(problem, sets)
    usages = [budget.usage_up_the_tree(list(budget.own)) for budget in problem.budgets]
    return QuotaTable(
        problem, [np.repeat(np.array(usage, dtype=np.int64)[:, None], sets, axis=1) for usage in usages]
    )


def _headroom(table: QuotaTable, job_class: JobClass, option: Option, replicas: int, span: Span) -> int:
    """How many more portions of `replicas` replicas the class's queue may hold in all slots of a span."""
    asked = job_class.shape.quota.times(replicas)
    if not any(asked):
        return UNLIMITED
    known = job_class.role is ClassRole.MOVE
    return table.room(job_class.queue, option.gpu_model, slice(*span), known=known).portions(asked)
