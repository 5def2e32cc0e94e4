"""JSON texts of many values that differ in few members: the rest of the text is written once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.base import canonical_json, canonical_string

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from gpuplan.models.job import Job


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """How JSON is written."""

    encode: Callable[[Any], str]
    """Text of any value."""
    in_order: bool
    """True: keys are sorted; otherwise they stay in the order of the document."""
    comma: str
    colon: str

    def frame(self, document: Mapping[str, Any], holes: Collection[str]) -> str:
        """
        The text of a document with a hole for each member that differs: a format for `%` and a dict.

        All `holes` must be keys of the document. The dict has the text of the member for each of them.
        """
        members = (
            f"{self._text(key)}{self.colon}{f'%({key})s' if key in holes else self._text(document[key])}"
            for key in (sorted(document) if self.in_order else document)
        )
        return f"{{{self.comma.join(members)}}}"

    def _text(self, value: Any) -> str:
        """Text of a value inside a format."""
        return self.encode(value).replace("%", "%%")


CANONICAL: Final = JsonStyle(canonical_json, in_order=True, comma=",", colon=":")
"""As `canonical_json`."""

LINES: Final = JsonStyle(json.JSONEncoder(ensure_ascii=False).encode, in_order=False, comma=", ", colon=": ")
"""As `json.dumps` without options, but for characters outside ASCII, which are written as they are."""


def job_texts(jobs: Iterable[Job], style: JsonStyle) -> Iterator[str]:
    """Documents of jobs without fields at their defaults; jobs that differ in their name alone share one."""
    frames: dict[tuple[Any, ...], str] = {}
    for job in jobs:
        if (key := job.plain_key) is None:
            yield style.encode(job.document())
            continue
        if (frame := frames.get(key)) is None:
            frame = frames[key] = style.frame(job.document(), ("name",))
        yield frame % {"name": canonical_string(job.name)}
