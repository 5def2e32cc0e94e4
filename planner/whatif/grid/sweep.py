"""sweep(…) → Sweep: parse knobs, plan every combination of their values, and find the Pareto front."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

import yaml

from gpuplan.models.errors import BadInputError, InputProblem, Suggestions
from gpuplan.models.value.job_value import has_same_points
from gpuplan.planner.sources.documents.build_snapshot import validate_noun
from gpuplan.planner.whatif.answers.comparison import IN_POINTS
from gpuplan.planner.whatif.answers.sweep import Knob, Sweep, SweepPoint
from gpuplan.planner.whatif.grid.workers import run_all_tasks
from gpuplan.planner.whatif.patch.apply_changes import patch
from gpuplan.planner.whatif.patch.scenario import Scenario
from gpuplan.planner.whatif.patch.scenario_changes import (
    AddNodes,
    PartialPolicy,
    ScaleDemand,
    SetPolicy,
    SetPrice,
    SetQuota,
    SetSolver,
)
from gpuplan.planner.whatif.patch.snapshot_changes import merge_documents
from gpuplan.planner.whatif.trials import TrialCase, task_of, trial_result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.answers.comparison import PlanFigures
    from gpuplan.planner.whatif.grid.workers import Workers
    from gpuplan.planner.whatif.patch.apply_changes import PatchedSnapshot
    from gpuplan.planner.whatif.patch.scenario_changes import Change


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


# Knobs of a sweep: `NAME=value,value,…`; each value becomes a change of a scenario.
#
#     prices.guarantee=0,100     a setting of the policy, by its path
#     quota:research=8,16        nominal quota of a queue
#     demand=1,2,10              multiple of the waiting jobs; demand:QUEUE for those of one queue
#     pool:spot=0,4,8            number of nodes added to a pool
#     like:h100-1=0,1,2          number of nodes added like an existing one
#     price:spot=1,2.5           price of a pool's new nodes
#     solver=milp,greedy


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


def read_knobs(texts: Sequence[str]) -> list[Knob]:
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
    return knobs


def build_sweep_worlds(
    knobs: Sequence[Knob], snapshot: Snapshot, policy: Policy
) -> list[tuple[tuple[str, ...], PatchedSnapshot]]:
    """
    Build the world for each combination of values; the values of the last knob vary fastest.

    Raises
    ------
    BadInputError
        With every invalid value, every unknown knob, and every combination that does not fit the base.
    """
    problems: dict[InputProblem, None] = {}
    changes: dict[str, Change | None] = {}
    for knob in knobs:
        for value in knob.values:
            place = f"{knob.name}={value}"
            changes[place], faults = _judged(knob.name, value)
            problems |= dict.fromkeys(InputProblem(place, fault) for fault in faults)
    made = []
    for values in product(*(knob.values for knob in knobs)):
        places = [f"{knob.name}={value}" for knob, value in zip(knobs, values, strict=True)]
        together = _together({place: change for place in places if (change := changes[place]) is not None})
        patched = patch(snapshot, policy, Scenario(name="sweep", changes=tuple(together.values())))
        told = [*together]
        for misfit in patched.misfits:
            place = ", ".join(places) if misfit.index is None else told[misfit.index]
            problems[InputProblem(place, misfit.message)] = None
        made.append((values, patched))
    if problems:
        raise BadInputError(tuple(problems))
    return made


def _judged(name: str, text: str) -> tuple[Change | None, list[str]]:
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
    """Parse a value as YAML does: a number, a boolean or a text."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


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
