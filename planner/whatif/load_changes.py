"""Reads scenario documents and applies them to a base; all problems of all files are reported together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.planner.sources.documents.source_location import Problem, located
from gpuplan.planner.sources.files import read_noun
from gpuplan.planner.whatif.patch.apply_changes import patch
from gpuplan.planner.whatif.patch.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.documents.source_location import Spot
    from gpuplan.planner.whatif.patch.apply_changes import Patched


def load_scenarios(
    paths: Sequence[str], snapshot: Snapshot, policy: Policy
) -> list[tuple[Scenario, Patched]]:
    """
    Read scenarios and apply each of them to the base.

    Raises
    ------
    BadInputError
        With every problem of every file: invalid documents, and changes that do not fit the base.
    """
    loaded: list[tuple[Scenario, Patched]] = []
    problems: list[InputProblem] = []
    first: dict[str, str] = {}
    for path in paths:
        try:
            scenario, spot = read_noun(path, Scenario)
        except BadInputError as error:
            problems += error.problems
            continue
        patched = patch(snapshot, policy, scenario)
        problems += _misfits(patched, spot, path)
        if first.setdefault(scenario.name, path) != path:
            message = f"the scenario is called '{scenario.name}' as is that of {first[scenario.name]}.\n"
            problems.append(InputProblem(path, f"{message}  Give it a name of its own."))
        loaded.append((scenario, patched))
    if problems:
        raise BadInputError(tuple(problems))
    return loaded


def _misfits(patched: Patched, spot: Spot, path: str) -> tuple[InputProblem, ...]:
    told = [
        Problem(
            spot.inside((each.section,) if each.index is None else (each.section, each.index)),
            f"{each.section}[{each.index}]: {each.message}" if each.index is not None else each.message,
        )
        for each in patched.misfits
    ]
    return located(told, [spot.file], path)
