"""What queues may still take, now and in later slots, beside what preemption has freed for others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.queue import UNLIMITED
from gpuplan.solvers.state.constraints.quota import FutureQuota, QuotaLedger

if TYPE_CHECKING:
    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.models.problem.problem import Problem, QueueBudget
    from gpuplan.models.queue import QuotaAmounts
    from gpuplan.solvers.state.assignment import Span
    from gpuplan.solvers.state.constraints.freed_resources import FreedResources
    from gpuplan.solvers.state.resource_timeline import ResourceTimeline
    from gpuplan.solvers.state.undo_log import UndoLog


class QueueQuotas:
    """Quotas of queues in slot 0 and in later slots; with a single slot the later ones cost nothing."""

    def __init__(
        self, problem: Problem, freed: FreedResources, timeline: ResourceTimeline | None, undo: UndoLog
    ) -> None:
        self.quota = QuotaLedger(problem)
        self._has_incumbents = bool(problem.incumbents)
        self._freed, self._timeline, self._undo = freed, timeline, undo
        self.future = None if timeline is None else FutureQuota(problem)
        """Quotas in later slots; None if there are none."""
        self._undisturbed = None if timeline is None or not problem.may_disturb else FutureQuota(problem)
        """The same beside running jobs as they run now, see `Feasibility.undisturbed`."""
        self._rooms: dict[tuple[int, str | None, bool, int, int], QuotaAmounts] = {}
        """What queues may still take, by what it depends on."""
        self._rooms_seen = (0, 0)

    def headroom(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """How many portions of `replicas` replicas the class's queue may hold from now until their end."""
        now = self.headroom_now(job_class, option, replicas)
        # Without reservations, quota that is free now stays free: other jobs only end.
        if self.future is None or not self._has_reservations or now <= 0:
            return now
        return min(now, self.future.headroom(job_class, option, replicas, (1, option.ends[0])))

    def headroom_now(self, job_class: JobClass, option: Option, replicas: int) -> int:
        """The same for this instant alone."""
        asked = job_class.shape.quota.times(replicas)
        if not any(asked):
            return UNLIMITED
        seen = self.quota.changes, self._freed.changes
        if seen != self._rooms_seen:
            self._rooms, self._rooms_seen = {}, seen
        known = job_class.role is ClassRole.MOVE
        # Many classes in a row ask about the same queue.
        key = job_class.queue, option.gpu_model, known, job_class.rank, job_class.claim
        if (room := self._rooms.get(key)) is None:
            room = self.quota.room(job_class.queue, option.gpu_model, known=known)
            beside = self._freed.room(job_class.queue, option.gpu_model, job_class, known=known)
            room = self._rooms[key] = room.least(beside)
        return room.portions(asked)

    def future_headroom(self, job_class: JobClass, option: Option, replicas: int, span: Span) -> int:
        """How many portions of `replicas` replicas the class's queue may reserve in all slots of a span."""
        if self.future is None:
            return UNLIMITED
        room = self.future.headroom(job_class, option, replicas, span)
        if self._undisturbed is None or job_class.role is not ClassRole.START:
            return room
        return min(room, self._undisturbed.headroom(job_class, option, replicas, span))

    def return_headroom(self, incumbent: Incumbent) -> int:
        """How many replicas of a running job may return, now and until its end."""
        where = incumbent.queue, incumbent.gpu_model
        room = self.quota.room(*where, known=True).least(self._freed.room(*where, incumbent, known=True))
        if self.future is not None and self._has_reservations:
            room = room.least(self.future.room(*where, (1, incumbent.until), known=True))
        return room.portions(incumbent.shape.quota)

    def exceeded_limit(
        self, job_class: JobClass, option: Option, replicas: int
    ) -> tuple[QueueBudget, int] | None:
        """The first limit that `replicas` more replicas would break, and the lowest queue with it."""
        asked = job_class.queue, option.gpu_model, job_class.shape.quota.times(replicas)
        return self.quota.exceeded_limit(*asked) or self._freed.exceeded_limit(*asked, job_class)

    def count(self, job_class: JobClass, option: Option, replicas: int) -> None:
        """Count replicas that start now, until their end; negative ones are removed."""
        taken = job_class.shape.quota.times(replicas)
        if any(taken):
            new = job_class.role is not ClassRole.MOVE
            self._count_now(job_class.queue, option.gpu_model, taken, new=new)
            if self._has_incumbents:
                back = job_class, option, taken.times(-1)
                self._undo.step(self._freed.count, (job_class, option, taken), back)
            self._count_later(job_class.queue, option.gpu_model, taken, (1, option.ends[0]), new=new)

    def count_reserved(self, job_class: JobClass, option: Option, replicas: int, span: Span) -> None:
        """Count replicas that are reserved in a span of slots; negative ones are removed."""
        taken = job_class.shape.quota.times(replicas)
        if any(taken):
            where = job_class.queue, option.gpu_model
            self._count_later(*where, taken, span, new=True)
            if self._undisturbed is not None and job_class.role is ClassRole.START:
                change = partial(self._undisturbed.change, new=True)
                self._undo.step(change, (*where, taken, span), (*where, taken.times(-1), span))

    def count_incumbent(self, incumbent: Incumbent, replicas: int) -> None:
        """Count replicas of a running job, until its end; negative ones are removed."""
        taken = incumbent.shape.quota.times(replicas)
        if any(taken):
            self._count_now(incumbent.queue, incumbent.gpu_model, taken, new=False)
            self._count_later(incumbent.queue, incumbent.gpu_model, taken, (1, incumbent.until), new=False)

    @property
    def _has_reservations(self) -> bool:
        return self._timeline is not None and bool(self._timeline.reservations)

    def _count_now(self, queue: int, gpu_model: str | None, taken: QuotaAmounts, *, new: bool) -> None:
        change = partial(self.quota.change, new=new)
        self._undo.step(change, (queue, gpu_model, taken), (queue, gpu_model, taken.times(-1)))

    def _count_later(
        self, queue: int, gpu_model: str | None, taken: QuotaAmounts, span: Span, *, new: bool
    ) -> None:
        if self.future is not None:
            change = partial(self.future.change, new=new)
            self._undo.step(
                change, (queue, gpu_model, taken, span), (queue, gpu_model, taken.times(-1), span)
            )
