"""Validation errors of pydantic as gpuplan's messages: place, subject, value found, value expected."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import PlainSerializer, ValidationError

from gpuplan.models.base import Noun
from gpuplan.models.errors import InputProblem, Suggestions
from gpuplan.models.gang import Gang

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

    from gpuplan.models.validation.base import Location
    from gpuplan.planner.sources.documents.documents import DocumentFile


# A message stays on one line of a terminal, or two.
_LONGEST_VALUE: Final = 60
_LONGEST_REASON: Final = 500
_TIME: Final = "such as 2026-11-20T12:00:00Z"
_WHOLE, _LIST, _MAPPING = "a whole number", "a list", "a mapping"
_EXPECTED: Final = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": _MAPPING,
    "enum": "one of {expected}",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": _LIST,
    "literal_error": "{expected}",
    "model_type": _MAPPING,
    "string_pattern_mismatch": "letters, digits and ._:/@+- only, with a letter or digit at both ends",
    "string_too_long": "at most {max_length} characters",
    "string_type": "a text, in quotes if it reads as anything else",
    "too_long": "at most {max_length} entries",
    "timezone_aware": f"a time with its zone, {_TIME}",
    "too_short": "at least {min_length} entry",
    "tuple_type": _LIST,
}
_PLAIN_KEY = re.compile(r"[\w./-]{1,60}")
_MOST_FAULTS: Final = 1000
"""Errors per entry; an entry with more was not written by hand."""


class DocumentFault(NamedTuple):
    """A problem at a location of a document."""

    location: Location
    message: str


class _Error(NamedTuple):
    """One error of pydantic with its location split into parts."""

    details: ErrorDetails
    present: Location
    """The part of the location that exists in the document."""
    arm: tuple[Location, str] | None
    """The entry of a union type, and the member of the union that was tried."""


def faults_in(
    error: ValidationError, document: Any, noun: type[Noun], *, subject: str, near: Suggestions
) -> Iterator[DocumentFault]:
    """Every problem of a document, each once, in the order of the fields; `subject` is its name."""
    writer = _Writer(document, noun, subject, near)
    if (count := error.error_count()) > _MOST_FAULTS:
        message = f"{subject} is wrong in {count} places.\n  `gpuplan schema` prints what is expected."
        yield DocumentFault((), message)
        return
    told: set[DocumentFault] = set()
    for found in _worth_telling([_taken_apart(details, document) for details in error.errors()]):
        fault = DocumentFault(found.present, writer.message(found))
        if fault not in told:
            told.add(fault)
            yield fault


def format_value(value: Any) -> str:
    """A value for a message: short, on one line, without control characters."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return repr(value[:_LONGEST_VALUE]) + ("…" if len(value) > _LONGEST_VALUE else "")
        case list():
            return _LIST if value else "an empty list"
        case dict():
            return _MAPPING if value else "an empty mapping"
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _taken_apart(details: ErrorDetails, document: Any) -> _Error:
    present: list[str | int] = []
    arm = None
    for key in details["loc"]:
        if isinstance(document, dict | list) and key in _keys(document):
            document = document[key]  # type: ignore[index]
            present.append(key)
        elif isinstance(key, str) and key[:1].isupper():
            arm = tuple(present), key
    return _Error(details, tuple(present), arm)


def _keys(holder: dict[str, Any] | list[Any]) -> Collection[str | int]:
    return holder if isinstance(holder, dict) else range(len(holder))


def _worth_telling(errors: list[_Error]) -> Iterator[_Error]:
    """For an entry of a union type, keep only the errors of the member with the fewest errors."""
    count = Counter(error.arm for error in errors if error.arm)
    closest: dict[Location, str] = {}
    for (entry, arm), _ in sorted(count.items(), key=itemgetter(1)):
        closest.setdefault(entry, arm)
    inside = {error.present[:length] for error in errors for length in range(len(error.present))}
    for error in errors:
        if error.arm and closest[error.arm[0]] != error.arm[1]:
            continue
        # pydantic also reports a list as too short if its entries are wrong.
        if error.details["type"] == "too_short" and error.present in inside:
            continue
        yield error


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the messages for the errors of one document."""

    document: Any
    noun: type[Noun]
    subject: str
    near: Suggestions

    def message(self, error: _Error) -> str:
        """The subject, the value found and the value expected."""
        location, kind, path = error.details["loc"], error.details["type"], _path(error.present)
        around = _within(_path(error.present[:-1]))
        if kind == "extra_forbidden":
            return (
                f"{self.subject} has unknown field "
                f"{format_value(location[-1])}{around}.{self._known(location)}"
            )
        if kind == "missing" and isinstance(location[-1], str):
            return f"{self.subject} lacks field '{location[-1]}'{_within(path)}."
        if kind in ("union_tag_invalid", "union_tag_not_found"):
            return self._untold(error, path)
        value = self._value_at(error.present)
        expected = self._expected(error.details)
        if location[-1:] == ("[key]",):
            return f"{self.subject} has name {format_value(error.present[-1])}{around}; expected {expected}."
        if kind == "value_error" and isinstance(value, dict | list):
            return f"{self.subject}{_within(path)}: {str(error.details['ctx']['error'])[:_LONGEST_REASON]}."
        return (
            f"{self.subject} {f'has {path} =' if path else 'is'} {format_value(value)}; expected {expected}."
        )

    def _expected(self, details: ErrorDetails) -> str:
        kind, context = details["type"], details.get("ctx", {})
        if kind == "value_error":
            # Validators say "expected X, found Y". Y may be long, and the caller shows the value itself.
            return str(context["error"]).partition(", found ")[0].removeprefix("expected ")
        if kind == "missing":
            return f"at least {int(details['loc'][-1]) + 1} entries"
        if kind.startswith("datetime"):
            return f"a time {_TIME}"
        if kind not in _EXPECTED:
            return details["msg"].removeprefix("Input should be ")
        location = details["loc"]
        if kind == "model_type" and noun_at(self.noun, location) is Gang:
            return f"{_WHOLE}, or {_MAPPING} with min and max"
        bounds = {name: in_document_units(self.noun, location, bound) for name, bound in context.items()}
        return _EXPECTED[kind].format(**bounds)

    def _untold(self, error: _Error, path: str) -> str:
        """The message for an entry of a union type with a missing or unknown tag."""
        field = error.details["ctx"]["discriminator"].strip("'")
        if error.details["type"] == "union_tag_not_found":
            return f"{self.subject} lacks field '{field}'{_within(path)}."
        tag = str(error.details["ctx"]["tag"])
        known = [each.strip(" '") for each in error.details["ctx"]["expected_tags"].split(",")]
        hint = self.near.hint(tag, known)
        return f"{self.subject} has {path}.{field} = {format_value(tag)}.\n  Known: {', '.join(known)}.{hint}"

    def _known(self, location: Location) -> str:
        """Hints for an unknown field: the known fields, and the one that was probably meant."""
        holder, found = noun_at(self.noun, location[:-1]), str(location[-1])
        if holder is None:
            return ""
        known = field_names(holder)
        meant = suggested_field(holder, found)
        hint = f"\n  Maybe '{meant}' was meant." if meant else self.near.hint(found, known)
        return f"\n  Known: {', '.join(known)}.{hint}"

    def _value_at(self, location: Location) -> Any:
        value = self.document
        for key in location:
            value = value[key]
        return value


def _path(location: Location) -> str:
    parts = (
        f"[{key}]"
        if isinstance(key, int)
        else f".{key}"
        if _PLAIN_KEY.fullmatch(key)
        else f"[{format_value(key)}]"
        for key in location
    )
    return "".join(parts).removeprefix(".")


def _within(path: str) -> str:
    return f" in {path}" if path else ""


# Fields that a document may have at a location, for messages about wrong or unknown fields.


def noun_name(noun: type[Noun]) -> str:
    """The name of a data class in a sentence: `workload profile`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", noun.__name__).lower()


def field_names(noun: type[Noun]) -> dict[str, FieldInfo]:
    """Fields by their names in documents."""
    return {field.alias or name: field for name, field in noun.model_fields.items()}


def noun_at(noun: type[Noun], location: Location) -> type[Noun] | None:
    """The data class at a location in the document of another; None if there is none."""
    here: Any = noun
    for key in location:
        here = _step(here, key)
    here = _only_arm(here)
    return here if _is_noun(here) else None


def in_document_units(noun: type[Noun], location: Location, value: Any) -> Any:
    """A field's value in the units of documents; the objects hold thousandths and other integer units."""
    holder = noun_at(noun, location[:-1]) if location else None
    field = field_names(holder).get(str(location[-1])) if holder else None
    for item in (*field.metadata, *_annotations(field.annotation)) if field else ():
        if isinstance(item, PlainSerializer):
            return item.func(value)  # type: ignore[call-arg]
    return value


def _annotations(annotation: Any) -> list[Any]:
    """The annotations of `X` in `Annotated[X, …] | None`, which pydantic does not report as metadata."""
    if get_origin(annotation) is Annotated:
        return list(get_args(annotation)[1:])
    if get_origin(annotation) in (Union, UnionType):
        return [item for arm in get_args(annotation) for item in _annotations(arm)]
    return []


def suggested_field(noun: type[Noun], found: str) -> str | None:
    """The field that an unknown one probably means: one nested deeper, or one with another name."""
    for name, field in noun.model_fields.items():
        if name == found and field.alias:
            return field.alias
    for name, field in field_names(noun).items():
        inner = _only_arm(field.annotation)
        if _is_noun(inner) and found in field_names(inner):
            return f"{name}.{found}"
    return None


def _step(annotation: Any, key: str | int) -> Any:
    """The type of one entry; pydantic includes the name of a union member in its locations."""
    annotation = _only_arm(annotation)
    if get_origin(annotation) in (Union, UnionType):
        return next((arm for arm in get_args(annotation) if key in _names_of(arm)), None)
    if _is_noun(annotation):
        field = field_names(annotation).get(str(key))
        return field.annotation if field else None
    arguments = get_args(annotation)
    return {tuple: arguments[:1], dict: arguments[1:]}.get(get_origin(annotation), (None,))[0]


def _names_of(arm: Any) -> tuple[Any, ...]:
    """The names that pydantic may use for a union member: the class name, or the value of its tag field."""
    fields = arm.model_fields.values() if _is_noun(arm) else ()
    tags = [get_args(field.annotation) for field in fields if get_origin(field.annotation) is Literal]
    return (getattr(arm, "__name__", ""), *(tag[0] for tag in tags if len(tag) == 1))


def _only_arm(annotation: Any) -> Any:
    """`X` for `X | None` and for `Annotated[X, …]`."""
    if get_origin(annotation) is Annotated:
        return _only_arm(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        arms = [arm for arm in get_args(annotation) if arm is not NoneType]
        return _only_arm(arms[0]) if len(arms) == 1 else annotation
    return annotation


def _is_noun(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Noun)


# Positions of entries in files, and problems with their file and line.


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
