"""
Knobs of a sweep: `NAME=value,value,…`, each value the change of a scenario.

    prices.guarantee=0,100     a knob of the policy, by its path
    quota:research=8,16        nominal quota of a queue
    demand=1,2,10              so many times the waiting jobs; demand:QUEUE those of one queue
    pool:spot=0,4,8            so many nodes of a pool more
    like:h100-1=0,1,2          so many nodes more like an existing one
    price:spot=1,2.5           price of a pool's nodes
    solver=milp,greedy
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

import yaml

from planner.models.errors import BadInputError, InputProblem
from planner.models.near_miss import NearMisses
from planner.models.scenario import Scenario
from planner.models.sweep import Knob
from planner.sources.judging import judge_noun
from planner.whatif.patching import patch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot
    from planner.whatif.patching import Patched

_MOST_KNOBS: Final = 2

_CHANGES: Final[dict[str, Callable[[str, Any], dict[str, Any]]]] = {
    "quota": lambda of, value: {"change": "set_quota", "queue": of, "nominal": value},
    "pool": lambda of, value: {"change": "add_nodes", "pool": of, "count": value},
    "like": lambda of, value: {"change": "add_nodes", "like": of, "count": value},
    "price": lambda of, value: {"change": "set_price", "pools": [of], "value": value},
    "demand": lambda of, value: {"change": "scale_demand", "queue": of, "factor": value},
}
_WITHOUT_NAME: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "demand": lambda value: {"change": "scale_demand", "factor": value},
    "solver": lambda value: {"change": "set_solver", "solver": value},
}
_ADDS: Final = ("pool", "like")
"""None of them more is no change at all."""


def read_knobs(texts: Sequence[str]) -> list[Knob]:
    """
    Knobs from the words of a command line.

    Raises
    ------
    BadInputError
        With all that is wrong with any of them.
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


def turned(
    knobs: Sequence[Knob], snapshot: Snapshot, policy: Policy
) -> list[tuple[tuple[str, ...], Patched]]:
    """
    The world for each combination of values, the last knob's varying fastest.

    Raises
    ------
    BadInputError
        With every value that is none for its knob, and every knob that there is not.
    """
    problems: dict[InputProblem, None] = {}
    made = []
    for values in product(*(knob.values for knob in knobs)):
        changes = []
        for knob, value in zip(knobs, values, strict=True):
            change = _change(knob.name, _read(value))
            faults = _faults(change, snapshot, policy)
            problems.update({InputProblem(f"{knob.name}={value}", fault): None for fault in faults})
            changes += [] if faults or change is None else [change]
        scenario = Scenario.model_validate({"name": "sweep", "changes": changes})
        made.append((values, patch(snapshot, policy, scenario)))
    if problems:
        raise BadInputError(tuple(problems))
    return made


def _read(text: str) -> Any:
    """A value as a document would have it: a number, a truth, a text."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _change(name: str, value: Any) -> dict[str, Any] | None:
    """The change that gives a knob a value; None where it changes nothing."""
    kind, colon, of = name.partition(":")
    if colon and kind in _CHANGES:
        return None if kind in _ADDS and value == 0 else _CHANGES[kind](of, value)
    if name in _WITHOUT_NAME:
        return _WITHOUT_NAME[name](value)
    for key in reversed(name.split(".")):
        value = {key: value}
    return {"change": "set_policy", "policy": value}


def _faults(change: dict[str, Any] | None, snapshot: Snapshot, policy: Policy) -> list[str]:
    if change is None:
        return []
    document = {"name": "sweep", "changes": [change]}
    scenario, problems = judge_noun(document, Scenario, lambda _: None, subject="the knob", near=NearMisses())
    if scenario is None:
        return [problem.message for problem in problems]
    return [misfit.message for misfit in patch(snapshot, policy, scenario).misfits]
