"""Fields that a document may have at a location, for messages about wrong or unknown fields."""

from __future__ import annotations

import re
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import PlainSerializer

from gpuplan.models.base import Noun

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from gpuplan.models.validation.base import Location


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
