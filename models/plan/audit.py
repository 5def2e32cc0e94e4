"""AuditRecord: one line of the audit log, with the actor, the cluster, the plan and the outcome."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field

from gpuplan.models.base import Noun, canonical_json, fingerprint_of
from gpuplan.models.units import Timestamp

AUDIT_FORMAT: Final = "1.0"

FIRST_PREVIOUS: Final = "0" * 64
"""Value of `previous` in the first record, which has no record before it."""

_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AuditKind(StrEnum):
    """Type of a record."""

    BEGIN = "begin"
    """An apply starts to carry out a plan."""
    INTENT = "intent"
    """An action is about to be carried out; the record is durable before the action."""
    OUTCOME = "outcome"
    """Outcome of an action."""
    END = "end"
    """The apply has ended, successfully or not."""
    RECOVERED = "recovered"
    """The last record was cut off while it was written; this one replaces it."""


class ActionOutcome(StrEnum):
    """Outcome of an action."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    """An earlier apply had carried it out and could not record it."""


class AuditEntry(Noun):
    """An event before it gets its position in the log."""

    model_config = ConfigDict(extra="ignore")

    at: Timestamp
    who: str
    """user@host."""
    kind: AuditKind
    plan_id: str = ""
    plan_uid: str = ""
    """Name of the plan in the cluster; the same plan, computed again, has the same id and another uid."""
    cluster: str = ""
    """Identity of the cluster, so that one log can serve several clusters."""
    action: str = ""
    """Id of the action in its plan."""
    type: str = ""
    """Type of the action."""
    subject: str = ""
    """Subject of the action, such as `job a`, `node n0` or `node n0 gpu 3`."""
    outcome: ActionOutcome | None = None
    detail: str = ""
    seen: tuple[str, ...] = ()
    """Precondition values found before the action."""
    seconds: Annotated[float, Field(ge=0)] | None = None
    approvers: tuple[str, ...] = ()
    """At the beginning of an apply: the approvers that the policy asked for, with their keys."""


class AuditRecord(AuditEntry):
    """One line of the audit log: an entry with the hash of the line before."""

    format_version: Literal["1.0"] = AUDIT_FORMAT
    sequence: Annotated[int, Field(ge=1)]
    """Line number in the log."""
    previous: _Hash
    """Hash of the previous record."""
    hash: _Hash
    """Hash of the record's own document without this field."""


def seal(entry: AuditEntry, sequence: int, previous: str) -> AuditRecord:
    """The entry as the record that follows the record with hash `previous`."""
    unsealed = AuditRecord(
        **{name: getattr(entry, name) for name in AuditEntry.model_fields},
        sequence=sequence,
        previous=previous,
        hash=FIRST_PREVIOUS,
    )
    return unsealed.model_copy(update={"hash": hash_of_record(_written(unsealed))})


def line_of(record: AuditRecord) -> str:
    """The record as one line of canonical JSON, without the line end."""
    return canonical_json(_written(record))


def hash_of_record(document: dict[str, Any]) -> str:
    """The hash that a record's document must have; keys unknown to this version count too."""
    return fingerprint_of({key: value for key, value in document.items() if key != "hash"})


def _written(record: AuditRecord) -> dict[str, Any]:
    """The document with its format version, which readers of another major version check."""
    return record.document() | {"format_version": record.format_version}
