"""
Units of all numbers in documents, with parsers and printers of their text form.

Internally all quantities are integers: thousandths, MiB, seconds. In documents users write `11.3` cores,
`64Gi`, `1h30m`. Each type here parses the text form and prints it again.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from math import ceil
from typing import Annotated, Any, Final, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

MILLI: Final = 1000
"""Thousandths in one."""

SECONDS_PER_HOUR: Final = 3600

LONGEST_SECONDS: Final = 100 * 366 * 24 * 3600
"""Longest duration that a document may name: 100 years. A sum of many still fits into 64 bits."""

LARGEST_COUNT: Final = 1_000_000
"""Upper bound of any count in a document: sums over a cluster stay far inside 64-bit integers."""

LARGEST_MIB: Final = 2**40
"""Upper bound of one memory or disk figure (1 EiB)."""

_WHOLE_SECONDS: Final = len("2026-11-20T12:00:00")

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,3})?)s)?(?:(\d+)ms)?")
_MEMORY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_BYTES: Final = {
    None: 1,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}


def parse_milli(value: Any, *, most: int = LARGEST_COUNT) -> int:
    """Thousandths of a decimal number with at most three decimals; Kubernetes' `500m` is accepted too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a number such as 4 or 11.5, found {value!r}")
    text = str(value).strip()
    try:
        thousandths = Decimal(text[:-1]) if text.endswith("m") else Decimal(text) * MILLI
    except ArithmeticError:
        raise ValueError(f"expected a number such as 4, 11.5 or 500m, found {value!r}") from None
    if not thousandths.is_finite():
        raise ValueError(f"expected a finite number, found {value!r}")
    if not -most * MILLI <= thousandths <= most * MILLI:
        raise ValueError(f"expected at most {most}, found {value!r}")
    if thousandths != int(thousandths):
        raise ValueError(f"expected at most three decimals, found {value!r}")
    return int(thousandths)


def print_milli(value: int) -> int | float:
    """Thousandths as a decimal number."""
    return value // MILLI if value % MILLI == 0 else value / MILLI


def parse_mib(value: Any) -> int:
    """MiB from an integer number of MiB, or from a Kubernetes quantity such as `64Gi` (rounded up)."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected MiB as an integer, or a quantity such as 64Gi, found {value!r}")
    if isinstance(value, int):
        return value
    match = _MEMORY.fullmatch(value.strip())
    if match is None or match[2] is None:
        raise ValueError(f"expected MiB as an integer, or a quantity such as 64Gi, found {value!r}")
    return -(-ceil(Decimal(match[1]) * _BYTES[match[2]]) // 2**20)


def parse_milliseconds(value: Any) -> int:
    """Milliseconds from `90s`, `0.5s`, `250ms`, `1h30m`, or an integer number of seconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * MILLI
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())) and any(match.groups()):
        days, hours, minutes, milliseconds = (int(match[group] or 0) for group in (1, 2, 3, 5))
        whole = ((days * 24 + hours) * 60 + minutes) * 60 * MILLI
        return whole + int(Decimal(match[4] or 0) * MILLI) + milliseconds
    raise ValueError(f"expected a duration such as 90s, 10m or 1h30m, found {value!r}")


def parse_seconds(value: Any) -> int:
    """Whole seconds from a duration as `parse_milliseconds` reads it."""
    milliseconds = parse_milliseconds(value)
    if milliseconds % MILLI:
        raise ValueError(f"expected whole seconds, found {value!r}")
    return milliseconds // MILLI


def print_seconds(value: int) -> str:
    """Seconds as `1h30m`; days are printed as hours, as in Go."""
    hours, rest = divmod(value, 3600)
    minutes, seconds = divmod(rest, 60)
    text = f"{hours}h" if hours else ""
    text += f"{minutes}m" if minutes else ""
    text += f"{seconds}s" if seconds else ""
    return text or "0s"


def print_milliseconds(value: int) -> str:
    """Milliseconds as `1h30m`, or as `1500ms` if they are not whole seconds."""
    return f"{value}ms" if value % MILLI else print_seconds(value // MILLI)


def _whole_second_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise ValueError(f"expected a time within the years 1 to 9999 in UTC, found {value}") from None


def print_timestamp(value: datetime) -> str:
    """RFC 3339 in UTC, whole seconds."""
    # Not strftime, which writes years before 1000 with fewer than four digits on some systems.
    if value.tzinfo is not UTC:  # those of documents are
        value = value.astimezone(UTC)
    return f"{value.isoformat()[:_WHOLE_SECONDS]}Z"


def _timestamp_text(value: Any) -> Any:
    if isinstance(value, str | datetime):
        return value
    raise ValueError(f"expected a time such as 2026-11-20T12:00:00Z, found {value!r}")


_NUMBER_SCHEMA = WithJsonSchema(
    {
        "anyOf": [
            {"type": "number"},
            {"type": "string", "pattern": r"^\d+(\.\d+)?m?$", "examples": ["11.5", "500m"]},
        ]
    }
)

Name: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:/@+-]*[A-Za-z0-9])?$", max_length=253)
]
"""Name of a node, job, queue, pool, user, GPU model or resource, as in Kubernetes and Slurm."""

Label: TypeAlias = Annotated[str, StringConstraints(max_length=253)]
"""Value of a label, taint or domain."""

Milli: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_milli),
    Field(ge=0, le=LARGEST_COUNT * MILLI),
    PlainSerializer(print_milli, when_used="json"),
    _NUMBER_SCHEMA,
]
"""A decimal number, stored as integer thousandths: CPU cores, shares of a GPU, speeds, weights."""

QuotaMilli: TypeAlias = Annotated[
    int,
    BeforeValidator(partial(parse_milli, most=LARGEST_MIB)),
    Field(ge=0, le=LARGEST_MIB * MILLI),
    PlainSerializer(print_milli, when_used="json"),
    _NUMBER_SCHEMA,
]
"""As `Milli`, also of memory: thousandths of GPUs, CPU cores or MiB."""

Mib: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_mib),
    Field(ge=0, le=LARGEST_MIB),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": _MEMORY.pattern, "examples": ["64Gi"]},
            ]
        }
    ),
]
"""Memory or disk in MiB."""


def _seconds_schema(least: int) -> WithJsonSchema:
    text: dict[str, Any] = {"type": "string", "examples": ["1h30m"]}
    if least:
        text["pattern"] = "[1-9]"  # a duration above 0 has a digit other than 0
    return WithJsonSchema({"anyOf": [{"type": "integer", "minimum": least}, text]})


# Each type has a single lower bound: with two, the error for a value below both names the looser one.
_AnySeconds: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_seconds),
    Field(le=LONGEST_SECONDS),
    PlainSerializer(print_seconds, when_used="json"),
]

Seconds: TypeAlias = Annotated[_AnySeconds, Field(ge=0), _seconds_schema(0)]
"""A duration in whole seconds."""

PositiveSeconds: TypeAlias = Annotated[_AnySeconds, Field(ge=1), _seconds_schema(1)]
"""A duration of at least one second."""

MinuteOrLonger: TypeAlias = Annotated[_AnySeconds, Field(ge=60), _seconds_schema(60)]
"""A duration of at least one minute, in whole seconds."""

CountedSeconds: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=LONGEST_SECONDS)]
"""A duration in whole seconds in a result, written as a number."""

Milliseconds: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_milliseconds),
    Field(ge=0, le=366 * 24 * 3600 * MILLI),
    PlainSerializer(print_milliseconds, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["10s"]}]}),
]
"""A duration in milliseconds."""

WorkTime: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_milliseconds),
    Field(ge=0, le=LONGEST_SECONDS * MILLI),
    PlainSerializer(print_milliseconds, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["9h30m"]}]}),
]
"""An amount of work in milliseconds at a reference speed; finer than seconds, so that rounding loses none."""

GpuTime: TypeAlias = Annotated[
    int,
    BeforeValidator(parse_milliseconds),
    Field(ge=0, le=LARGEST_COUNT * 366 * 24 * 3600 * MILLI),
    PlainSerializer(print_milliseconds, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["9h30m"]}]}),
]
"""GPU time, as time on one GPU: two GPUs for three hours are `6h`."""

Timestamp: TypeAlias = Annotated[
    AwareDatetime,
    BeforeValidator(_timestamp_text),
    AfterValidator(_whole_second_utc),
    PlainSerializer(print_timestamp, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An instant, RFC 3339 with a time zone; stored in UTC to the second."""

AtLeastOne: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=100_000)]
"""A number of at least one, such as a number of replicas."""

Count: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=LARGEST_COUNT)]
"""A nonnegative whole number."""
