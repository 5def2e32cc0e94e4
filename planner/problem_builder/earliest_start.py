"""Earliest slot of each job from dependencies, co-start groups, datasets and begin times."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuplan.models.dependency import Dependency, DependencyKind, FinishedJob, JobOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuplan.models.job import Job
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.problem_builder.start_values import StartValues


@dataclass(frozen=True, slots=True)
class Awaited:
    """A job that a pending job still depends on."""

    job: str
    slot: int | None
    """Slot in which the dependency is met; None if that depends on the plan."""
    ended: bool
    """True if the dependency is met when that job has ended, false if when it has started."""


@dataclass(frozen=True, slots=True)
class StartConditions:
    """What one pending job waits for besides capacity."""

    bound: int
    """Earliest slot; H if there is none."""
    awaited: tuple[Awaited, ...] = ()
    """Empty if none of it depends on the plan."""
    needed: int = 0
    """Number of these that must be met."""
    company: tuple[str, ...] = ()
    """Jobs of its co-start group, which start in the same slot or not at all; empty if it has no group."""


def running_predecessors(snapshot: Snapshot, *, ahead: bool) -> frozenset[str]:
    """
    Running jobs that pending jobs depend on, and that should therefore not be disturbed.

    With `ahead` this includes running jobs that already meet a dependency by running. After a preemption this
    is no longer known, so a promised start that relies on it would be lost.
    """
    found: set[str] = set()
    finished = finished_by_name(snapshot)
    for job in snapshot.waiting:
        if job.depends_on and not job.withheld:
            unmet = [each for each in job.depends_on if not is_satisfied(each, snapshot, finished)]
            if ahead or _needed(job, len(unmet)) > 0:
                found |= {
                    each.job
                    for each in (job.depends_on if ahead else unmet)
                    if each.job in snapshot.job_by_name and snapshot.job_by_name[each.job].running
                }
    return frozenset(found)


def running_with_dependencies(snapshot: Snapshot) -> frozenset[str]:
    """Running jobs that, if preempted, would wait for unmet dependencies or for their co-start group."""
    finished = finished_by_name(snapshot)
    members = Counter(job.co_start for job in snapshot.jobs if job.co_start and not job.withheld)
    return frozenset(
        job.name
        for job in snapshot.jobs
        if job.running
        and (
            (job.co_start and members[job.co_start] > 1)
            or _needed(job, sum(not is_satisfied(each, snapshot, finished) for each in job.depends_on)) > 0
        )
    )


class EarliestStarts:
    """
    What the pending jobs of one problem wait for, and their earliest slots.

    `leaving` are running jobs that may leave their places, so that their end is unknown.
    """

    def __init__(self, snapshot: Snapshot, timing: StartValues, leaving: frozenset[str]) -> None:
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
        companies = _co_start_groups(snapshot)
        self._bound_to_others = running_with_dependencies(snapshot)
        self._waits: dict[str, StartConditions] = {}
        for job in snapshot.waiting:
            timed = job.begins_at or job.depends_on or job.co_start or (self._data and job.datasets)
            if timed and not job.withheld:
                self._waits[job.name] = self._wait(job, companies.get(job.co_start or "", ()))
        everywhere = range(timing.slots.count)
        self._earliest: dict[str, int] = {}
        self.settle(dict.fromkeys(self._waits, everywhere))

    def earliest(self, job: str) -> int:
        """First known slot in which a pending job may start; H if there is none."""
        return self._earliest.get(job, 0)

    def again(self, job: Job) -> int:
        """First slot in which a job that is preempted now may start again; H if there is none."""
        return self._slots.count if job.name in self._bound_to_others else max(1, self._timed(job))

    def wait(self, job: str) -> StartConditions:
        """What a pending job waits for."""
        return self._waits.get(job, _NOTHING)

    @property
    def interdependent(self) -> frozenset[str]:
        """Pending jobs with starts that depend on each other."""
        found: set[str] = set()
        for name, wait in self._waits.items():
            if (wait.awaited or wait.company) and self._earliest[name] < self._slots.count:
                found |= {name, *(each.job for each in wait.awaited if each.slot is None)}
        return frozenset(found)

    def settle(self, slots: Mapping[str, Sequence[int]]) -> None:
        """
        Restrict jobs to the slots in which each could start alone, ascending; other jobs may use any slot.

        A later earliest slot of one job may delay another job, so this repeats until nothing changes.
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

    def _bound(self, wait: StartConditions) -> int:
        """First slot in which enough of the dependencies can be met."""
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

    def _wait(self, job: Job, company: tuple[str, ...]) -> StartConditions:
        count, bound = self._slots.count, self._timed(job)
        unmet = [each for each in job.depends_on if not is_satisfied(each, self._snapshot, self._finished)]
        needed = _needed(job, len(unmet))
        if needed <= 0:
            return StartConditions(bound, company=company)
        awaited = [found for each in unmet if (found := self._awaited(each)) is not None]
        if len(awaited) < needed:
            return StartConditions(count, company=company)
        if all(each.slot is not None for each in awaited):
            arrivals = sorted(each.slot for each in awaited if each.slot is not None)
            return StartConditions(max(bound, arrivals[needed - 1]), company=company)
        return StartConditions(bound, tuple(awaited), needed, company)

    def _timed(self, job: Job) -> int:
        """First slot in which a job's datasets are available and its begin time has passed."""
        bound = max((self._data.get(name, 0) for name in job.datasets), default=0)
        if (begins := job.begins_at) is not None:
            bound = max(bound, self._slots.after(self._timing.second(begins)))
        return bound

    def _awaited(self, dependency: Dependency) -> Awaited | None:
        """The awaited job; None if the dependency cannot be met within the horizon."""
        job = self._snapshot.job_by_name.get(dependency.job)
        if job is None or job.withheld:
            return None
        if job.running is None:
            return Awaited(job.name, None, dependency.kind is not DependencyKind.STARTED)
        slot = self._timing.until(job)
        if slot == self._slots.count or job.name in self._leaving:
            return None
        return Awaited(job.name, slot, ended=True)


_NOTHING = StartConditions(0)


def is_satisfied(dependency: Dependency, snapshot: Snapshot, finished: Mapping[str, FinishedJob]) -> bool:
    """True if a dependency is already met."""
    job = snapshot.job_by_name.get(dependency.job)
    if job is not None:
        if dependency.kind is DependencyKind.STARTED:
            return job.has_run
        return dependency.kind is DependencyKind.CHECKPOINTED and job.last_checkpoint_at is not None
    over = finished.get(dependency.job)
    if over is None:
        return False
    ended_well = over.outcome is JobOutcome.SUCCEEDED
    return ended_well or dependency.kind in {DependencyKind.STARTED, DependencyKind.COMPLETED}


def _needed(job: Job, unmet: int) -> int:
    """Number of dependencies that must still be met; 0 or less if enough are."""
    given = len(job.depends_on)
    least = given if job.depends_on_at_least is None else job.depends_on_at_least
    return least - (given - unmet)


def finished_by_name(snapshot: Snapshot) -> dict[str, FinishedJob]:
    """Finished jobs by name; the last one if a name was used again."""
    return {each.name: each for each in sorted(snapshot.finished, key=lambda each: each.ended_at)}


def _co_start_groups(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Pending jobs of each co-start group, by its name; without groups in which one job already runs."""
    members: dict[str, list[str]] = defaultdict(list)
    for job in snapshot.waiting:
        if job.co_start is not None and not job.withheld:
            members[job.co_start].append(job.name)
    free = {job.co_start for job in snapshot.jobs if job.running} if members else set()
    return {name: tuple(found) for name, found in members.items() if len(found) > 1 and name not in free}
