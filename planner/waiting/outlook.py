"""Reasons of time for jobs that wait: what must come true first, closed nodes, groups that start together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from planner.future import Future
from planner.models.selection import refusal
from planner.waiting import time_words
from planner.waiting.prerequisites import Prerequisites

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.models.cluster import Node
    from planner.models.job import Job
    from planner.models.plan import Reason
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot
    from planner.models.target import Target
    from planner.models.windows import Window


class Outlook:
    """Answers for one target."""

    def __init__(self, snapshot: Snapshot, policy: Policy, target: Target) -> None:
        self.future = Future(snapshot, policy, target)
        self._prerequisites = Prerequisites(self.future)
        self._groups: dict[str, list[str]] = defaultdict(list)
        self._runs_already: set[str] = set()
        for job in snapshot.jobs:
            if job.co_start and job.running:
                self._runs_already.add(job.co_start)
            elif job.co_start and not job.held:
                self._groups[job.co_start].append(job.name)

    def kind(self, job: Job) -> tuple[object, ...] | None:
        """All that reasons of time depend on in a job; None for one that they do not touch."""
        planned = self.future.planned.get(job.name)
        own = bool(job.depends_on or job.not_before or job.hard_deadline or self._prerequisites.data(job))
        if own or job.co_start:
            return (job.name,)
        start = (planned.slot, planned.promised) if planned else None
        if not self.future.snapshot.cluster.reservations:
            return (start,) if start else None
        return start, job.user, job.expected_duration, job.name if job.expected_duration is None else None

    def never(self, job: Job) -> Reason | None:
        """Why the job can never start any more."""
        if job.depends_on and (state := self._prerequisites.dependencies(job)).hopeless:
            return time_words.never_satisfied(state)
        if job.hard_deadline and job.deadline is not None:
            seconds = self.future.fastest(job)
            begins, deadline = self._prerequisites.begins(job), self.future.second(job.deadline)
            if begins + seconds > deadline:
                return time_words.deadline_impossible(
                    begins=begins, seconds=seconds, deadline=deadline, future=self.future
                )
        return None

    def not_yet(self, job: Job) -> Reason | None:
        """What must come true before the job may start."""
        if job.depends_on and (state := self._prerequisites.dependencies(job)).needed:
            return time_words.depends(state, self.future)
        now = self.future.snapshot.taken_at
        moment, data = self._prerequisites.not_before(job), self._prerequisites.data(job)
        if data is not None and (moment is None or data[1] > moment):
            return time_words.data_to_come(*data, now)
        return time_words.not_before(moment, now) if moment is not None else None

    def closed(self, job: Job, nodes: Iterable[Node]) -> dict[str, Window]:
        """The window that closes each node, by name, before the job would be done if it started there now."""
        if not self.future.snapshot.cluster.reservations:
            return {}
        found = {}
        for node in nodes:
            model = node.gpu_model if job.request.needs_gpu else None
            seconds = self.future.durations.seconds(job, model)
            if (window := self.future.windows.bars(job, node.name, 0, seconds)) is not None:
                found[node.name] = window
        return found

    def closing(self, job: Job, closed: Mapping[str, Window], *, every: bool) -> Reason:
        """The reason of closed nodes: the window that is over last."""
        window = max(closed.values(), key=lambda each: (each.ends, each.reservation.name))
        return time_words.window_closed(
            window, self.future, every=every, seconds=self.future.durations.seconds(job, None)
        )

    def opening(self, job: Job) -> Reason | None:
        """That the only matching nodes are still to become ready; None if none is."""
        now = self.future.snapshot.taken_at
        found = [
            (node.ready_at, node.name)
            for node in self.future.snapshot.cluster.nodes
            if not node.ready
            and node.ready_at is not None
            and node.ready_at > now
            and refusal(job, node.model_copy(update={"ready": True})) is None
        ]
        return time_words.not_ready(*min(found), now) if found else None

    def later(self, job: Job) -> Reason | None:
        """That the plan has a later start for a job which would fit now."""
        planned = self.future.planned.get(job.name)
        if planned is None:
            return None
        start = self.future.begin(planned.slot)
        return time_words.later(start, self.future.snapshot.taken_at, promised=planned.promised)

    def companions(self, job: Job) -> tuple[str, ...]:
        """Others that wait and have to start together with the job, sorted."""
        if job.co_start is None or job.co_start in self._runs_already:
            return ()
        return tuple(sorted(name for name in self._groups[job.co_start] if name != job.name))
