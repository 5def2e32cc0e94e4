"""
Build the data objects that documents state, or report every problem at once.

Entries are validated one by one. An invalid entry does not hide problems between the other entries: it is
left out, and the checks that its absence could mislead are skipped.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from gpuplan.models.base import Noun
from gpuplan.models.calendar import Reservation, Tariff
from gpuplan.models.cluster import Dataset, Node, NodePool, RackPower
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.errors import Suggestions
from gpuplan.models.job import Job
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.timing.learnt_scaling import with_learnt_scaling
from gpuplan.models.validation.base import DATASETS, NODES, POOLS, RACK_POWER, RESERVATIONS, TARIFFS
from gpuplan.models.validation.checks import Section, inconsistencies
from gpuplan.planner.sources.documents.assemble import FINISHED, JOBS, QUEUES, Assembly
from gpuplan.planner.sources.documents.error_messages import (
    LocatedProblem,
    SourceLocation,
    faults_in,
    format_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuplan.models.validation.base import Location

AnyNoun = TypeVar("AnyNoun", bound=Noun)

MOST_PROBLEMS: Final = 10_000
"""Problems reported at most; a document with more was not written by hand."""

_THERE_ARE_MORE: Final = f"there are more problems than the {MOST_PROBLEMS:,} told here; correct these first."

_ENTRIES: Final[dict[Location, type[Noun]]] = {
    NODES: Node,
    POOLS: NodePool,
    DATASETS: Dataset,
    RACK_POWER: RackPower,
    RESERVATIONS: Reservation,
    TARIFFS: Tariff,
    QUEUES: Queue,
    JOBS: Job,
    FINISHED: FinishedJob,
}
_SECTION: Final = {
    **dict.fromkeys((NODES, POOLS, DATASETS, RACK_POWER, RESERVATIONS, TARIFFS), Section.CLUSTER),
    QUEUES: Section.QUEUES,
    JOBS: Section.JOBS,
    FINISHED: Section.FINISHED,
}
_EXPECTED: Final = (NODES, QUEUES, JOBS)
_WORDS: Final[dict[type[Noun], str]] = {NodePool: "pool", FinishedJob: "finished job"}
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
        # Documents use the alias of a field, even if the class has another name for it.
        return noun.model_validate(document, by_alias=True, by_name=False), []
    except ValidationError as error:
        faults = faults_in(error, document, noun, subject=subject, near=near)
        return None, [LocatedProblem(spot_of(fault.location), fault.message) for fault in faults]


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
    incomplete = set(Section) if problems else {_SECTION[section] for section in missing}
    sound = Assembly(scalars=assembly.scalars, lists={section: [] for section in assembly.lists})
    for section, noun in _ENTRIES.items():
        for entry, spot in assembly.entries(section):
            made, faulty = validate_noun(
                entry, noun, spot.inside, subject=_named(noun, entry, spot), near=near
            )
            if made is not None:
                sound.extend(section, [(made, spot)])
                continue
            incomplete.add(_SECTION[section])
            problems += faulty
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
    document = Assembly(lists={section: sound.lists.get(section, []) for section in _ENTRIES}).document
    return Snapshot.model_validate({"taken_at": _ANY_TIME, **document})


def _cut_short(problems: list[LocatedProblem]) -> list[LocatedProblem]:
    if len(problems) <= MOST_PROBLEMS:
        return problems
    return [*problems[:MOST_PROBLEMS], LocatedProblem(None, _THERE_ARE_MORE)]
