"""Plan one world with the production planner, and compute the figures of its plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import Start
from gpuplan.models.timing.durations import Durations
from gpuplan.models.units import print_milli
from gpuplan.planner.analysis.effects import cluster_after
from gpuplan.planner.analysis.job_changes import lost_gpu_hours
from gpuplan.planner.analysis.metrics import gpus_in_use
from gpuplan.planner.epoch import limits_of, plan_epoch
from gpuplan.planner.whatif.answers.comparison import ModelUse, PlanFigures
from gpuplan.planner.whatif.grid.workers import WorkerTask
from gpuplan.planner.whatif.job_outcomes import JobForecast, job_forecasts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.solvers.worker import ChildOutcome

FIGURES: Final = "gpuplan.planner.whatif.trials:attempt"
PLAN: Final = "gpuplan.planner.whatif.trials:planned"
"""Entry points of a task: the figures of a plan, or the whole plan."""

_SECONDS: Final = 120.0
_SECONDS_PER_JOB: Final = 0.01
"""Generous time for everything besides the search; a task that takes longer is taken to hang."""


@dataclass(frozen=True, slots=True)
class TrialCase:
    """A snapshot to plan under a policy."""

    snapshot: Snapshot
    policy: Policy
    seed: int
    asked: tuple[str, ...] = ()
    """Jobs for which `TrialResult.runs` is computed."""
    by_job: bool = False
    """True if `TrialResult.job_forecasts` is computed."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of planning a world: its figures, or why there are none."""

    figures: PlanFigures | None = None
    failure: str = ""
    runs: frozenset[str] = frozenset()
    """Those of the jobs in `TrialCase.asked` that run."""
    job_forecasts: dict[str, JobForecast] = field(default_factory=dict)
    """Outcome of each job, if `TrialCase.by_job` is set."""


def task_of(case: TrialCase, entry: str = FIGURES) -> WorkerTask:
    """Build the task that plans a world, for an engine."""
    limit = limits_of(case.policy, case.seed).seconds
    allowed = _SECONDS + _SECONDS_PER_JOB * len(case.snapshot.jobs)
    return WorkerTask(entry, (case,), limit + allowed)


def planned(case: TrialCase, _report: Callable[[object], None]) -> Plan | str:
    """Plan a world; return the message if gpuplan raises an expected error."""
    snapshot = case.snapshot
    try:
        return plan_epoch(snapshot, case.policy, seed=case.seed, created_at=snapshot.taken_at)
    except PlannerError as error:
        return str(error)


def attempt(case: TrialCase, report: Callable[[object], None]) -> TrialResult:
    """Plan a world and compute its figures."""
    plan = planned(case, report)
    if isinstance(plan, str):
        return TrialResult(failure=plan)
    running = {placement.job for placement in plan.placements}
    return TrialResult(
        plan_figures(plan),
        runs=frozenset(running & set(case.asked)),
        job_forecasts=job_forecasts(plan) if case.by_job else {},
    )


def trial_result(outcome: ChildOutcome) -> TrialResult:
    """Convert the outcome of a task, also if its process failed or was killed."""
    if isinstance(outcome.last, TrialResult):
        return outcome.last
    return TrialResult(failure=failure_text(outcome, "planning"))


def failure_text(outcome: ChildOutcome, what: str) -> str:
    """Why a task has no result; `what` names the task in one word."""
    if outcome.killed:
        return f"{what} did not end in time and was killed"
    return f"{what} {outcome.failure or 'gave no answer'}"


def plan_figures(plan: Plan) -> PlanFigures:
    """Compute the figures of a plan."""
    target, solution, metrics = plan.target, plan.solution, plan.metrics
    used, usable = gpus_in_use(cluster_after(plan.snapshot, target), plan.placements)
    reasons = Counter(waiting.reason.code for waiting in plan.waiting)
    jobs, now = plan.snapshot.job_by_name, plan.snapshot.taken_at
    started = [jobs[action.job] for action in plan.actions if isinstance(action, Start)]
    waiting = [jobs[each.job] for each in plan.waiting if not jobs[each.job].held]
    durations = Durations(plan.snapshot, plan.policy)
    return PlanFigures(
        plan_id=plan.plan_id,
        jobs_running=metrics.jobs.running,
        jobs_started=metrics.jobs.started,
        jobs_waiting=metrics.jobs.waiting,
        jobs_preempted=metrics.jobs.preempted,
        started_waited_seconds=_mean([job.waiting_seconds(now) for job in started]),
        started_left_seconds=_mean([durations.left(job) for job in started]),
        waiting_waited_seconds=_mean([job.waiting_seconds(now) for job in waiting]),
        gpus_total=print_milli(usable.total()),
        gpus_held=print_milli(used.total()),
        gpus_free=print_milli(usable.total() - used.total()),
        gpu_allocation_ratio=metrics.gpu_allocation_ratio,
        fragmentation_ratio=metrics.fragmentation_ratio,
        jain_index=metrics.jain_index,
        lost_gpu_hours=lost_gpu_hours(plan.actions),
        nodes_added=len(target.added),
        nodes_removed=len(target.removed),
        hourly_cost=metrics.hourly_cost,
        objective=solution.objective,
        bound=solution.bound,
        gap=solution.gap,
        status=solution.status,
        solver=solution.solver,
        seconds=round(solution.seconds, 3),
        terms=dict(sorted(solution.terms.items())),
        waiting=dict(sorted(reasons.items())),
        gpu_models=tuple(
            ModelUse(gpu_model=model, usable=print_milli(usable[model]), used=print_milli(used[model]))
            for model in sorted(usable)
        ),
    )


def _mean(seconds: Sequence[int]) -> int | None:
    return round(sum(seconds) / len(seconds)) if seconds else None
