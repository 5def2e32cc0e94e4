"""Positions of entries in files, and problems with their file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuplan.models.errors import InputProblem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.validation.base import Location
    from gpuplan.planner.sources.documents.documents import DocumentFile


class SourceLocation(NamedTuple):
    """An entry of a file; the location starts with the index of its document."""

    file: DocumentFile
    location: Location

    def inside(self, location: Location) -> SourceLocation:
        """The position of an entry within this one."""
        return SourceLocation(self.file, (*self.location, *location))


class LocatedProblem(NamedTuple):
    """One problem before its line is looked up."""

    spot: SourceLocation | None
    """None if no entry caused the problem, for example if a section is missing from all files."""
    message: str
    contradicts: SourceLocation | None = None
    """Position of the earlier, contradicting statement, if there is one."""


def locate_problems(
    problems: Iterable[LocatedProblem], files: Iterable[DocumentFile], source: str
) -> tuple[InputProblem, ...]:
    """Problems with their places, sorted by file, line and message."""
    told = list(problems)
    order = {file.place: number for number, file in enumerate(files)}
    wanted: dict[str, tuple[DocumentFile, set[Location]]] = {}
    for problem in told:
        for spot in (problem.spot, problem.contradicts):
            if spot:
                wanted.setdefault(spot.file.place, (spot.file, set()))[1].add(spot.location)
    lines = {place: file.lines(locations) for place, (file, locations) in wanted.items()}

    def line(spot: SourceLocation) -> int:
        """Line of the entry, or of its closest parent with a known line."""
        known = lines[spot.file.place]
        return next((known[part] for part in _parts(spot.location) if part in known), 1)

    def place(spot: SourceLocation | None) -> str:
        return f"{spot.file.place}:{line(spot)}" if spot else source

    def message(problem: LocatedProblem) -> str:
        first = f"\n  First given at {place(problem.contradicts)}." if problem.contradicts else ""
        return problem.message + first

    ordered = sorted(
        told,
        key=lambda problem: (
            (order[problem.spot.file.place], line(problem.spot)) if problem.spot else (-1, 0),
            problem.message,
        ),
    )
    return tuple(InputProblem(place(problem.spot), message(problem)) for problem in ordered)


def _parts(location: Location) -> Iterable[Location]:
    return (location[:length] for length in range(len(location), 0, -1))
