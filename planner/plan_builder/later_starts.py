"""Later starts of a plan: times and what they wait for, the state of earlier promises, and deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpuplan.models.placement import GpuShare, MigSlice, Replica, quota_of_all
from gpuplan.models.plan.plan import DeadlineOutlook, DeadlineState, PlannedStart, Waiting
from gpuplan.models.timing.durations import DurationSource
from gpuplan.models.units import MILLI
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.projected_schedule import JobInterval, Prerequisites, ProjectedSchedule
from gpuplan.planner.plan_builder.promise_delays import PromiseDelays
from gpuplan.planner.text_format import format_count, format_duration, format_time, join_jobs
from gpuplan.planner.waiting.time_blockers import FutureHolds
from gpuplan.planner.waiting.time_messages import until_done, window_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.plan.reason import Reason


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
        return Waiting.of_valid(
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
        if job.promise or not self.future.policy.horizon.backfill.kill or not self.overtaken_promises(name):
            return None
        if len(self.future.stays[name].replicas) < job.gang.maximum:
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
            found.append(f"ahead of {join_jobs([first.job.name])}'s start at {at}{more}")
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
            for node in stay.nodes
            for other in self.future.on_node.get(node, ())
            if (planned := self.future.planned.get(other.job.name)) is not None
            and planned.promised
            and planned.slot >= stay.until
        }
        return sorted(found.values(), key=lambda other: (other.start, other.job.name))


# Text for what a planned start waits for: what blocks the job in the slot before its start.


class StartBlockers:
    """Texts for the planned starts of one plan; each text continues the word "waits"."""

    def __init__(self, future: ProjectedSchedule) -> None:
        self._future = future
        self._slots = future.slots
        self._prerequisites = Prerequisites(future)
        self._held = FutureHolds(future)
        self._earnings = StartValue(future.snapshot, future.policy, future.durations)

    def text(self, name: str) -> str:
        """What a planned start waits for: the first cause that applies, and `for room` if none does."""
        stay = self._future.stays[name]
        return (
            self._on_its_own_account(stay)
            or self._on_its_nodes(stay)
            or self._on_who_ends(stay, its_gpus=stay.job.request.needs_gpu)
            or self._on_its_group(stay)
            or self._on_quota(stay)
            or self._on_price(stay)
            or self._on_who_ends(stay, its_gpus=False)
            or "for room"
        )

    def _on_its_own_account(self, stay: JobInterval) -> str:
        """Dependencies, a begin time or data, if the job starts in the first slot that they allow."""
        job, now = stay.job, self._future.snapshot.taken_at
        if job.depends_on:
            state = self._prerequisites.dependencies(job)
            if state.needed and state.slot == stay.slot:
                last = [each for each in state.decisive if each.slot == stay.slot]
                return f"until {until_done(last)}"
        data, moment = self._prerequisites.data(job), self._prerequisites.not_before(job)
        if data is not None and self._is_first_after(data[1], stay):
            return f"for dataset {data[0]}, available at {format_time(data[1], now)}"
        if moment is not None and self._is_first_after(moment, stay):
            return f"for its start time, {format_time(moment, now)}"
        return ""

    def _on_its_nodes(self, stay: JobInterval) -> str:
        """Nodes that become ready only then, or that a window would close for a start one slot earlier."""
        now = self._future.snapshot.taken_at
        for name in stay.nodes:
            node = self._future.nodes.get(name)
            if node and not node.ready and node.ready_at and self._is_first_after(node.ready_at, stay):
                return f"for node {name}, ready at {format_time(node.ready_at, now)}"
        earlier = self._slots.edges[stay.slot - 1]
        for name in stay.nodes:
            window = self._future.windows.blocking_window(stay.job, name, earlier, stay.seconds)
            if window is not None:
                return f"until {window_text(window, self._future)} is over"
        return ""

    def _on_who_ends(self, stay: JobInterval, *, its_gpus: bool) -> str:
        """Jobs that end in that slot on its GPUs, or anywhere on its nodes."""
        ending = {
            other.job.name
            for name in stay.nodes
            for other in self._future.on_node.get(name, ())
            if other.until == stay.slot
            and other.job.name != stay.job.name
            and (not its_gpus or overlap(stay.replicas, other.replicas))
        }
        return f"until {_end(sorted(ending))}" if ending else ""

    def _on_its_group(self, stay: JobInterval) -> str:
        """Other jobs of its co-start group."""
        group = stay.job.co_start
        if group is None:
            return ""
        others = sorted(
            other.job.name
            for other in self._future.stays.values()
            if other.job.co_start == group and other.slot == stay.slot and other.job.name != stay.job.name
        )
        return f"for its group {group}" if others else ""

    def _on_quota(self, stay: JobInterval) -> str:
        """A limit of its queue or of an ancestor that a start one slot earlier would exceed."""
        room = self._held.room(stay.slot - 1)
        model = self._future.gpu_model(stay.job, stay.replicas)
        needed = quota_of_all(stay.replicas)
        found = room.now(stay.job.queue, needed, (model,) if model else ()).shortage
        return f"for quota of queue {found.queue}" if found else ""

    def _on_price(self, stay: JobInterval) -> str:
        """A tariff that is higher one slot earlier."""
        job, replicas = stay.job, len(stay.replicas)
        model = self._future.gpu_model(job, stay.replicas)
        now, before = (
            self._earnings.tariff_points(job, model, replicas, start=start, seconds=stay.seconds)
            for start in (stay.start, self._slots.edges[stay.slot - 1])
        )
        return "for a cheaper time" if before > now else ""

    def _is_first_after(self, moment: datetime, stay: JobInterval) -> bool:
        return self._slots.after(self._future.second(moment)) == stay.slot


def overlap(some: Iterable[Replica], others: Sequence[Replica]) -> bool:
    """True if two jobs hold parts of one GPU that they cannot hold at the same time."""
    return any(
        one.node == other.node and _collide(mine, theirs)
        for one in some
        for other in others
        for mine in one.gpus
        for theirs in other.gpus
    )


def _collide(mine: GpuShare | MigSlice, theirs: GpuShare | MigSlice) -> bool:
    if mine.index != theirs.index:
        return False
    if isinstance(mine, GpuShare) and isinstance(theirs, GpuShare):
        return mine.milli + theirs.milli > MILLI
    # MIG instances of one GPU may overlap or not; the ending job is reported in both cases.
    return True


def _end(names: Sequence[str]) -> str:
    """`a ends`, `a and b end`, `a and 2 others end`."""
    match names:
        case [one]:
            return f"{one} ends"
        case [one, other]:
            return f"{one} and {other} end"
        case _:
            return f"{names[0]} and {len(names) - 1:,} others end"


# Projected completion of each job with a deadline, and whether it is in time.


def deadline_outlooks(future: ProjectedSchedule) -> Iterator[DeadlineOutlook]:
    """One outlook for each job of the snapshot that has a deadline, by job."""
    for job in sorted(future.snapshot.jobs, key=lambda job: job.name):
        if job.deadline is not None:
            yield deadline_outlook(job, future)


def deadline_outlook(job: Job, future: ProjectedSchedule) -> DeadlineOutlook:
    """
    Projected completion of one job with a deadline.

    A job without a start in the plan is late if a start at the end of the horizon would be too late. With a
    single slot this is unknown.

    Raises
    ------
    ValueError
        The job has no deadline.
    """
    if job.deadline is None:
        raise ValueError(f"expected a job with a deadline, found {job.name!r}")
    left = future.second(job.deadline)
    stay = future.stays.get(job.name)
    finish = None if stay is None else stay.end
    return DeadlineOutlook(
        job=job.name,
        deadline=job.deadline,
        hard=job.hard_deadline,
        projected_finish=None if finish is None else future.instant_at(finish),
        state=_state(job, finish, left, future),
    )


def _state(job: Job, finish: int | None, left: int, future: ProjectedSchedule) -> DeadlineState:
    # A job is critical if it can wait for less than half of its duration.
    seconds = future.shortest_run_seconds(job)
    stay = future.stays.get(job.name)
    started = stay is not None and stay.slot == 0
    if finish is not None and finish <= left:
        slack = left - (seconds if stay is None else stay.seconds)
        critical = not started and 2 * slack < (seconds if stay is None else stay.seconds)
        return DeadlineState.CRITICAL if critical else DeadlineState.MET
    if (seconds if finish is None or job.running is None else future.durations.remaining(job)) > left:
        return DeadlineState.IMPOSSIBLE
    if finish is not None:
        return DeadlineState.LATE
    if future.slots.count > 1 and future.slots.end + seconds > left:
        return DeadlineState.LATE
    return DeadlineState.CRITICAL if 2 * (left - seconds) < seconds else DeadlineState.MET
