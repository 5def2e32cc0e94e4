"""JSON texts of many values that differ in few members: the rest of the text is written once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.base import canonical_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping


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
