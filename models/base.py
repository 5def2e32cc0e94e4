"""Noun: the frozen base of everything that crosses a file boundary."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping


class Noun(BaseModel):
    """A frozen, strictly checked value with a canonical form."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        validate_default=False,
    )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with some fields changed; what was derived and cached from the old values is forgotten."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(copied).model_fields.keys():
            del copied.__dict__[name]
        return copied

    def document(self) -> dict[str, Any]:
        """The value as plain JSON types, fields at their defaults left out."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the canonical document."""
        return fingerprint_of(self.document())


def canonical_json(document: Any) -> str:
    """One text per value: keys sorted, no spaces, no NaN."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint_of(document: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of a document of plain JSON types."""
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()
