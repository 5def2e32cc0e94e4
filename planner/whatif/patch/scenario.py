"""
Patch: changes of a snapshot and its policy; scenario: a patch with expectations of its plan.

apply_patch(…) → PatchedSnapshot: what to plan instead. load_scenarios(files, …) → scenarios and what to plan.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.units import Name
from gpuplan.models.validation.base import SnapshotView
from gpuplan.models.validation.checks import CHECKS
from gpuplan.models.validation.entities import profiles_are_offered
from gpuplan.planner.sources.documents.error_messages import LocatedProblem, SourceLocation, locate_problems
from gpuplan.planner.sources.files import made_of, read_noun
from gpuplan.planner.whatif.patch.job_changes import AddJobs, RemoveJobs, ScaleDemand, SetJobs
from gpuplan.planner.whatif.patch.node_changes import (
    AddNodes,
    DrainNodes,
    FailNodes,
    RemoveNodes,
    ReplaceGpus,
    SetPool,
)
from gpuplan.planner.whatif.patch.setting_changes import SetPolicy, SetPrice, SetQuota, SetSolver
from gpuplan.planner.whatif.patch.world import SnapshotSections

if TYPE_CHECKING:
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


Change: TypeAlias = Annotated[
    AddNodes
    | RemoveNodes
    | FailNodes
    | DrainNodes
    | ReplaceGpus
    | SetPool
    | SetPrice
    | SetQuota
    | SetJobs
    | AddJobs
    | RemoveJobs
    | ScaleDemand
    | SetPolicy
    | SetSolver,
    Field(discriminator="change"),
]
"""One change; `change` names the kind, and `apply` makes it in a world."""

_CHECKS: Final = tuple(check for check in CHECKS if check is not profiles_are_offered)
"""Checks of a changed world. It may have lost the only GPUs that offer a profile; then jobs just wait."""


class Patch(Noun):
    """Named changes of a snapshot and its policy; without changes the result is the base itself."""

    format_version: Literal["1.0"] = "1.0"
    """Version of the format of this document."""
    name: Name
    """Name of the scenario."""
    description: Annotated[str, Field(max_length=200)] = ""
    """One sentence for people."""
    changes: tuple[Change, ...] = ()
    """Changes to snapshot and policy, applied in this order; an empty list is the base itself."""


@dataclass(frozen=True, slots=True)
class PatchMisfit:
    """An entry of a patch that does not fit the snapshot."""

    section: str
    """`changes` or `expectations`."""
    index: int | None
    """Index of the entry; None if only all changes together are wrong."""
    message: str


@dataclass(frozen=True, slots=True)
class PatchedSnapshot:
    """A snapshot and its policy after the changes of a patch."""

    snapshot: Snapshot
    policy: Policy
    misfits: tuple[PatchMisfit, ...] = ()
    """If there are any, this is not what the patch describes."""


def apply_patch(
    snapshot: Snapshot, policy: Policy, patch: Patch, expected: Sequence[Name | None] = ()
) -> PatchedSnapshot:
    """
    Apply the changes in order, each to the result of the previous ones.

    `expected` holds the job of each expectation, or None; these jobs must exist afterwards.
    """
    world = SnapshotSections(snapshot.canonical(), policy)
    misfits = [
        PatchMisfit("changes", index, fault)
        for index, change in enumerate(patch.changes)
        for fault in change.apply(world)
    ]
    misfits += [
        PatchMisfit("expectations", index, fault)
        for index, job in enumerate(expected)
        if job is not None
        for fault in world.unknown("job", job, world.jobs)
    ]
    changed = world.snapshot()
    if changed is not world.base and not misfits:
        view = SnapshotView(changed)
        misfits += [PatchMisfit("changes", None, each.message) for check in _CHECKS for each in check(view)]
    return PatchedSnapshot(changed, world.policy, tuple(misfits))


# Expectations of a scenario about its plan: figures compared with numbers or the base, and jobs that run.


_NUMBER: Final = r"\d[\d,]*(?:\.\d+)?|\.\d+"
_PATTERN: Final = re.compile(
    rf"\s*(?P<relation>[<>]=?|==?|!=)\s*"
    rf"(?:(?P<base>base)(?:\s*(?P<sign>[-+*])\s*(?P<change>{_NUMBER}))?"
    rf"|(?P<number>-?(?:{_NUMBER}))(?P<percent>\s*%)?)\s*"
)
_RELATIONS: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_SIGNS: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_TOLERANCE: Final = 1e-9
"""Figures that differ by less are equal, because figures are written with six decimals."""


def _check(value: str) -> str:
    if not _PATTERN.fullmatch(value):
        raise ValueError(f"expected a comparison such as '>= 40', '< 5 %' or '>= base - 2', found {value!r}")
    return value


Check: TypeAlias = Annotated[
    str, AfterValidator(_check), WithJsonSchema({"type": "string", "examples": [">= 40", ">= base - 2"]})
]
"""A relation and a number, a percentage, or the base's figure with an optional change by a number."""


def check_passes(check: Check, found: float, base: float) -> bool:
    """True if a figure passes a check, given the same figure of the base."""
    parts = _PATTERN.fullmatch(check)
    if parts is None:
        raise ValueError(f"expected a comparison, found {check!r}")
    limit = _limit(parts, base)
    if abs(found - limit) <= _TOLERANCE * max(1.0, abs(limit)):
        found = limit
    return _RELATIONS[parts["relation"]](found, limit)


def _limit(parts: re.Match[str], base: float) -> float:
    if parts["number"] is not None:
        return _number(parts["number"]) / (100 if parts["percent"] else 1)
    return base if parts["sign"] is None else _SIGNS[parts["sign"]](base, _number(parts["change"]))


def _number(text: str) -> float:
    return float(text.replace(",", ""))


class Expectation(Noun):
    """A condition on the scenario's plan; if it has several statements, all must hold."""

    job: Name | None = None
    """Job that `runs` refers to."""
    runs: bool | None = None
    """True: the job runs once the plan is applied; false: it waits."""
    jobs_running: Check | None = None
    """Jobs that run after the plan."""
    jobs_started: Check | None = None
    """Jobs that the plan starts."""
    jobs_waiting: Check | None = None
    """Jobs that wait after the plan."""
    jobs_preempted: Check | None = None
    """Running jobs that the plan stops."""
    gpus_total: Check | None = None
    """Usable GPUs of the cluster after the plan."""
    gpus_held: Check | None = None
    """GPUs that jobs hold after the plan."""
    gpus_free: Check | None = None
    """Usable GPUs that no job holds after the plan."""
    gpu_allocation_ratio: Check | None = None
    """GPUs held divided by usable GPUs, from 0 to 1."""
    fragmentation_ratio: Check | None = None
    """Part of the free GPUs on which no replica of the reference gang fits, from 0 to 1."""
    jain_index: Check | None = None
    """Jain's fairness index of the queues, from 0 to 1."""
    lost_gpu_hours: Check | None = None
    """GPU-hours of work that are lost."""
    nodes_added: Check | None = None
    """Nodes that the plan adds."""
    nodes_removed: Check | None = None
    """Nodes that the plan removes."""
    hourly_cost: Check | None = None
    """Cost of the nodes after the plan, in the cluster's currency per hour."""
    objective: Check | None = None
    """Objective of the plan, in points."""
    gap: Check | None = None
    """Proven gap of the plan, as a fraction of its objective."""

    @model_validator(mode="after")
    def _says_something(self) -> Expectation:
        if (self.job is None) != (self.runs is None):
            missing = "runs" if self.runs is None else "job"
            raise ValueError(f"expected job and runs together, found no {missing}")
        if self.job is None and not self.checks:
            raise ValueError("expected a figure with a comparison, or job and runs, found neither")
        return self

    @property
    def statements(self) -> int:
        """Number of statements."""
        return len(self.checks) + (self.job is not None)

    @property
    def checks(self) -> dict[str, Check]:
        """Comparisons by figure."""
        stated: dict[str, Any] = self.model_dump(exclude={"job", "runs"}, exclude_none=True)
        return stated


# The scenario itself.


class Scenario(Patch):
    """A named list of changes and expectations; without changes the world is the base itself."""

    expectations: tuple[Expectation, ...] = ()
    """What must hold of the scenario's plan."""


def apply_scenario(snapshot: Snapshot, policy: Policy, scenario: Scenario) -> PatchedSnapshot:
    """Apply the changes of a scenario; the jobs that it has expectations of must exist afterwards."""
    return apply_patch(snapshot, policy, scenario, [each.job for each in scenario.expectations])


# Documents of scenarios; all problems of all files are reported together.


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
        patched = apply_scenario(snapshot, policy, scenario)
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
