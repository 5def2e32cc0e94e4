"""
Join the sections of several documents and build the data objects that they state, or report every problem
at once.

Entries are validated one by one. An invalid entry does not hide problems between the other entries: it is
left out, and the checks that its absence could mislead are skipped.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from gpuplan.models.base import Noun
from gpuplan.models.calendar import Reservation, Tariff
from gpuplan.models.cluster import Cluster, Dataset, Node, NodePool, RackPower
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.errors import Suggestions
from gpuplan.models.health.measurement import Measurement
from gpuplan.models.job import Job
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.timing.learnt_speeds import with_learnt_scaling
from gpuplan.models.units import Name
from gpuplan.models.validation.base import DATASETS, NODES, POOLS, RACK_POWER, RESERVATIONS, TARIFFS, Location
from gpuplan.models.validation.checks import Section, inconsistencies
from gpuplan.planner.sources.documents.error_messages import (
    LocatedProblem,
    SourceLocation,
    faults_in,
    format_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuplan.planner.sources.documents.documents import DocumentFile


# Join the sections of several documents into one snapshot document.


QUEUES: Final[Location] = ("queues",)
JOBS: Final[Location] = ("jobs",)
_LISTS: Final[dict[Location, type[Noun]]] = {
    NODES: Node,
    POOLS: NodePool,
    DATASETS: Dataset,
    RACK_POWER: RackPower,
    RESERVATIONS: Reservation,
    TARIFFS: Tariff,
    QUEUES: Queue,
    JOBS: Job,
    ("finished",): FinishedJob,
    ("measured",): Measurement,
}
"""The sections that are lists, with the class of their entries, in the order of their checks."""
_SCALARS: Final[tuple[Location, ...]] = (
    ("format_version",),
    ("taken_at",),
    ("cluster", "name"),
    ("cluster", "overcommit"),
    ("cluster", "can"),
)
_SECTIONS: Final = tuple(Snapshot.model_fields)
_OF_CLUSTER: Final = tuple(Cluster.model_fields)
_EXPECTED_DOCUMENT: Final = f"a mapping with some of the sections {', '.join(_SECTIONS)}"
_OF_A_PLAN: Final = frozenset({"plan_id", "actions"})
"""Keys that identify a plan file, whatever the file name."""
_OF_A_RESULT: Final = "plan_id"
"""Key of a plan, and of gpuplan's output about a plan."""
_NAMED: Final = 2
"""Keys of an ignored document that the warning names."""
_HEADER: Final = frozenset({"format_version"})
"""Keys that do not identify the type of a document."""


@dataclass
class Assembly:
    """The sections of all documents as one document, with the origin of each part."""

    scalars: dict[Location, Any] = field(default_factory=dict)
    lists: dict[Location, list[Any]] = field(default_factory=dict)
    locations: dict[Location, SourceLocation] = field(default_factory=dict)
    """Position of each scalar."""
    origins: dict[Location, list[tuple[SourceLocation, int]]] = field(default_factory=dict)
    """For each entry of a list, the list of a file that it is from, and its index there."""
    problems: list[LocatedProblem] = field(default_factory=list)
    passed_over: list[LocatedProblem] = field(default_factory=list)
    """Documents that are not part of a snapshot, each with the reason."""

    @property
    def document(self) -> dict[str, Any]:
        """The document of the snapshot."""
        document: dict[str, Any] = {}
        for section, value in (self.scalars | self.lists).items():
            holder = document.setdefault("cluster", {}) if len(section) > 1 else document
            holder[section[-1]] = value
        return document

    def spot(self, location: Location) -> SourceLocation | None:
        """Position of an entry of the document in its file; None if no file contains it."""
        for length in (1, 2):
            section, rest = location[:length], location[length:]
            if section in self.locations:
                return self.locations[section].inside(rest)
            if section in self.origins and rest:
                spot, index = self.origins[section][int(rest[0])]
                return spot.inside((index, *rest[1:]))
        return None

    def take(self, document: Any, spot: SourceLocation, *, among_others: bool = False) -> None:
        """Add the sections of one document; if `among_others` (a directory), ignore results of gpuplan."""
        if among_others and is_no_part(document):
            self.passed_over.append(LocatedProblem(spot, _no_part(document)))
            return
        if not isinstance(document, dict):
            self._refuse(spot, f"the document is {format_value(document)}; expected {_EXPECTED_DOCUMENT}.")
            return
        if is_plan(document):
            self._refuse(spot, _is_a_plan(spot.file.argument))
            return
        for key, value in document.items():
            here = spot.inside((key,))
            if key != "cluster":
                self._put((key,), value, here)
            elif isinstance(value, dict):
                for inner, part in value.items():
                    self._put((key, inner), part, here.inside((inner,)))
            else:
                self._put((key, "nodes"), value, here)

    def _put(self, section: Location, value: Any, spot: SourceLocation) -> None:
        path = ".".join(map(str, section))
        if section in _LISTS and isinstance(value, list):
            self.lists.setdefault(section, []).extend(value)
            self.origins.setdefault(section, []).extend((spot, index) for index in range(len(value)))
        elif section in _LISTS:
            self._refuse(spot, f"the snapshot has {path} = {format_value(value)}; expected a list.")
        elif section not in _SCALARS:
            self._refuse(spot, _unknown(section))
        elif section in self.locations:
            message = f"the snapshot has {path} a second time; expected it once."
            self.problems.append(LocatedProblem(spot, message, contradicts=self.locations[section]))
        else:
            self.scalars[section] = value
            self.locations[section] = spot

    def _refuse(self, spot: SourceLocation, message: str) -> None:
        self.problems.append(LocatedProblem(spot, message))


def assemble(files: Iterable[DocumentFile], *, of_directory: bool = False) -> Assembly:
    """
    Join all files: lists are concatenated in the order of the files, any other section may occur once.

    In a directory, documents that are not part of a snapshot are ignored.
    """
    assembly = Assembly()
    for file in files:
        # A document between two `---` may be empty, but a file may not.
        given = [number for number, document in enumerate(file.documents) if document is not None]
        for number in given:
            assembly.take(file.documents[number], SourceLocation(file, (number,)), among_others=of_directory)
        if not given:
            assembly.problems.append(
                LocatedProblem(SourceLocation(file, ()), f"the file is empty; expected {_EXPECTED_DOCUMENT}.")
            )
    return assembly


def is_plan(document: Any) -> bool:
    """True if the document is that of a plan file."""
    return isinstance(document, dict) and document.keys() >= _OF_A_PLAN


def is_no_part(document: Any) -> bool:
    """
    True if a mapping is not part of a snapshot, for example a plan, a report or a policy.

    False if a section looks misspelled: ignoring such a document would lose its content.
    """
    if not isinstance(document, dict) or not document.keys() - _HEADER:
        return False
    if _OF_A_RESULT in document:
        return True
    near, known = Suggestions(), set(_SECTIONS) - _HEADER
    return not any(
        key in known or near.hint(str(key), known) or (key in _OF_CLUSTER and isinstance(value, list))
        for key, value in document.items()
        if key not in _HEADER
    )


def _no_part(document: dict[str, Any]) -> str:
    found = ", ".join(format_value(key) for key in list(document)[:_NAMED])
    what = "is a result of gpuplan" if _OF_A_RESULT in document else "has no section of a snapshot"
    more = ", …" if len(document) > _NAMED else ""
    return f"the document {what} (found {found}{more}); it is passed over."


def _is_a_plan(argument: str) -> str:
    return f"the document is a plan, not a snapshot; see it with `gpuplan show {argument}`."


def _unknown(section: Location) -> str:
    *around, name = section
    known = _OF_CLUSTER if around else _SECTIONS
    hint = Suggestions().hint(str(name), known)
    what = "cluster has unknown field" if around else "snapshot has unknown section"
    return f"the {what} {format_value(name)}.\n  Known: {', '.join(known)}.{hint}"


# Build the data objects that documents state, or report every problem at once.


AnyNoun = TypeVar("AnyNoun", bound=Noun)

MOST_PROBLEMS: Final = 10_000
"""Problems reported at most; a document with more was not written by hand."""

_THERE_ARE_MORE: Final = f"there are more problems than the {MOST_PROBLEMS:,} told here; correct these first."

_EXPECTED: Final = (NODES, QUEUES, JOBS)
_WORDS: Final[dict[type[Noun], str]] = {NodePool: "pool", FinishedJob: "finished job"}
_NAME: Final = TypeAdapter(Name)
_ANY_TIME: Final = "2000-01-01T00:00:00Z"


def validate_noun(
    document: Any,
    noun: type[AnyNoun],
    spot_of: Callable[[Location], SourceLocation | None],
    *,
    subject: str,
    near: Suggestions,
) -> tuple[AnyNoun | None, list[LocatedProblem]]:
    """The data object that a document states, or all problems inside it."""
    try:
        return _made(document, noun), []
    except ValidationError as error:
        faults = faults_in(error, document, noun, subject=subject, near=near)
        return None, [LocatedProblem(spot_of(fault.location), fault.message) for fault in faults]


def _made(document: Any, noun: type[AnyNoun]) -> AnyNoun:
    # Documents use the alias of a field, even if the class has another name for it.
    return noun.model_validate(document, by_alias=True, by_name=False)


class _AlikeJobs:
    """Jobs from documents; of those that differ in their name alone only the first is validated whole."""

    def __init__(self) -> None:
        self._known: dict[bytes, Job] = {}

    def made(self, document: Any) -> Job:
        """The job that a document states."""
        if not isinstance(document, dict) or "running" in document or "name" not in document:
            return _made(document, Job)
        try:
            # Tells apart what JSON and YAML tell apart, such as 1 and true; version 2 has no references.
            key = marshal.dumps(document | {"name": None}, 2)
        except ValueError:  # YAML has dates too
            return _made(document, Job)
        if (alike := self._known.get(key)) is None:
            job = self._known[key] = _made(document, Job)
            return job
        try:
            name = _NAME.validate_python(document["name"])
        except ValidationError:
            return _made(document, Job)  # which names the fault
        given = {field: getattr(alike, field) for field in alike.model_fields_set}
        return Job.of_valid(**given | {"name": name})


def validate_snapshot(
    assembly: Assembly, *, strict: bool = False
) -> tuple[Snapshot | None, list[LocatedProblem], list[LocatedProblem]]:
    """
    The snapshot that all documents state together, or all its problems.

    The second list holds the damage in the snapshot, which is an error only if `strict`.
    """
    near = Suggestions()
    problems = list(assembly.problems)
    # A rejected section may be any of the missing ones, under a wrong name.
    missing = [section for section in _EXPECTED if section not in assembly.lists]
    incomplete = set(Section) if problems else {Section(str(section[0])) for section in missing}
    sound = Assembly(
        scalars=assembly.scalars,
        lists={section: [] for section in assembly.lists},
        origins={section: [] for section in assembly.lists},
    )
    jobs = _AlikeJobs()
    for section, noun in _LISTS.items():
        entries, origins = assembly.lists.get(section, ()), assembly.origins.get(section, ())
        for entry, origin in zip(entries, origins, strict=True):
            try:
                made = jobs.made(entry) if noun is Job else _made(entry, noun)
                sound.lists[section].append(made)
                sound.origins[section].append(origin)
            except ValidationError:
                spot = origin[0].inside((origin[1],))
                named = _named(noun, entry, spot)
                problems += validate_noun(entry, noun, spot.inside, subject=named, near=near)[1]
                incomplete.add(Section(str(section[0])))
                if len(problems) > MOST_PROBLEMS:
                    return None, _cut_short(problems), []

    snapshot, faulty = validate_noun(
        sound.document, Snapshot, assembly.spot, subject="the snapshot", near=near
    )
    problems += [problem for problem in faulty if problem.spot or not assembly.problems]
    if snapshot is None:
        incomplete.add(Section.TAKEN_AT)
    found = inconsistencies(snapshot or _at_any_time(sound), incomplete=frozenset(incomplete))
    damages: list[LocatedProblem] = []
    for one in islice(found, MOST_PROBLEMS):
        earlier = sound.spot(one.contradicts) if one.contradicts else None
        into = problems if one.damage is None or strict else damages
        into.append(LocatedProblem(sound.spot(one.location), one.message, earlier))
    if problems or snapshot is None:
        return None, _cut_short(problems), damages
    return with_learnt_scaling(snapshot), [], damages


def _named(noun: type[Noun], entry: Any, spot: SourceLocation) -> str:
    """`job 'train-a'`, or `jobs[3]` if the entry has no name."""
    name = entry.get("name") if isinstance(entry, dict) else None
    if name and isinstance(name, str):
        return f"{_WORDS.get(noun, noun.__name__.lower())} {format_value(name)}"
    return "{}[{}]".format(*spot.location[-2:])


def _at_any_time(sound: Assembly) -> Snapshot:
    """A snapshot of the valid entries, used if the documents state no complete snapshot."""
    document = Assembly(lists={section: sound.lists.get(section, []) for section in _LISTS}).document
    return Snapshot.model_validate({"taken_at": _ANY_TIME, **document})


def _cut_short(problems: list[LocatedProblem]) -> list[LocatedProblem]:
    if len(problems) <= MOST_PROBLEMS:
        return problems
    return [*problems[:MOST_PROBLEMS], LocatedProblem(None, _THERE_ARE_MORE)]
