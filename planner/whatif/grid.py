"""
Grid: knobs as axes, a patch for each combination of their values, and the sweep that plans all of them.

A knob is written as `NAME=value,value,…`; each value becomes a change:

    prices.guarantee=0,100     a setting of the policy, by its path
    quota:research=8,16        nominal quota of a queue
    demand=1,2,10              multiple of the waiting jobs; demand:QUEUE for those of one queue
    pool:spot=0,4,8            number of nodes added to a pool
    like:h100-1=0,1,2          number of nodes added like an existing one
    price:spot=1,2.5           price of a pool's new nodes
    solver=milp,greedy
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.base import Noun
from gpuplan.models.errors import BadInputError, InputProblem, Suggestions
from gpuplan.models.value.job_value import has_same_points
from gpuplan.planner.sources.documents.build_snapshot import validate_noun
from gpuplan.planner.sources.documents.documents import read_yaml
from gpuplan.planner.sources.documents.tokens import RefusedError
from gpuplan.planner.whatif.measures import IN_POINTS, MEASURES, Better, PlanFigures
from gpuplan.planner.whatif.patch.job_changes import ScaleDemand
from gpuplan.planner.whatif.patch.node_changes import AddNodes
from gpuplan.planner.whatif.patch.scenario import Change, Patch, PatchedSnapshot, apply_patch
from gpuplan.planner.whatif.patch.setting_changes import (
    PartialPolicy,
    SetPolicy,
    SetPrice,
    SetQuota,
    SetSolver,
    merge_documents,
)
from gpuplan.planner.whatif.runner import Variant, WhatIf, Workers, asked_of, planned_figures, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


# The plans are as many as the product of the numbers of values.
_MOST_KNOBS: Final = 2

_KNOBS: Final[dict[str, tuple[type[Change], Callable[[str, Any], dict[str, Any]]]]] = {
    "demand": (ScaleDemand, lambda _, value: {"change": "scale_demand", "factor": value}),
    "demand:": (ScaleDemand, lambda of, value: {"change": "scale_demand", "queue": of, "factor": value}),
    "like:": (AddNodes, lambda of, value: {"change": "add_nodes", "like": of, "count": value}),
    "pool:": (AddNodes, lambda of, value: {"change": "add_nodes", "pool": of, "count": value}),
    "price:": (SetPrice, lambda of, value: {"change": "set_price", "pools": [of], "value": value}),
    "quota:": (SetQuota, lambda of, value: {"change": "set_quota", "queue": of, "nominal": value}),
    "solver": (SetSolver, lambda _, value: {"change": "set_solver", "solver": value}),
}
"""Knobs outside the policy; a colon is followed by a name."""

_ADDS: Final = ("pool:", "like:")
"""Knobs that add nodes: value 0 is no change."""


class Knob(Noun):
    """An axis of a grid: a setting and its values."""

    name: str
    """Name as given, such as `prices.guarantee` or `quota:research`."""
    values: tuple[str, ...]
    """In the order given."""


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One combination of values as a patch."""

    values: tuple[str, ...]
    """One value per knob, in the order of the knobs."""
    name: str
    """`quota:research=8, demand=2`."""
    patch: Patch
    origins: tuple[str, ...]
    """The knobs with their values from which each change of the patch comes."""


@dataclass(frozen=True)
class Grid:
    """Axes; the values of the last one vary fastest."""

    knobs: tuple[Knob, ...]

    @classmethod
    def read(cls, texts: Sequence[str]) -> Grid:
        """
        Read knobs from the words of a command line.

        Raises
        ------
        BadInputError
            With all problems of all knobs.
        """
        problems, knobs = list[InputProblem](), list[Knob]()
        for text in texts:
            name, equals, values = text.partition("=")
            listed = tuple(value.strip() for value in values.split(","))
            if not (name.strip() and equals and all(listed)):
                message = "expected a knob with its values, such as prices.guarantee=0,100,1000."
                problems.append(InputProblem(text, message))
            elif len(set(listed)) < len(listed):
                problems.append(InputProblem(text, "expected each value once."))
            else:
                knobs.append(Knob(name=name.strip(), values=listed))
        if len({knob.name for knob in knobs}) < len(knobs):
            problems.append(InputProblem(" ".join(texts), "expected each knob once."))
        if len(texts) > _MOST_KNOBS:
            message = f"expected at most {_MOST_KNOBS} knobs, found {len(texts)}."
            problems.append(InputProblem(" ".join(texts), message))
        if problems:
            raise BadInputError(tuple(problems))
        return cls(tuple(knobs))

    def points(self) -> tuple[list[GridPoint], list[InputProblem]]:
        """All combinations, without the changes of invalid values, and the problems of these values."""
        problems: list[InputProblem] = []
        changes: dict[str, Change | None] = {}
        for knob in self.knobs:
            for value in knob.values:
                place = f"{knob.name}={value}"
                changes[place], faults = _change(knob.name, value)
                problems += [InputProblem(place, fault) for fault in faults]
        points = []
        for values in product(*(knob.values for knob in self.knobs)):
            places = [f"{knob.name}={value}" for knob, value in zip(self.knobs, values, strict=True)]
            made = _together({place: change for place in places if (change := changes[place]) is not None})
            patch = Patch(name="sweep", changes=tuple(made.values()))
            points.append(GridPoint(values, ", ".join(places), patch, tuple(made)))
        return points, problems

    def apply(self, snapshot: Snapshot, policy: Policy) -> list[tuple[GridPoint, PatchedSnapshot]]:
        """
        Apply the patch of each combination.

        Raises
        ------
        BadInputError
            With every invalid value, every unknown knob, and every combination that does not fit the base.
        """
        points, faults = self.points()
        problems = dict.fromkeys(faults)
        applied = [(point, apply_patch(snapshot, policy, point.patch)) for point in points]
        for point, patched in applied:
            for misfit in patched.misfits:
                place = point.name if misfit.index is None else point.origins[misfit.index]
                problems[InputProblem(place, misfit.message)] = None
        if problems:
            raise BadInputError(tuple(problems))
        return applied


def _change(name: str, text: str) -> tuple[Change | None, list[str]]:
    """The change that sets a knob to a value, None if nothing changes; and all problems with it."""
    value, near = _read(text), Suggestions()
    kind, colon, of = name.partition(":")
    change: Change | None
    if text == "0" and name.startswith(_ADDS):
        return None, []
    if kind + colon in _KNOBS:
        noun, made = _KNOBS[kind + colon]
        change, problems = validate_noun(made(of, value), noun, lambda _: None, subject="the knob", near=near)
    elif colon or f"{kind}:" in _KNOBS:
        known = [f"{each}NAME" if each.endswith(":") else each for each in _KNOBS]
        hint = near.hint(f"{kind}:NAME", known)
        return None, [f"there is no such knob.\n  Known: {', '.join(known)}, or a path in the policy.{hint}"]
    else:
        for key in reversed(name.split(".")):
            value = {key: value}
        part, problems = validate_noun(value, PartialPolicy, lambda _: None, subject="the policy", near=near)
        change = None if part is None else SetPolicy(change="set_policy", policy=part)
    return change, [problem.message for problem in problems]


def _read(text: str) -> Any:
    """Parse a value as policy files are read (YAML 1.2): a number, a boolean or a text; `on` is a text."""
    try:
        (value,) = read_yaml(text)
    except (RefusedError, ValueError):
        return text
    return value


def _together(changes: dict[str, Change]) -> dict[str, Change]:
    """
    The changes of one combination, by the knobs they come from.

    Policy settings become one change: together they can be valid even if one alone is not.
    """
    made: dict[str, Change] = {
        place: change for place, change in changes.items() if not isinstance(change, SetPolicy)
    }
    rules = {place: change for place, change in changes.items() if isinstance(change, SetPolicy)}
    if rules:
        policy: Any = {}
        for change in rules.values():
            policy = merge_documents(policy, change.stated())
        made[", ".join(rules)] = SetPolicy.model_validate({"change": "set_policy", "policy": policy})
    return made


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
