"""sweep(…) → Sweep: plan every combination of the values of one or two knobs, and find the Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.base import Noun
from gpuplan.models.value.job_value import has_same_points
from gpuplan.planner.whatif.grid import GridPoint, Knob
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, Better, PlanFigures
from gpuplan.planner.whatif.runner import Variant, WhatIf, Workers, asked_of, planned_figures, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.patch.patch import PatchedSnapshot


class SweepPoint(Noun):
    """One combination of values and the result of planning it."""

    values: tuple[str, ...]
    """One value per knob, in the order of the knobs."""
    figures: PlanFigures | None = None
    failure: str = ""
    """Why planning failed."""
    on_front: bool = False
    """True if no other point is better in one of the weighed figures and at least as good in the other."""


class Sweep(WhatIf):
    """All combinations; the values of the last knob vary fastest."""

    knobs: tuple[Knob, ...]
    weighed: tuple[str, str]
    """The two figures of the Pareto front."""
    same_points: bool = True
    """True if all points value jobs the same. If not, objectives are not compared and form no front."""
    points: tuple[SweepPoint, ...]

    @property
    def sound(self) -> bool:
        """True if planning succeeded for all points."""
        return not any(point.failure for point in self.points)


def sweep(
    snapshot: Snapshot,
    policy: Policy,
    knobs: Sequence[Knob],
    points: Sequence[tuple[GridPoint, PatchedSnapshot]],
    workers: Workers,
    *,
    seed: int,
    weighed: tuple[str, str],
    ended: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Plan all points of a grid; `weighed` names the two figures of the front."""
    variants = [
        Variant(point.name, patched.snapshot, patched.policy, seed, planned_figures)
        for point, patched in points
    ]
    results = run(variants, workers, ended)
    comparable = all(has_same_points(each.snapshot, policy, each.policy) for each in variants)
    compared = comparable or IN_POINTS.isdisjoint(weighed)
    front = pareto_front([found.value for found in results], weighed) if compared else set()
    return Sweep(
        **asked_of(snapshot, policy, seed),
        knobs=tuple(knobs),
        weighed=weighed,
        same_points=comparable,
        points=tuple(
            SweepPoint(
                values=point.values, figures=found.value, failure=found.failure, on_front=index in front
            )
            for index, ((point, _), found) in enumerate(zip(points, results, strict=True))
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
        scores.append(-value if MEASURES[name].better is Better.LESS else value)
    return tuple(scores)
