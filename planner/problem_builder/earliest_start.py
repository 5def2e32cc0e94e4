"""Readiness: from which slot on jobs may start, as far as other jobs, data and users allow."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.dependency import DependencyKind, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuplan.models.dependency import Dependency, FinishedJob
    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.start_values import Timing


@dataclass(frozen=True, slots=True)
class Awaited:
    """Something a waiting job still waits for."""

    job: str
    slot: int | None
    """When it will have come; None if that depends on the plan."""
    ended: bool
    """It has come once that job is gone, not when it has started."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What one waiting job waits for beside room."""

    bound: int
    """It starts no earlier than in this slot; H if in none."""
    awaited: tuple[Awaited, ...] = ()
    """Empty unless some of it depends on the plan."""
    needed: int = 0
    """So many of them must have come."""
    company: tuple[str, ...] = ()
    """Jobs that start in the same slot or not at all, itself among them; empty if it starts by itself."""


def needed_running(snapshot: Snapshot, *, ahead: bool) -> frozenset[str]:
    """
    Running jobs that waiting ones wait for, and that had better go on.

    With a look `ahead` also those that do by running what a waiting one needs: once stopped, nobody knows any
    more that they ran, and a start promised on the strength of that would be lost.
    """
    found: set[str] = set()
    finished = finished_by_name(snapshot)
    for job in snapshot.waiting:
        if job.depends_on and not job.held:
            unmet = [each for each in job.depends_on if not is_met(each, snapshot, finished)]
            if ahead or _needed(job, len(unmet)) > 0:
                found |= {
                    each.job
                    for each in (job.depends_on if ahead else unmet)
                    if each.job in snapshot.job_by_name and snapshot.job_by_name[each.job].running
                }
    return frozenset(found)


def bound_to_others(snapshot: Snapshot) -> frozenset[str]:
    """Running jobs that, once stopped, would wait for others that have not come yet, or start with them."""
    finished = finished_by_name(snapshot)
    members = Counter(job.co_start for job in snapshot.jobs if job.co_start and not job.held)
    return frozenset(
        job.name
        for job in snapshot.jobs
        if job.running
        and (
            (job.co_start and members[job.co_start] > 1)
            or _needed(job, sum(not is_met(each, snapshot, finished) for each in job.depends_on)) > 0
        )
    )


class Readiness:
    """
    What the waiting jobs of one question wait for.

    `leaving` are running jobs that may leave the places where they run, so that nobody can say when they end.
    """

    def __init__(self, snapshot: Snapshot, timing: Timing, leaving: frozenset[str]) -> None:
        self._timing = timing
        self._slots = timing.slots
        self._snapshot = snapshot
        self._finished = finished_by_name(snapshot)
        self._leaving = leaving
        self._data = {
            dataset.name: timing.slots.after(timing.second(dataset.available_at))
            for dataset in snapshot.cluster.datasets
            if dataset.available_at is not None
        }
        companies = _companies(snapshot)
        self._bound_to_others = bound_to_others(snapshot)
        self._waits: dict[str, Wait] = {}
        for job in snapshot.waiting:
            timed = job.not_before or job.depends_on or job.co_start or (self._data and job.datasets)
            if timed and not job.held:
                self._waits[job.name] = self._wait(job, companies.get(job.co_start or "", ()))
        everywhere = range(timing.slots.count)
        self._earliest: dict[str, int] = {}
        self.settle(dict.fromkeys(self._waits, everywhere))

    def earliest(self, job: str) -> int:
        """The first slot in which a waiting job may start, as far as is known; H if in none."""
        return self._earliest.get(job, 0)

    def again(self, job: Job) -> int:
        """The first slot in which a running job may start again that is stopped now; H if in none."""
        return self._slots.count if job.name in self._bound_to_others else max(1, self._timed(job))

    def wait(self, job: str) -> Wait:
        """What a waiting job waits for."""
        return self._waits.get(job, _NOTHING)

    @property
    def tied(self) -> frozenset[str]:
        """Waiting jobs whose starts depend on one another's."""
        found: set[str] = set()
        for name, wait in self._waits.items():
            if (wait.awaited or wait.company) and self._earliest[name] < self._slots.count:
                found |= {name, *(each.job for each in wait.awaited if each.slot is None)}
        return frozenset(found)

    def settle(self, slots: Mapping[str, Sequence[int]]) -> None:
        """
        Take in the slots in which each job might start by itself, ascending; those left out may in any.

        Raising one job's first slot may raise another's, so this goes on until nothing is raised any more.
        """
        everywhere = range(self._slots.count)
        for name, found in slots.items():
            self._earliest[name] = max(self.earliest(name), min(found, default=self._slots.count))
        raised = True
        while raised:
            raised = False
            for name, wait in self._waits.items():
                together = (name, *wait.company)
                bound = max(max(self._bound(self._waits[one]), self.earliest(one)) for one in together)
                possible = slots.get(name, everywhere)
                first = next((slot for slot in possible if slot >= bound), self._slots.count)
                if first > self.earliest(name):
                    self._earliest[name], raised = first, True

    def _bound(self, wait: Wait) -> int:
        """The first slot in which enough of what is awaited could have come."""
        if not wait.needed:
            return wait.bound
        arrivals = sorted(self._arrival(each) for each in wait.awaited)
        return max(wait.bound, arrivals[wait.needed - 1])

    def _arrival(self, awaited: Awaited) -> int:
        if awaited.slot is not None:
            return awaited.slot
        start = self.earliest(awaited.job)
        if not awaited.ended or start == self._slots.count:
            return min(self._slots.count, start + 1)
        seconds = self._timing.durations.seconds(self._snapshot.job_by_name[awaited.job], None)
        return self._slots.until(start, seconds)

    def _wait(self, job: Job, company: tuple[str, ...]) -> Wait:
        count, bound = self._slots.count, self._timed(job)
        unmet = [each for each in job.depends_on if not is_met(each, self._snapshot, self._finished)]
        needed = _needed(job, len(unmet))
        if needed <= 0:
            return Wait(bound, company=company)
        awaited = [found for each in unmet if (found := self._awaited(each)) is not None]
        if len(awaited) < needed:
            return Wait(count, company=company)
        if all(each.slot is not None for each in awaited):
            arrivals = sorted(each.slot for each in awaited if each.slot is not None)
            return Wait(max(bound, arrivals[needed - 1]), company=company)
        return Wait(bound, tuple(awaited), needed, company)

    def _timed(self, job: Job) -> int:
        """The first slot in which a job's data is there and it may start."""
        bound = max((self._data.get(name, 0) for name in job.datasets), default=0)
        if job.not_before is not None:
            bound = max(bound, self._slots.after(self._timing.second(job.not_before)))
        return bound

    def _awaited(self, dependency: Dependency) -> Awaited | None:
        """What is to come; None if it never does, or not before the horizon ends."""
        job = self._snapshot.job_by_name.get(dependency.job)
        if job is None or job.held:
            return None
        if job.running is None:
            return Awaited(job.name, None, dependency.kind is not DependencyKind.STARTED)
        slot = self._timing.until(job)
        if slot == self._slots.count or job.name in self._leaving:
            return None
        return Awaited(job.name, slot, ended=True)


_NOTHING = Wait(0)


def is_met(dependency: Dependency, snapshot: Snapshot, finished: Mapping[str, FinishedJob]) -> bool:
    """True if what a job depends on has happened already."""
    job = snapshot.job_by_name.get(dependency.job)
    if job is not None:
        if dependency.kind is DependencyKind.STARTED:
            return job.has_run
        return dependency.kind is DependencyKind.CHECKPOINTED and job.last_checkpoint_at is not None
    over = finished.get(dependency.job)
    if over is None:
        return False
    ended_well = over.outcome is Outcome.SUCCEEDED
    return ended_well or dependency.kind in {DependencyKind.STARTED, DependencyKind.COMPLETED}


def _needed(job: Job, unmet: int) -> int:
    """How many of what a job waits for must still come."""
    given = len(job.depends_on)
    least = given if job.depends_on_at_least is None else job.depends_on_at_least
    return least - (given - unmet)


def finished_by_name(snapshot: Snapshot) -> dict[str, FinishedJob]:
    """Jobs that are over by name, the last one where a name was used again."""
    return {each.name: each for each in sorted(snapshot.finished, key=lambda each: each.ended_at)}


def _companies(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Waiting jobs that start together, by the name they share; none where one of them runs already."""
    members: dict[str, list[str]] = defaultdict(list)
    for job in snapshot.waiting:
        if job.co_start is not None and not job.held:
            members[job.co_start].append(job.name)
    free = {job.co_start for job in snapshot.jobs if job.running} if members else set()
    return {name: tuple(found) for name, found in members.items() if len(found) > 1 and name not in free}
