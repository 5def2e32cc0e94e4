"""
compare(…) → Comparison: plan the base and every scenario in the same way, and check expectations.

The outcome of each job is compared with the base, and the work that the changes themselves lose is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import MILLI, SECONDS_PER_HOUR, Count, Name, Timestamp, print_milli
from gpuplan.models.value.disruption_cost import disruption_points
from gpuplan.models.value.job_value import has_same_points
from gpuplan.planner.analysis.job_changes import unsaved_gpu_milli_seconds
from gpuplan.planner.analysis.policy_changes import settings_without_effect
from gpuplan.planner.text_format import format_gpus, format_time, join_first_names
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, PlanFigures, plan_figures
from gpuplan.planner.whatif.patch.scenario import PatchedSnapshot, Scenario, check_passes
from gpuplan.planner.whatif.runner import Measured, Variant, WhatIf, Workers, asked_of, planned, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


# Jobs in a scenario and in the base.


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


# The scenarios.

BASE: Final = "base"


class Trial(Noun):
    """One world and the result of planning it."""

    name: Name
    """Name of the scenario, or `base`."""
    description: str = ""
    """What the scenario says of itself."""
    figures: PlanFigures | None = None
    """None if planning failed."""
    failure: str = ""
    """Why planning failed."""
    expected: Count = 0
    """Number of expectations of the scenario about its plan: figures, and jobs that run or wait."""
    unmet: tuple[str, ...] = ()
    """Expectations that do not hold, with the values found."""
    goal: str = ""
    """Goal of its policy, in words."""
    same_points: bool = True
    """True if its policy values jobs as the base's policy does. If not, objectives are not compared."""
    warnings: tuple[str, ...] = ()
    """Settings of its policy that affect no job; a scenario omits those that the base lists."""
    differences: dict[str, float] = Field(default_factory=dict)
    """Figures minus those of the base, without zeros."""
    jobs: tuple[JobOutcomeChange, ...] = ()
    """Jobs of the base with a different outcome here, the worst outcome first."""


class Comparison(WhatIf):
    """A base and its scenarios, planned in the same way."""

    base: Trial
    """The snapshot as it is."""
    scenarios: tuple[Trial, ...]
    """In the order in which they were given."""

    @property
    def expected(self) -> int:
        """Number of expectations of all scenarios."""
        return sum(trial.expected for trial in self.scenarios)

    @property
    def sound(self) -> bool:
        """True if everything was planned and all expectations hold."""
        return not any(trial.failure or trial.unmet for trial in (self.base, *self.scenarios))


_FiguresAndJobs: TypeAlias = tuple[PlanFigures, dict[str, JobForecast]]


def figures_and_jobs(variant: Variant[Any]) -> _FiguresAndJobs:
    """Make the plan of a variant; measure it, and collect what it does with each job."""
    plan = planned(variant)
    return plan_figures(plan), job_forecasts(plan)


def compare(
    snapshot: Snapshot,
    policy: Policy,
    scenarios: Sequence[tuple[Scenario, PatchedSnapshot]],
    workers: Workers,
    *,
    seed: int,
    ended: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Plan the base and all scenarios; `ended` is called with the name of each finished one."""
    before = PatchedSnapshot(snapshot, policy)
    named = [(BASE, before), *((scenario.name, patched) for scenario, patched in scenarios)]
    variants = [Variant(name, each.snapshot, each.policy, seed, figures_and_jobs) for name, each in named]
    base, *results = run(variants, workers, ended)
    return Comparison(
        **asked_of(snapshot, policy, seed),
        base=Trial(
            name=BASE,
            figures=base.value[0] if base.value else None,
            failure=base.failure,
            goal=_goal(policy),
            warnings=tuple(settings_without_effect(policy, snapshot)),
        ),
        scenarios=tuple(
            _trial(scenario, found, base.value, before, patched)
            for (scenario, patched), found in zip(scenarios, results, strict=True)
        ),
    )


def _trial(
    scenario: Scenario,
    found: Measured[_FiguresAndJobs],
    base: _FiguresAndJobs | None,
    before: PatchedSnapshot,
    patched: PatchedSnapshot,
) -> Trial:
    known = set(settings_without_effect(before.policy, before.snapshot))
    comparable = has_same_points(patched.snapshot, before.policy, patched.policy)
    trial = Trial(
        name=scenario.name,
        description=scenario.description,
        failure=found.failure,
        expected=sum(expectation.statements for expectation in scenario.expectations),
        goal=_goal(patched.policy),
        same_points=comparable,
        warnings=tuple(
            each for each in settings_without_effect(patched.policy, patched.snapshot) if each not in known
        ),
    )
    if found.value is None:
        return trial
    lost = lost_by_changes(before.snapshot, patched.snapshot, patched.policy)
    base_figures, base_jobs = base or (None, {})
    jobs, figures = found.value[1], _with_losses(found.value[0], lost)
    update = {
        "figures": figures,
        "unmet": tuple(_unmet(scenario, jobs, figures, base_figures, comparable=comparable)),
        "differences": {}
        if base_figures is None
        else figure_differences(figures, base_figures, comparable=comparable),
        "jobs": job_outcome_changes(before.snapshot, base_jobs, jobs, lost),
    }
    return trial.model_copy(update=update)


def _with_losses(figures: PlanFigures, lost: LostByChanges) -> PlanFigures:
    """The figures of a plan, with the losses from the scenario's changes added."""
    hours = sum(lost.gpu_hours.values())
    update = {
        "lost_gpu_hours": round(figures.lost_gpu_hours + hours, 3),
        "lost_by_changes_gpu_hours": round(hours, 3),
        "lost_by_changes_points": lost.points,
    }
    return figures.model_copy(update=update)


def _goal(policy: Policy) -> str:
    of_queues = policy.objective.queue_labels
    return f"{policy.objective.words} ({of_queues})" if of_queues else policy.objective.words


def figure_differences(
    figures: PlanFigures, base: PlanFigures, *, comparable: bool = True
) -> dict[str, float]:
    """Figures minus the base's, where they differ; figures in points only if they are comparable."""
    found = {}
    for name in MEASURES:
        if name in IN_POINTS and not comparable:
            continue
        here, there = figures.figure(name), base.figure(name)
        if here is not None and there is not None and here != there:
            found[name] = round(here - there, 6)
    return found


def _unmet(
    scenario: Scenario,
    jobs: dict[str, JobForecast],
    figures: PlanFigures,
    base: PlanFigures | None,
    *,
    comparable: bool,
) -> Iterator[str]:
    for expectation in scenario.expectations:
        if expectation.job is not None and jobs[expectation.job].runs != expectation.runs:
            expected, is_so = ("to run", "waits") if expectation.runs else ("to wait", "runs")
            yield f"expected job {expectation.job} {expected}; it {is_so}"
        for name, check in expectation.checks.items():
            value = figures.figure(name)
            there = None if base is None else base.figure(name)
            if value is None:
                yield f"expected {name} {check}; it is not known"
            elif name in IN_POINTS and "base" in check and not comparable:
                yield f"expected {name} {check}; points of the base's policy are others and not comparable"
            elif there is None and "base" in check:
                yield f"expected {name} {check}; that of the base is not known"
            elif not check_passes(check, value, there or 0.0):
                of_base = f" (base {there:,g})" if "base" in check and there is not None else ""
                yield f"expected {name} {check}; found {value:,g}{of_base}"
