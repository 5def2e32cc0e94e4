"""Single jobs that block a job: without one of them it fits. The cheapest to stop come first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpuplan.models.units import MILLI
from gpuplan.models.value.disruption_cost import disruption_points
from gpuplan.models.value.start_value import StartValue
from gpuplan.planner.analysis.job_changes import unsaved_gpu_milli_seconds
from gpuplan.planner.explain.answers.remedies import RemedyKind, RemedyPart
from gpuplan.planner.explain.remedies.relaxation import Relaxation
from gpuplan.planner.text_format import join_first_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.planner.explain.feasibility import PlanFeasibility
    from gpuplan.planner.explain.hypothesis import Hypothesis

_MOST_ASKED: Final = 400
"""Most jobs that get the full check. They are taken in order of cost, so the rest would cost more."""


def preemption_prices(ground: PlanFeasibility) -> dict[str, int]:
    """By placed job, the most points its stop can cost: the value of its work plus its disruption cost."""
    plan = ground.plan
    earnings = StartValue(plan.snapshot, plan.policy)
    jobs, now = plan.snapshot.job_by_name, plan.snapshot.taken_at
    return {
        name: earnings.full_points(jobs[name]) + disruption_points(plan.policy, jobs[name], now)
        for name in ground.placed
    }


def jobs_in_the_way(question: Hypothesis, ground: PlanFeasibility, prices: dict[str, int]) -> list[str]:
    """Jobs that block alone, cheapest first; of jobs that start together, only the cheapest."""
    found: list[str] = []
    asked = 0
    question = max(question.by_member(), key=lambda each: _missing(each, ground))
    counts, missing = ground.counting.counts(question), _missing(question, ground)
    models: dict[tuple[str, frozenset[tuple[str, int]]], bool] = {}
    told: set[str] = set()
    for name in sorted(ground.placed.keys() - question.gone, key=lambda name: (prices[name], name)):
        if name in told:
            continue
        told |= (party := _party(name, ground))
        without = replace(question, stopped=question.stopped | party)
        if missing > 0 and ground.counting.gained(party, question, counts, enough=missing) < missing:
            continue
        if question.job.request.needs_gpu and len(party) == 1:
            kind = ground.plan.snapshot.job_by_name[name].queue, frozenset(ground.quotas.held(name).items())
            if kind not in models:
                models[kind] = bool(ground.allowed_models(without))
            if not models[kind]:
                continue
        asked += 1
        if ground.has_room(without):
            found.append(name)
        if asked == _MOST_ASKED:
            break
    return found


def _missing(question: Hypothesis, ground: PlanFeasibility) -> int:
    """Replicas of the job that no node takes; negative if there is capacity for more than it has."""
    return question.job.gang.minimum - sum(ground.counting.counts(question).values())


def _party(name: str, ground: PlanFeasibility) -> frozenset[str]:
    """A job and all jobs that the plan starts with it; none of them starts without the others."""
    job = ground.plan.snapshot.job_by_name[name]
    if job.running is not None:
        return frozenset({name})
    return frozenset({name, *ground.outlook.co_start_jobs(job)}) & ground.placed.keys()


def stop_relaxation(name: str, ground: PlanFeasibility) -> Relaxation:
    """Stop a running job, or drop the plan's start of a waiting one."""
    job, party = ground.plan.snapshot.job_by_name[name], _party(name, ground)
    subject = f"{name} (queue {job.queue}, priority {job.priority:,})"
    kind, text = RemedyKind.STOP, f"stop {subject}"
    if job.running is None:
        others = sorted(party - {name})
        subject = f"{subject}, and {join_first_names(others)} with it," if others else subject
        kind, text = RemedyKind.DEFER, f"let {subject} wait instead of starting in this plan"
    part = RemedyPart(kind=kind, subject=name, text=text)
    return Relaxation(
        1, lambda question, _: replace(question, stopped=question.stopped | party), lambda _: part
    )


def unsaved_gpu_hours(names: Iterable[str], ground: PlanFeasibility) -> float:
    """GPU-hours of work of running jobs since their last checkpoints."""
    plan = ground.plan
    jobs, now = plan.snapshot.job_by_name, plan.snapshot.taken_at
    total = sum(unsaved_gpu_milli_seconds(jobs[name], now) for name in names)
    return round(total / (MILLI * 3600), 3)
