"""AuditRecord: who did what to which cluster, from which plan, and what came of it; one line of the log."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from gpuplan.models.base import Noun, canonical_json, fingerprint_of
from gpuplan.models.units import Timestamp

AUDIT_FORMAT: Final = "1.0"

FIRST_PREVIOUS: Final = "0" * 64
"""What the first record names as the hash of the one before."""

_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AuditKind(StrEnum):
    """What a record tells."""

    BEGIN = "begin"
    """An apply starts to carry a plan out."""
    INTENT = "intent"
    """An action is about to be done; durable before the deed."""
    OUTCOME = "outcome"
    """How an action ended."""
    END = "end"
    """The apply is over, whatever came of it."""
    RECOVERED = "recovered"
    """The last record was cut off while it was written, and this one took its place."""


class Outcome(StrEnum):
    """How an action ended."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The cluster had done it before, in an apply that could not record so."""


class AuditEntry(Noun):
    """What happened, before it has its place in the log."""

    model_config = ConfigDict(extra="ignore")

    at: Timestamp
    who: str
    """user@host."""
    kind: AuditKind
    plan_id: str = ""
    plan_uid: str = ""
    """Name of the plan where it is applied: the same plan made again has the same id and another uid."""
    cluster: str = ""
    """Identity of the cluster, so that one log may serve several."""
    action: str = ""
    """Id of the action in its plan."""
    type: str = ""
    """Type of the action."""
    subject: str = ""
    """What the action is about, such as `job a`, `node n0` or `node n0 gpu 3`."""
    outcome: Outcome | None = None
    detail: str = ""
    seen: tuple[str, ...] = ()
    """Precondition values found before the action."""
    seconds: Annotated[float, Field(ge=0)] | None = None


class AuditRecord(AuditEntry):
    """One line of the audit log: an entry, chained to the line before by its hash."""

    format_version: Literal["1.0"] = AUDIT_FORMAT
    sequence: Annotated[int, Field(ge=1)]
    """Line number in the log."""
    previous: _Hash
    """Hash of the record before."""
    hash: _Hash
    """Of the record's own document without this field."""


def seal(entry: AuditEntry, sequence: int, previous: str) -> AuditRecord:
    """The entry as the record that follows the one with hash `previous`."""
    unsealed = AuditRecord(
        **{name: getattr(entry, name) for name in AuditEntry.model_fields},
        sequence=sequence,
        previous=previous,
        hash=FIRST_PREVIOUS,
    )
    return unsealed.model_copy(update={"hash": hash_of_record(_written(unsealed))})


def line_of(record: AuditRecord) -> str:
    """The record as its one canonical line, without the line's end."""
    return canonical_json(_written(record))


def hash_of_record(document: dict[str, Any]) -> str:
    """The hash a record's document must carry; keys unknown to this version count too."""
    return fingerprint_of({key: value for key, value in document.items() if key != "hash"})


def _written(record: AuditRecord) -> dict[str, Any]:
    """Every line names its format, so that a reader of another major version can tell."""
    return record.document() | {"format_version": record.format_version}
