"""compare(…) → Comparison: plan the base and every scenario in the same way, and check expectations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Count, Name
from gpuplan.models.value.job_value import has_same_points
from gpuplan.planner.analysis.policy_changes import settings_without_effect
from gpuplan.planner.whatif.job_outcomes import (
    JobForecast,
    JobOutcomeChange,
    LostByChanges,
    job_forecasts,
    job_outcome_changes,
    lost_by_changes,
)
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, PlanFigures, plan_figures
from gpuplan.planner.whatif.patch.scenario import PatchedSnapshot, Scenario, check_passes
from gpuplan.planner.whatif.runner import Measured, Variant, WhatIf, Workers, asked_of, planned, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

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
