"""Later starts of a plan, the state of earlier promises, and the promised starts that a start precedes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.plan.forecast import PlannedStart, Waiting
from gpuplan.models.timing.durations import DurationSource
from gpuplan.planner.plan_builder.later.promise_delays import PromiseDelays
from gpuplan.planner.plan_builder.later.start_blockers import StartBlockers
from gpuplan.planner.text_format import format_count, format_duration, format_time

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.plan.reason import Reason
    from gpuplan.planner.analysis.projected_schedule import JobInterval, ProjectedSchedule


@dataclass(frozen=True)
class PlanPromises:
    """Later starts and promises of one plan."""

    future: ProjectedSchedule
    _cache: dict[str, tuple[JobInterval, ...]] = field(default_factory=dict)

    def planned(self) -> tuple[PlannedStart, ...]:
        """Later starts with their times, by job."""
        return tuple(
            PlannedStart(
                job=name,
                slot=each.slot,
                start=self.future.begin(each.slot),
                replicas=each.replicas,
                promised=each.promised,
            )
            for name, each in sorted(self.future.planned.items())
        )

    def waiting(self, name: str, reason: Reason) -> Waiting:
        """A pending job, with its later start if it has one."""
        planned, job = self.future.planned.get(name), self.future.snapshot.job_by_name[name]
        promise = job.promise
        return Waiting(
            job=name,
            reason=reason,
            projected_start=self.future.begin(planned.slot) if planned else None,
            promised=planned is not None and planned.promised,
            earlier_promise=promise.start if promise else None,
            promise_changed=self._slips.text(name) if promise else "",
            waits_for=self._waits_for.text(name) if planned else "",
            remaining=self.future.shortest_run_seconds(job) if job.has_run else None,
        )

    def overtaken_promises(self, name: str) -> tuple[JobInterval, ...]:
        """
        Promised starts on the nodes of a job that starts now, at or after its end; the earliest first.

        The job is backfilled in front of them.
        """
        if name not in self._cache:
            self._cache[name] = tuple(self._behind(name))
        return self._cache[name]

    def kill_at(self, name: str) -> datetime | None:
        """
        Kill time of a job that starts now in front of a promised start: the end of its expected duration.

        None if the duration is only the policy's default, or if the job has fewer replicas than its duration
        is stated for. None also for a job with a promise of its own: its start is no backfill.
        """
        job = self.future.snapshot.job_by_name[name]
        if len(self.future.stays[name].replicas) < job.gang.maximum:
            return None
        if job.promise or not self.future.policy.horizon.backfill.kill or not self.overtaken_promises(name):
            return None
        expected = self.future.durations.expected(job)
        if expected.source is DurationSource.DEFAULT:
            return None
        return self.future.instant_at(self.future.stays[name].seconds)

    def resumes_at(self, name: str) -> datetime | None:
        """When a preempted job starts again; None if the plan has no start for it."""
        planned = self.future.planned.get(name)
        return None if planned is None else self.future.begin(planned.slot)

    def remarks(self, name: str, numbers: dict[str, int | float | str]) -> list[str]:
        """Remarks on the promises that a start concerns: its own, and the promised starts after it."""
        found = []
        now = self.future.snapshot.taken_at
        if (promise := self.future.snapshot.job_by_name[name].promise) is not None:
            numbers["promised_seconds"] = second = self.future.second(promise.start)
            if second > 0:
                found.append(f"earlier than promised ({format_time(promise.start, now)})")
            elif -second < self.future.policy.horizon.length:
                found.append("as promised")
            else:
                found.append(f"promised {format_time(promise.start, now)}, {format_duration(-second)} ago")
        if behind := self.overtaken_promises(name):
            first, *rest = behind
            more = f" and {format_count(len(rest), 'more start')}" if rest else ""
            at = format_time(self.future.instant_at(first.start), now)
            found.append(f"ahead of {first.job.name}'s start at {at}{more}")
            numbers["ahead_of"] = ", ".join(stay.job.name for stay in behind)
        return found

    @cached_property
    def _slips(self) -> PromiseDelays:
        return PromiseDelays(self.future)

    @cached_property
    def _waits_for(self) -> StartBlockers:
        return StartBlockers(self.future)

    def _behind(self, name: str) -> list[JobInterval]:
        if not self.future.planned:
            return []
        stay = self.future.stays[name]
        found = {
            other.job.name: other
            for node in {replica.node for replica in stay.replicas}
            for other in self.future.on_node.get(node, ())
            if (planned := self.future.planned.get(other.job.name)) is not None
            and planned.promised
            and planned.slot >= stay.until
        }
        return sorted(found.values(), key=lambda other: (other.start, other.job.name))
