"""Outcome of each job in a scenario compared with the base, and the work that the changes themselves lose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.models.base import Noun
from gpuplan.models.units import MILLI, SECONDS_PER_HOUR, Name, Timestamp, print_milli
from gpuplan.models.value.disruption_cost import disruption_points
from gpuplan.planner.analysis.job_changes import unsaved_gpu_milli_seconds
from gpuplan.planner.text_format import format_gpus, format_time, join_first_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


class JobOutcomeKind(StrEnum):
    """Outcome of a job in a scenario compared with the base; the worst comes first."""

    STOPS = "stops"
    """It runs now and keeps running in the base; in the scenario it waits."""
    LOSES = "loses"
    """It has fewer replicas than in the base, or does not start."""
    WAITS_LONGER = "waits_longer"
    """It waits in both, and its start is later than in the base, or unknown."""
    MOVES = "moves"
    """It runs now and keeps its nodes in the base; in the scenario it restarts on other nodes."""
    GAINS = "gains"
    """It has more replicas than in the base, starts, or starts earlier."""


class JobOutcomeChange(Noun):
    """A job with an outcome in a scenario that differs from the base."""

    job: Name
    """Name of the job."""
    queue: Name
    """Queue that it belongs to."""
    user: Name
    """User that submitted it."""
    fate: JobOutcomeKind
    """Outcome compared with the base."""
    stopped_by_changes: bool = False
    """True if the changes themselves stop it before planning, such as a failed node."""
    gpus: float
    """GPUs held in the scenario minus GPUs held in the base."""
    lost_gpu_hours: float = 0.0
    """Unsaved work that it loses in the scenario, in GPU-hours."""
    starts_before: Timestamp | None = None
    """Projected start in the base, if it waits there and the start is known."""
    starts_after: Timestamp | None = None
    """Projected start in the scenario, if it waits there and the start is known."""
    text: str
    """The outcome in words."""


_ORDER: Final = tuple(JobOutcomeKind)


@dataclass(frozen=True, slots=True)
class JobForecast:
    """What a plan does with one job."""

    action: str
    """Type of its action: `start`, `keep`, `wait` and so on."""
    placement: Placement | None
    """Placement in the plan; None if the job waits."""
    starts: datetime | None
    """Projected start, if the job waits and the start is known."""
    lost_gpu_hours: float
    """Work that the plan itself loses."""
    why: str

    @property
    def runs(self) -> bool:
        """True if it runs once the plan is applied."""
        return self.placement is not None

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs that it holds in the plan."""
        return self.placement.quota_milli if self.placement else 0

    @property
    def replicas(self) -> int:
        """Replicas that run in the plan."""
        return len(self.placement.replicas) if self.placement else 0


@dataclass(frozen=True, slots=True)
class LostByChanges:
    """Losses from the changes of a scenario, before planning."""

    gpu_hours: dict[str, float]
    """Lost work by job that the changes stop."""
    points: int
    """Disruption cost of these jobs in points."""


def job_forecasts(plan: Plan) -> dict[str, JobForecast]:
    """Collect what a plan does with each job, by name."""
    placed = {placement.job: placement for placement in plan.placements}
    waiting = {each.job: each for each in plan.waiting}
    found = {}
    for action in plan.actions:
        job = getattr(action, "job", None)
        if job is None:
            continue
        waits = waiting.get(job)
        found[job] = JobForecast(
            action=action.type,
            placement=placed.get(job),
            starts=waits.projected_start if waits else None,
            lost_gpu_hours=float(action.reason.numbers.get("lost_gpu_hours", 0)),
            why=action.reason.text,
        )
    return found


def lost_by_changes(base: Snapshot, changed: Snapshot, policy: Policy) -> LostByChanges:
    """Losses of jobs that run in the base and that the changes alone stop."""
    after, now = changed.job_by_name, base.taken_at
    stopped = [
        job
        for job in base.jobs
        if job.running is not None and job.name in after and after[job.name].running is None
    ]
    return LostByChanges(
        {job.name: _gpu_hours(unsaved_gpu_milli_seconds(job, now)) for job in stopped},
        sum(disruption_points(policy, job, now) for job in stopped),
    )


def job_outcome_changes(
    base: Snapshot, before: dict[str, JobForecast], after: dict[str, JobForecast], lost: LostByChanges
) -> tuple[JobOutcomeChange, ...]:
    """Jobs with an outcome that differs from the base, by outcome, then most GPUs first."""
    found = [
        fate
        for job in base.jobs
        if job.name in before and job.name in after
        for fate in _fate(job, before[job.name], after[job.name], lost, base.taken_at)
    ]
    return tuple(sorted(found, key=lambda each: (_ORDER.index(each.fate), -abs(each.gpus), each.job)))


def _fate(
    job: Job, before: JobForecast, after: JobForecast, lost: LostByChanges, now: datetime
) -> Iterator[JobOutcomeChange]:
    """Yield the outcome of a job if it differs from the base."""
    told = _told(job, before, after, now)
    if told is None:
        return
    fate, words = told
    killed = job.name in lost.gpu_hours
    yield JobOutcomeChange(
        job=job.name,
        queue=job.queue,
        user=job.user,
        fate=fate,
        stopped_by_changes=killed,
        gpus=print_milli(after.gpu_milli - before.gpu_milli),
        lost_gpu_hours=round(lost.gpu_hours.get(job.name, 0.0) + after.lost_gpu_hours, 3),
        starts_before=before.starts,
        starts_after=after.starts,
        text=words,
    )


def _told(
    job: Job, before: JobForecast, after: JobForecast, now: datetime
) -> tuple[JobOutcomeKind, str] | None:
    """Outcome of a job as a class and in words; None if it does not differ."""
    if before.placement and not after.placement:
        fate = JobOutcomeKind.STOPS if job.running else JobOutcomeKind.LOSES
        return fate, f"{'stops' if job.running else 'does not start'}: {after.why}"
    if after.replicas != before.replicas:
        fate = JobOutcomeKind.GAINS if after.replicas > before.replicas else JobOutcomeKind.LOSES
        if not before.placement:
            return fate, "goes on" if job.running else "starts"
        return fate, f"{format_gpus(before.gpu_milli)} → {format_gpus(after.gpu_milli)}"
    if not before.placement or not after.placement:
        return _wait(before.starts, after.starts, now)
    here = job.placement
    if here is not None and _places(before.placement) == _places(here) != _places(after.placement):
        return (
            JobOutcomeKind.MOVES,
            f"{join_first_names(_places(here))} → {join_first_names(_places(after.placement))}",
        )
    return None


def _wait(
    before: datetime | None, after: datetime | None, now: datetime
) -> tuple[JobOutcomeKind, str] | None:
    """Outcome of a job that waits in both; no difference if its start is unknown in both."""
    if before == after:
        return None
    told = [f"start at {format_time(each, now)}" if each else "no start foreseen" for each in (before, after)]
    later = after is None or (before is not None and after > before)
    return JobOutcomeKind.WAITS_LONGER if later else JobOutcomeKind.GAINS, " → ".join(told)


def _places(placement: Placement) -> tuple[str, ...]:
    """The nodes of its replicas, one entry per replica."""
    return tuple(sorted(replica.node for replica in placement.replicas))


def _gpu_hours(gpu_milli_seconds: int) -> float:
    return round(gpu_milli_seconds / (MILLI * SECONDS_PER_HOUR), 3)
