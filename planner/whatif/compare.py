"""compare(…) → Comparison: plan the base and every scenario in the same way, and check expectations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.value.job_value import has_same_points
from gpuplan.planner.analysis.policy_changes import settings_without_effect
from gpuplan.planner.whatif.answers.comparison import IN_POINTS, Comparison, PlanFigures, Trial
from gpuplan.planner.whatif.grid.workers import run_all_tasks
from gpuplan.planner.whatif.job_outcomes import job_outcome_changes, lost_by_changes
from gpuplan.planner.whatif.patch.apply_changes import PatchedSnapshot
from gpuplan.planner.whatif.patch.scenario import check_passes
from gpuplan.planner.whatif.trials import TrialCase, task_of, trial_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.grid.workers import Workers
    from gpuplan.planner.whatif.job_outcomes import LostByChanges
    from gpuplan.planner.whatif.patch.scenario import Scenario
    from gpuplan.planner.whatif.trials import TrialResult

BASE: Final = "base"

_NO_FIGURES: Final = frozenset({"plan_id", "status", "solver", "seconds", "terms", "waiting", "gpu_models"})
"""Fields of `PlanFigures` that are not compared as figures."""

COMPARED: Final = tuple(name for name in PlanFigures.model_fields if name not in _NO_FIGURES)


def compare(
    snapshot: Snapshot,
    policy: Policy,
    scenarios: Sequence[tuple[Scenario, PatchedSnapshot]],
    engine: Workers,
    *,
    seed: int,
    ended: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Plan the base and all scenarios on an engine; `ended` is called with the name of each finished one."""
    cases = [TrialCase(snapshot, policy, seed, by_job=True)]
    for scenario, patched in scenarios:
        asked = tuple(each.job for each in scenario.expectations if each.job is not None)
        cases.append(TrialCase(patched.snapshot, patched.policy, seed, asked, by_job=True))
    names = [BASE, *(scenario.name for scenario, _ in scenarios)]
    outcomes = run_all_tasks(engine, [task_of(case) for case in cases], names, ended)
    results = [trial_result(outcome) for outcome in outcomes]
    base = results[0]
    return Comparison(
        snapshot=snapshot.fingerprint(),
        policy=policy.fingerprint(),
        epoch=snapshot.taken_at,
        seed=seed,
        base=Trial(
            name=BASE,
            figures=base.figures,
            failure=base.failure,
            goal=_goal(policy),
            warnings=tuple(settings_without_effect(policy, snapshot)),
        ),
        scenarios=tuple(
            _trial(scenario, found, base, PatchedSnapshot(snapshot, policy), patched)
            for (scenario, patched), found in zip(scenarios, results[1:], strict=True)
        ),
    )


def _trial(
    scenario: Scenario,
    found: TrialResult,
    base: TrialResult,
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
    if found.figures is None:
        return trial
    lost = lost_by_changes(before.snapshot, patched.snapshot, patched.policy)
    figures = _with_losses(found.figures, lost)
    update = {
        "figures": figures,
        "unmet": tuple(_unmet(scenario, found, figures, base.figures, comparable=comparable)),
        "differences": {}
        if base.figures is None
        else figure_differences(figures, base.figures, comparable=comparable),
        "jobs": job_outcome_changes(before.snapshot, base.job_forecasts, found.job_forecasts, lost),
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
    for name in COMPARED:
        if name in IN_POINTS and not comparable:
            continue
        here, there = figures.figure(name), base.figure(name)
        if here is not None and there is not None and here != there:
            found[name] = round(here - there, 6)
    return found


def _unmet(
    scenario: Scenario,
    found: TrialResult,
    figures: PlanFigures,
    base: PlanFigures | None,
    *,
    comparable: bool,
) -> Iterator[str]:
    for expectation in scenario.expectations:
        if expectation.job is not None and (expectation.job in found.runs) != expectation.runs:
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
