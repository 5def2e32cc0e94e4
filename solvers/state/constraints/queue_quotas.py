"""What queues may still take, now and in later slots, beside what preemption has freed for others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.state.constraints.quota import UNLIMITED, FutureQuota, QuotaLedger

if TYPE_CHECKING:
    from gpuplan.models.problem.jobs import Incumbent, JobClass, Option
    from gpuplan.models.problem.problem import Problem, QueueBudget
    from gpuplan.solvers.state.constraints.freed_resources import FreedResources
    from gpuplan.solvers.state.resource_timeline import ResourceTimeline
    from gpuplan.solvers.state.undo_log import UndoLog

Span: TypeAlias = tuple[int, int]
"""First slot, and the slot after the last."""


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
        self._rooms: dict[tuple[int, str | None, bool, int, int], int] = {}
        """Thousandths of GPUs that queues may still take, by what it depends on."""
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
        milli = job_class.shape.quota_milli * replicas
        if not milli:
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
            room = self._rooms[key] = min(room, beside)
        return room // milli

    def future_headroom(self, job_class: JobClass, option: Option, replicas: int, span: Span) -> int:
        """How many portions of `replicas` replicas the class's queue may reserve in all slots of a span."""
        if self.future is None:
            return UNLIMITED
        room = self.future.headroom(job_class, option, replicas, span)
        if self._undisturbed is None or job_class.role is not ClassRole.START:
            return room
        return min(room, self._undisturbed.headroom(job_class, option, replicas, span))

    def return_headroom(self, incumbent: Incumbent) -> int:
        """Thousandths of GPUs with which a running job may return, now and until its end."""
        where = incumbent.queue, incumbent.gpu_model
        room = min(self.quota.room(*where, known=True), self._freed.room(*where, incumbent, known=True))
        if self.future is None or not self._has_reservations:
            return room
        return min(room, self.future.room(*where, (1, incumbent.until), known=True))

    def exceeded_limit(
        self, job_class: JobClass, option: Option, replicas: int
    ) -> tuple[QueueBudget, int] | None:
        """The first limit that `replicas` more replicas would break, and the lowest queue with it."""
        asked = job_class.queue, option.gpu_model, job_class.shape.quota_milli * replicas
        return self.quota.exceeded_limit(*asked) or self._freed.exceeded_limit(*asked, job_class)

    def count(self, job_class: JobClass, option: Option, replicas: int) -> None:
        """Count replicas that start now, until their end; negative ones are removed."""
        if milli := job_class.shape.quota_milli * replicas:
            new = job_class.role is not ClassRole.MOVE
            self._count_now(job_class.queue, option.gpu_model, milli, new=new)
            if self._has_incumbents:
                self._undo.step(self._freed.count, (job_class, option, milli), (job_class, option, -milli))
            self._count_later(job_class.queue, option.gpu_model, milli, (1, option.ends[0]), new=new)

    def count_reserved(self, job_class: JobClass, option: Option, replicas: int, span: Span) -> None:
        """Count replicas that are reserved in a span of slots; negative ones are removed."""
        if milli := job_class.shape.quota_milli * replicas:
            where = job_class.queue, option.gpu_model
            self._count_later(*where, milli, span, new=True)
            if self._undisturbed is not None and job_class.role is ClassRole.START:
                change = partial(self._undisturbed.change, new=True)
                self._undo.step(change, (*where, milli, span), (*where, -milli, span))

    def count_incumbent(self, incumbent: Incumbent, replicas: int) -> None:
        """Count replicas of a running job, until its end; negative ones are removed."""
        if milli := incumbent.shape.quota_milli * replicas:
            self._count_now(incumbent.queue, incumbent.gpu_model, milli, new=False)
            self._count_later(incumbent.queue, incumbent.gpu_model, milli, (1, incumbent.until), new=False)

    @property
    def _has_reservations(self) -> bool:
        return self._timeline is not None and bool(self._timeline.bookings)

    def _count_now(self, queue: int, gpu_model: str | None, milli: int, *, new: bool) -> None:
        change = partial(self.quota.change, new=new)
        self._undo.step(change, (queue, gpu_model, milli), (queue, gpu_model, -milli))

    def _count_later(self, queue: int, gpu_model: str | None, milli: int, span: Span, *, new: bool) -> None:
        if self.future is not None:
            change = partial(self.future.change, new=new)
            self._undo.step(change, (queue, gpu_model, milli, span), (queue, gpu_model, -milli, span))
