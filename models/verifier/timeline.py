"""Presence of jobs over the slots: the placements now and the later starts."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.placement import Placement
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.timing.time_slots import TimeSlots
from gpuplan.models.units import print_timestamp

if TYPE_CHECKING:
    from gpuplan.models.cluster import Node
    from gpuplan.models.dependency import JobOutcome
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica
    from gpuplan.models.timing.durations import Durations
    from gpuplan.models.units import Timestamp
    from gpuplan.models.value.start_value import StartValue
    from gpuplan.models.verifier.context import Context
    from gpuplan.models.verifier.job_changes import JudgedPlacement


@dataclass(frozen=True, slots=True)
class Interval:
    """A job on its places from the beginning of a slot to its expected end."""

    job: Job
    placement: Placement
    slot: int
    start: int
    """Seconds after the snapshot at which the slot begins."""
    seconds: int
    until: int
    """The slot before which it ends; the number of slots if it lasts to the end of the horizon."""

    @property
    def subject(self) -> str:
        """The job in words, with its slot if that is not now."""
        return f"job {self.job.name} in slot {self.slot}" if self.slot else f"job {self.job.name}"

    def covers(self, slot: int) -> bool:
        """True if the job is present in a slot."""
        return self.slot <= slot < self.until


class OccupancyTimeline:
    """The slots of a case, and the presence of jobs in them."""

    def __init__(self, case: Context) -> None:
        self._case = case
        self.slots = TimeSlots.of(case.policy.horizon, case.snapshot.taken_at)

    @property
    def start_value(self) -> StartValue:
        """Points of starts."""
        return self._case.facts.start_value(self._case.policy)

    @property
    def durations(self) -> Durations:
        """Durations of jobs."""
        return self.start_value.durations

    @cached_property
    def windows(self) -> ReservationWindows:
        """Spans in which nodes are closed."""
        return ReservationWindows(self._case.snapshot, self._case.policy, self.durations)

    def opening(self, node: Node) -> int:
        """First slot in which a node that is being provisioned is ready; 0 if it is already due."""
        return self.slots.after(self.seconds_to(node.ready_at)) if node.ready_at else 0

    def begun(self, second: int) -> int:
        """The last slot that begins at or before a second; slot 0 if that is past."""
        return max(0, bisect_right(self.slots.edges[:-1], second) - 1)

    def seconds_to(self, instant: Timestamp) -> int:
        """Seconds from the snapshot to an instant, negative if it is past."""
        return int((instant - self._case.snapshot.taken_at).total_seconds())

    def format_instant(self, second: int) -> str:
        """An instant in words, given in seconds after the snapshot."""
        try:
            return print_timestamp(self._case.snapshot.taken_at + timedelta(seconds=second))
        except OverflowError:
            return "a time after the year 9999"

    def gpu_model(self, job: Job, replicas: tuple[Replica, ...]) -> str | None:
        """The GPU model of replicas; of several, which no valid plan has, the slowest."""
        return min(self._case.gpu_models(replicas), key=job.speed_milli, default=None)

    def interval_of_placement(self, occupant: JudgedPlacement, job: Job) -> Interval:
        """
        Duration of a placement that begins now.

        A running job takes its remaining time. If every replica is new, it also has to resume from its
        checkpoint, at the speed of its new places.
        """
        placement = occupant.placement
        if job.running is None:
            return self._beginning(job, 0, placement)
        seconds = self.durations.remaining(job)
        if len(occupant.new) == len(placement.replicas):
            seconds = self.durations.restart_seconds_now(job, self.gpu_model(job, placement.replicas))
        return Interval(job, placement, 0, 0, seconds, self.slots.until(0, seconds))

    def interval_of_start(self, job: Job, slot: int, replicas: tuple[Replica, ...]) -> Interval:
        """Stay of a job that starts on some places with a slot, or of a running job that resumes there."""
        return self._beginning(job, slot, Placement.model_construct(job=job.name, slot=0, replicas=replicas))

    def _beginning(self, job: Job, slot: int, placement: Placement) -> Interval:
        takes = self.durations.seconds if job.running is None else self.durations.again
        seconds = takes(job, self.gpu_model(job, placement.replicas))
        until = self.slots.until(slot, seconds)
        return Interval(job, placement, slot, self.slots.edges[slot], seconds, until)

    @cached_property
    def outcomes(self) -> dict[str, JobOutcome]:
        """Outcomes of finished jobs by name; of several with the same name the last."""
        ended = sorted(self._case.snapshot.finished, key=lambda job: (job.ended_at, job.outcome))
        return {job.name: job.outcome for job in ended}

    @cached_property
    def kept(self) -> frozenset[str]:
        """Names of the running jobs that are unchanged."""
        return frozenset(
            each.placement.job
            for each in self._case.judged_placements
            if each.job
            and each.job.running
            and not each.new
            and len(each.placement.replicas) == len(each.job.running.replicas)
        )

    def must_leave(self, job: Job) -> bool:
        """True if a running job is on a node to be drained, or must leave for a window."""
        if job.running is None:
            return False
        nodes = (self._case.nodes.get(replica.node) for replica in job.running.replicas)
        return any(node.drain for node in nodes if node) or self.windows.forced_leave_window(job) is not None

    @cached_property
    def now(self) -> tuple[Interval, ...]:
        """Stays of the placements of known jobs."""
        return tuple(
            self.interval_of_placement(occupant, occupant.job)
            for occupant in self._case.judged_placements
            if occupant.job
        )

    @cached_property
    def starting(self) -> tuple[Interval, ...]:
        """Stays of the starts now."""
        return tuple(
            self.interval_of_placement(occupant, job)
            for job, occupant in self._case.arrivals
            if job.running is None
        )

    @cached_property
    def later(self) -> tuple[Interval, ...]:
        """Valid later starts: of jobs not placed now, once, in existing slots; by slot and job."""
        times = Counter(each.job for each in self._case.planned)
        placed = {placement.job for placement in self._case.placements}
        found = [
            self.interval_of_start(job, each.slot, each.replicas)
            for each in self._case.planned
            if (job := self._case.jobs.get(each.job))
            and not job.held
            and job.name not in placed
            and times[job.name] == 1
            and 1 <= each.slot < self.slots.count
            and each.replicas
        ]
        return tuple(sorted(found, key=lambda stay: (stay.slot, stay.job.name)))

    @cached_property
    def starts(self) -> dict[str, Interval]:
        """All starts, now and later, by job; for a job placed twice the longest."""
        found: dict[str, Interval] = {}
        for stay in (*self.starting, *self.later):
            other = found.get(stay.job.name)
            # The choice does not matter, but must not depend on their order.
            if other is None or (stay.seconds, str(stay.placement)) > (other.seconds, str(other.placement)):
                found[stay.job.name] = stay
        return found
