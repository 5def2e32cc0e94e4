"""patch(snapshot, policy, scenario) → the changed snapshot and policy, or why the scenario does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.validation.base import SnapshotView
from gpuplan.models.validation.checks import CHECKS
from gpuplan.models.validation.entities import profiles_are_offered
from gpuplan.planner.sources.documents.error_messages import LocatedProblem, locate_problems
from gpuplan.planner.sources.files import made_of, read_noun
from gpuplan.planner.whatif.patch import snapshot_changes
from gpuplan.planner.whatif.patch.scenario import Scenario
from gpuplan.planner.whatif.patch.scenario_changes import (
    AddJobs,
    AddNodes,
    DrainNodes,
    FailNodes,
    RemoveJobs,
    RemoveNodes,
    ReplaceGpus,
    ScaleDemand,
    SetJobs,
    SetPolicy,
    SetPool,
    SetPrice,
    SetQuota,
    SetSolver,
)
from gpuplan.planner.whatif.world import SnapshotSections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpuplan.models.base import Noun
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.documents.error_messages import SourceLocation
    from gpuplan.planner.whatif.patch.scenario import Expectation
    from gpuplan.planner.whatif.world import Faults


_MAKERS: Final[dict[type[Noun], Callable[[SnapshotSections, Any], Faults]]] = {
    AddNodes: snapshot_changes.add_nodes,
    RemoveNodes: snapshot_changes.remove_nodes,
    FailNodes: snapshot_changes.fail_nodes,
    DrainNodes: snapshot_changes.drain_nodes,
    ReplaceGpus: snapshot_changes.replace_gpus,
    SetPool: snapshot_changes.set_pool,
    SetPrice: snapshot_changes.set_price,
    SetQuota: snapshot_changes.set_quota,
    SetJobs: snapshot_changes.set_jobs,
    AddJobs: snapshot_changes.add_jobs,
    RemoveJobs: snapshot_changes.remove_jobs,
    ScaleDemand: snapshot_changes.scale_demand,
    SetPolicy: snapshot_changes.set_policy,
    SetSolver: snapshot_changes.set_solver,
}

_CHECKS: Final = tuple(check for check in CHECKS if check is not profiles_are_offered)
"""Checks of a changed world. It may have lost the only GPUs that offer a profile; then jobs just wait."""


@dataclass(frozen=True, slots=True)
class ScenarioMismatch:
    """An entry of a scenario that does not fit the world."""

    section: str
    """`changes` or `expectations`."""
    index: int | None
    """Index of the entry; None if only all changes together are wrong."""
    message: str


@dataclass(frozen=True, slots=True)
class PatchedSnapshot:
    """A world after the changes of a scenario."""

    snapshot: Snapshot
    policy: Policy
    misfits: tuple[ScenarioMismatch, ...] = ()
    """If there are any, the world is not the one that the scenario describes."""


def patch(snapshot: Snapshot, policy: Policy, scenario: Scenario) -> PatchedSnapshot:
    """Apply the changes in order, each to the result of the previous ones."""
    world = SnapshotSections(snapshot.canonical(), policy)
    misfits = [
        ScenarioMismatch("changes", index, fault)
        for index, change in enumerate(scenario.changes)
        for fault in _MAKERS[type(change)](world, change)
    ]
    misfits += [
        ScenarioMismatch("expectations", index, fault)
        for index, expectation in enumerate(scenario.expectations)
        for fault in _about(world, expectation)
    ]
    changed = world.snapshot()
    if changed is not world.base and not misfits:
        view = SnapshotView(changed)
        misfits += [
            ScenarioMismatch("changes", None, each.message) for check in _CHECKS for each in check(view)
        ]
    return PatchedSnapshot(changed, world.policy, tuple(misfits))


def _about(world: SnapshotSections, expectation: Expectation) -> Iterator[str]:
    if expectation.job is not None:
        yield from world.unknown("job", expectation.job, world.jobs)


# Reads scenario documents and applies them to a base; all problems of all files are reported together.


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
