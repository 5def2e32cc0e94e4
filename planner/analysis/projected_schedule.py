"""Projected schedule: expected start, end and placement of each job; prerequisites besides capacity."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpuplan.models.dependency import Dependency, DependencyKind, FinishedJob, JobOutcome
from gpuplan.models.placement import Placement, Replica, node_names, unmatched
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.timing.time_slots import TimeSlots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuplan.models.cluster import Node
    from gpuplan.models.job import Job
    from gpuplan.models.plan.solution import DesiredState, LaterStart
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JobInterval:
    """A job in its placement from `slot` until before `until`; `until` = H means to the end or beyond."""

    job: Job
    replicas: tuple[Replica, ...]
    start: int
    """Seconds after the snapshot; 0 for all jobs that run once the plan is applied."""
    seconds: int
    """Expected time from its start to its end."""
    slot: int
    until: int

    @property
    def end(self) -> int:
        """Expected end in seconds after the snapshot."""
        return self.start + self.seconds

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes, sorted."""
        return sorted(node_names(self.replicas))

    @property
    def placement(self) -> Placement:
        """Its places as a placement that counts now."""
        return Placement(job=self.job.name, replicas=self.replicas)


@dataclass(frozen=True)
class ProjectedSchedule:
    """Projection of a target over time; all seconds count from the snapshot."""

    snapshot: Snapshot
    policy: Policy
    target: DesiredState

    @cached_property
    def durations(self) -> Durations:
        """Expected durations of the jobs."""
        return Durations(self.snapshot, self.policy)

    @cached_property
    def slots(self) -> TimeSlots:
        """The slots of the policy's horizon."""
        return TimeSlots.of(self.policy.horizon, self.snapshot.taken_at)

    @cached_property
    def windows(self) -> ReservationWindows:
        """Reservation windows, in which nodes are closed."""
        return ReservationWindows(self.snapshot, self.policy, self.durations)

    @cached_property
    def nodes(self) -> dict[str, Node]:
        """Nodes by name, including nodes that the plan adds."""
        return self.snapshot.cluster.node_by_name | {node.name: node for node in self.target.added}

    @cached_property
    def gpu_models(self) -> list[str]:
        """GPU models of the nodes, sorted."""
        return sorted({model for node in self.nodes.values() if (model := node.gpu_model)})

    @cached_property
    def planned(self) -> dict[str, LaterStart]:
        """Later starts by job."""
        return {each.job: each for each in self.target.planned}

    @cached_property
    def stays(self) -> dict[str, JobInterval]:
        """Stays of all jobs that run, start now or start later, by name."""
        jobs = self.snapshot.job_by_name
        found = {}
        for placement in self.target.placements:
            if (job := jobs.get(placement.job)) is not None:
                found[job.name] = self._stay(job, placement.replicas, 0)
        for planned in self.target.planned:
            if (job := jobs.get(planned.job)) is not None:
                found[job.name] = self._stay(job, planned.replicas, planned.slot)
        return found

    @cached_property
    def on_node(self) -> dict[str, list[JobInterval]]:
        """Stays on each node at any time, sorted by job."""
        found: dict[str, list[JobInterval]] = defaultdict(list)
        for _, stay in sorted(self.stays.items()):
            for name in stay.nodes:
                found[name].append(stay)
        return found

    def instant_at(self, second: int) -> datetime:
        """Return the instant `second` seconds after the snapshot."""
        return self.snapshot.taken_at + timedelta(seconds=second)

    def second(self, moment: datetime) -> int:
        """Return the seconds from the snapshot to an instant, negative before the snapshot."""
        return int((moment - self.snapshot.taken_at).total_seconds())

    def begin(self, slot: int) -> datetime:
        """Return the begin of a slot."""
        return self.instant_at(self.slots.edges[slot])

    def gpu_model(self, job: Job, replicas: Sequence[Replica]) -> str | None:
        """Return the slowest GPU model among the replicas of a job; None without GPUs."""
        if not job.request.needs_gpu:
            return None
        nodes = (self.nodes.get(replica.node) for replica in replicas if replica.gpus)
        models = {node.gpu_model for node in nodes if node and node.gpu_model}
        return min(sorted(models), key=job.speed_milli, default=None)

    def shortest_run_seconds(self, job: Job) -> int:
        """
        Return seconds from the job's next start to its end, on its fastest eligible GPU model in the cluster.

        For a running job, that is a start after it is stopped now.
        """
        seconds = self.durations.again if job.running else self.durations.seconds
        usable = [model for model in self.gpu_models if not job.gpu_models or model in job.gpu_models]
        if not job.request.needs_gpu or not usable:
            return seconds(job, None)
        return min(seconds(job, model) for model in usable)

    def _stay(self, job: Job, replicas: tuple[Replica, ...], slot: int) -> JobInterval:
        start = self.slots.edges[min(slot, self.slots.count)]
        seconds = self._seconds(job, replicas, later=slot > 0)
        until = self.slots.until(slot, seconds) if slot < self.slots.count else self.slots.count
        return JobInterval(job, replicas, start, seconds, slot, until)

    def _seconds(self, job: Job, replicas: tuple[Replica, ...], *, later: bool) -> int:
        """Expected time of a stay: what is left of a starting or running job."""
        model = self.gpu_model(job, replicas)
        if job.running is None:
            return self.durations.seconds(job, model)
        if later:
            return self.durations.again(job, model)
        before, after = job.running.replicas, replicas
        if not unmatched(before, after) or not unmatched(after, before):
            return self.durations.remaining(job)
        return self.durations.restart_seconds_now(job, model)  # it is moved


_NOW: Final = 0


@dataclass(frozen=True, slots=True)
class SatisfactionEstimate:
    """Expected time at which one dependency is satisfied."""

    dependency: Dependency
    slot: int | None
    """Slot from which it is satisfied; 0 is now, None is not within the horizon by this plan."""
    second: int | None = None
    """Expected time in seconds after the snapshot; None if unknown."""
    never: bool = False
    """True if it can no longer be satisfied."""
    failed: bool = False
    """True if the reason for `never` is that the job has failed."""


@dataclass(frozen=True, slots=True)
class DependencyState:
    """State of all dependencies of one job."""

    needed: int
    """Number of dependencies that still have to be satisfied."""
    satisfied: int
    outstanding: tuple[SatisfactionEstimate, ...]
    """Dependencies that are not satisfied yet but can be, earliest first."""
    never: tuple[SatisfactionEstimate, ...]
    slot: int | None
    """Slot from which enough are satisfied; None is not within the horizon."""

    @property
    def is_unsatisfiable(self) -> bool:
        """True if too few dependencies can still be satisfied."""
        return len(self.outstanding) < self.needed

    @property
    def decisive(self) -> tuple[SatisfactionEstimate, ...]:
        """The first `needed` of the outstanding dependencies: the job can start after them."""
        return self.outstanding[: self.needed]


class Prerequisites:
    """Evaluates the prerequisites of the jobs of one plan."""

    def __init__(self, future: ProjectedSchedule) -> None:
        self._future = future
        snapshot = future.snapshot
        self._jobs = snapshot.job_by_name
        self._finished: Mapping[str, FinishedJob] = {each.name: each for each in snapshot.finished}
        self._available = {
            dataset.name: dataset.available_at
            for dataset in snapshot.cluster.datasets
            if dataset.available_at is not None and dataset.available_at > snapshot.taken_at
        }

    def dependencies(self, job: Job) -> DependencyState:
        """Return the state of the job's dependencies, with expected times."""
        found = [self._foreseen(each) for each in job.depends_on]
        satisfied = sum(each.slot == _NOW for each in found)
        wanted = len(found) if job.depends_on_at_least is None else job.depends_on_at_least
        needed = max(0, wanted - satisfied)
        never = tuple(each for each in found if each.never)
        outstanding = sorted((each for each in found if not each.never and each.slot != _NOW), key=_order)
        slot: int | None = _NOW
        if needed:
            slot = outstanding[needed - 1].slot if len(outstanding) >= needed else None
        return DependencyState(needed, satisfied, tuple(outstanding), never, slot)

    def not_before(self, job: Job) -> datetime | None:
        """Return the job's earliest start, requested or after a back-off, if it is in the future."""
        begins = job.begins_at
        return None if begins is None or begins <= self._future.snapshot.taken_at else begins

    def data(self, job: Job) -> tuple[str, datetime] | None:
        """Return the last of the job's datasets to become available, and when; None if all are available."""
        found = [(self._available[name], name) for name in job.datasets if name in self._available]
        if not found:
            return None
        moment, name = max(found)
        return name, moment

    def begins(self, job: Job) -> int:
        """Return the earliest start in seconds from now, by begin time and datasets; 0 is now."""
        moments = [moment for moment in (self.not_before(job), (self.data(job) or ("", None))[1]) if moment]
        return max((self._future.second(moment) for moment in moments), default=0)

    def never_starts(self, job: Job) -> bool:
        """True if too few of the job's dependencies can ever be satisfied."""
        return job.name in self._hopeless

    @cached_property
    def _hopeless(self) -> set[str]:
        """Jobs that never start; found without recursion, because chains of jobs may be long."""
        dependents: dict[str, list[str]] = defaultdict(list)
        spare: dict[str, int] = {}
        for job in self._jobs.values():
            if job.depends_on and job.running is None:
                wanted = len(job.depends_on) if job.depends_on_at_least is None else job.depends_on_at_least
                possible = 0
                for each in job.depends_on:
                    dependents[each.job].append(job.name)
                    possible += each.job in self._jobs or not self._of_finished(each).never
                spare[job.name] = possible - wanted
        left = [name for name, number in spare.items() if number < 0]
        found = set(left)
        while left:
            for name in dependents[left.pop()]:
                spare[name] -= 1
                if spare[name] < 0 and name not in found:
                    found.add(name)
                    left.append(name)
        return found

    def _foreseen(self, dependency: Dependency) -> SatisfactionEstimate:
        job = self._jobs.get(dependency.job)
        if job is None:
            return self._of_finished(dependency)
        if (dependency.kind is DependencyKind.STARTED and job.has_run) or (
            dependency.kind is DependencyKind.CHECKPOINTED and job.last_checkpoint_at
        ):
            return SatisfactionEstimate(dependency, _NOW, 0)
        if job.running is None and self.never_starts(job):
            return SatisfactionEstimate(dependency, None, never=True)
        stay = self._future.stays.get(job.name)
        if stay is None:
            return SatisfactionEstimate(dependency, None)
        slots = self._future.slots
        if dependency.kind is DependencyKind.STARTED:
            return SatisfactionEstimate(dependency, _within(stay.slot + 1, slots.count), stay.start)
        return SatisfactionEstimate(dependency, _within(stay.until, slots.count), stay.end)

    def _of_finished(self, dependency: Dependency) -> SatisfactionEstimate:
        over = self._finished.get(dependency.job)
        well = over is not None and over.outcome is JobOutcome.SUCCEEDED
        if well or (over and dependency.kind in (DependencyKind.STARTED, DependencyKind.COMPLETED)):
            return SatisfactionEstimate(dependency, _NOW, 0)
        return SatisfactionEstimate(dependency, None, never=True, failed=over is not None)


def _within(slot: int, count: int) -> int | None:
    return slot if slot < count else None


def _order(foreseen: SatisfactionEstimate) -> tuple[bool, int, bool, int, str]:
    slot, second = foreseen.slot, foreseen.second
    return slot is None, slot or 0, second is None, second or 0, foreseen.dependency.job
