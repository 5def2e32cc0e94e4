"""sweep(…) → Sweep: plan every combination of the knobs' values, and find the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.value.job_value import has_same_points
from gpuplan.planner.whatif.answers.comparison import IN_POINTS
from gpuplan.planner.whatif.answers.sweep import Knob, Sweep, SweepPoint
from gpuplan.planner.whatif.grid.workers import run_all_tasks
from gpuplan.planner.whatif.trials import TrialCase, task_of, trial_result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.answers.comparison import PlanFigures
    from gpuplan.planner.whatif.grid.workers import Workers
    from gpuplan.planner.whatif.patch.apply_changes import PatchedSnapshot

BETTER_LESS: Final = frozenset(
    {
        "jobs_waiting",
        "jobs_preempted",
        "fragmentation_ratio",
        "lost_gpu_hours",
        "nodes_added",
        "nodes_removed",
        "hourly_cost",
        "gap",
    }
)
"""Figures where less is better; for all others more is better."""


def sweep(
    snapshot: Snapshot,
    policy: Policy,
    knobs: Sequence[Knob],
    worlds: Sequence[tuple[tuple[str, ...], PatchedSnapshot]],
    engine: Workers,
    *,
    seed: int,
    weighed: tuple[str, str],
    ended: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Plan the world of every combination; `weighed` names the two figures of the front."""
    tasks = [task_of(TrialCase(patched.snapshot, patched.policy, seed)) for _, patched in worlds]
    names = [
        ", ".join(f"{knob.name}={value}" for knob, value in zip(knobs, values, strict=True))
        for values, _ in worlds
    ]
    results = [trial_result(outcome) for outcome in run_all_tasks(engine, tasks, names, ended)]
    comparable = all(has_same_points(patched.snapshot, policy, patched.policy) for _, patched in worlds)
    compared = comparable or IN_POINTS.isdisjoint(weighed)
    front = pareto_front([found.figures for found in results], weighed) if compared else set()
    return Sweep(
        snapshot=snapshot.fingerprint(),
        policy=policy.fingerprint(),
        epoch=snapshot.taken_at,
        seed=seed,
        knobs=tuple(knobs),
        weighed=weighed,
        same_points=comparable,
        points=tuple(
            SweepPoint(values=values, figures=found.figures, failure=found.failure, on_front=index in front)
            for index, ((values, _), found) in enumerate(zip(worlds, results, strict=True))
        ),
    )


def pareto_front(points: Sequence[PlanFigures | None], weighed: tuple[str, str]) -> set[int]:
    """Indices of the points that no other point dominates; points with equal figures share the front."""
    worth = {
        index: scores
        for index, figures in enumerate(points)
        if figures is not None and (scores := _scores(figures, weighed)) is not None
    }
    return {
        index
        for index, mine in worth.items()
        if not any(
            other != mine and all(one >= own for one, own in zip(other, mine, strict=True))
            for other in worth.values()
        )
    }


def _scores(figures: PlanFigures, weighed: tuple[str, str]) -> tuple[float, ...] | None:
    """The weighed figures with signs such that more is better; None if one is unknown."""
    scores = []
    for name in weighed:
        value = figures.figure(name)
        if value is None:
            return None
        scores.append(-value if name in BETTER_LESS else value)
    return tuple(scores)
