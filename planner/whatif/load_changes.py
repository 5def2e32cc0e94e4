"""Reads scenario documents and applies them to a base; all problems of all files are reported together."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.planner.sources.documents.source_location import LocatedProblem, locate_problems
from gpuplan.planner.sources.files import made_of, read_noun
from gpuplan.planner.whatif.patch.apply_changes import patch
from gpuplan.planner.whatif.patch.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.documents.source_location import SourceLocation
    from gpuplan.planner.whatif.patch.apply_changes import PatchedSnapshot

Given: TypeAlias = str | PathLike[str] | Mapping[str, Any] | Scenario
"""A scenario, its document, or the file that holds it."""


def load_scenarios(
    given: Sequence[Given], snapshot: Snapshot, policy: Policy
) -> list[tuple[Scenario, PatchedSnapshot]]:
    """
    Read scenarios and apply each of them to the base.

    Raises
    ------
    BadInputError
        With every problem of every file: invalid documents, and changes that do not fit the base.
    """
    loaded: list[tuple[Scenario, PatchedSnapshot]] = []
    problems: list[InputProblem] = []
    first: dict[str, str] = {}
    for number, each in enumerate(given):
        place = fspath(each) if isinstance(each, str | PathLike) else f"scenarios[{number}]"
        try:
            scenario, spot = _read(each, place)
        except BadInputError as error:
            problems += error.problems
            continue
        patched = patch(snapshot, policy, scenario)
        problems += _misfits(patched, spot, place)
        if first.setdefault(scenario.name, place) != place:
            message = f"the scenario is called '{scenario.name}' as is that of {first[scenario.name]}.\n"
            problems.append(InputProblem(place, f"{message}  Give it a name of its own."))
        loaded.append((scenario, patched))
    if problems:
        raise BadInputError(tuple(problems))
    return loaded


def _read(each: Given, place: str) -> tuple[Scenario, SourceLocation | None]:
    """The scenario, and where it stands if it is from a file."""
    if isinstance(each, Scenario):
        return each, None
    if isinstance(each, Mapping):
        return made_of(each, Scenario, place), None
    return read_noun(place, Scenario)


def _misfits(patched: PatchedSnapshot, spot: SourceLocation | None, place: str) -> tuple[InputProblem, ...]:
    told = [
        LocatedProblem(
            spot and spot.inside((each.section,) if each.index is None else (each.section, each.index)),
            f"{each.section}[{each.index}]: {each.message}" if each.index is not None else each.message,
        )
        for each in patched.misfits
    ]
    return locate_problems(told, [spot.file] if spot else [], place)
