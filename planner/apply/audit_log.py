"""
The audit log: one JSON record per line, append-only; each record contains the hash of the one before.

Each line is the canonical text of its record, so any changed byte is detected. The chain cannot detect that
records are missing at its end; keep the last hash elsewhere if that matters. A process that is killed during
a write leaves an unfinished last line; the next writer replaces it with a record about it.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydantic import ValidationError

from gpuplan.models.base import canonical_json
from gpuplan.models.errors import PlannerError, TamperedError
from gpuplan.models.plan.audit import (
    AUDIT_FORMAT,
    FIRST_PREVIOUS,
    AuditEntry,
    AuditKind,
    AuditRecord,
    hash_of_record,
    line_of,
    seal,
)
from gpuplan.planner.io.atomic_write import PRIVATE_FILE, require_writable, sync_directory
from gpuplan.planner.io.file_lock import exclusive_lock, lock, real_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

_MAJOR: Final = AUDIT_FORMAT.partition(".")[0]


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Content of an audit log: its verified records, and an unfinished last line."""

    records: tuple[AuditRecord, ...]
    unfinished: bytes
    """A last line that was cut off during the write; usually empty."""
    size: int
    """Bytes of the finished lines."""

    @property
    def last_hash(self) -> str:
        """The hash that the next record names as `previous`."""
        return self.records[-1].hash if self.records else FIRST_PREVIOUS


class AuditLog:
    """The audit log at a path; creating the object reads and writes nothing."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def place(self) -> Path:
        """The real path of the log, with symbolic links resolved."""
        return real_path(self.path)

    def records(self) -> tuple[AuditRecord, ...]:
        """All records, verified; an unfinished last line is ignored."""
        return verify_log(self.path).records

    def records_if_writable(self) -> tuple[AuditRecord, ...]:
        """
        All records of a log that can be written now; none if there is no log yet.

        Raises
        ------
        PlannerError
            The log cannot be written, or another process writes it.
        """
        self._refuse_other_files()
        require_writable(self.path)
        with self._alone():
            return self.records() if self.path.exists() else ()

    @contextmanager
    def writing(self, *, actor: str, now: Callable[[], datetime]) -> Iterator[AuditWriter]:
        """Open the log for appending, under an exclusive lock; a record replaces an unfinished last line."""
        self._refuse_other_files()
        with self._alone():
            try:
                descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            except OSError as error:
                raise _unwritable(self.path, error) from None
            try:
                # Two names of one log, such as hard links, have two lock files; so lock the log as well.
                lock(descriptor, subject=self._subject)
                trail = _verified(_content(descriptor, self.path), self.path)
                # A log that was just created is lost with its folder entry, however durable its records are.
                sync_directory(self.place.parent)
                writer = AuditWriter(self.path, descriptor, trail)
                if trail.unfinished:
                    writer.append([_recovery(trail.unfinished, actor=actor, at=now())])
                yield writer
            finally:
                os.close(descriptor)

    def set_aside(self, path: Path) -> AuditTrail:
        """Rename the log, so that the next record begins a new one; returns its verified content."""
        place = self.place
        with self._alone():
            trail = verify_log(place)
            if path.exists():
                raise PlannerError(
                    f"audit log {self.path} cannot be set aside: {path} exists; expected nothing there.\n"
                    "Give that file another name."
                )
            try:
                place.rename(path)
                for folder in {place.parent, path.parent}:
                    sync_directory(folder)
            except OSError as error:
                raise _unwritable(path, error) from None
        return trail

    def _refuse_other_files(self) -> None:
        if self.path.exists() and not self.path.is_file():
            raise PlannerError(
                f"audit log {self.path} is no regular file; expected one, or a path where nothing is.\n"
                "Give another path."
            )

    @property
    def _subject(self) -> str:
        return f"audit log {self.path}"

    def _alone(self) -> AbstractContextManager[None]:
        return exclusive_lock(self.path, subject=self._subject)


class AuditWriter:
    """Appends to an audit log; created by `AuditLog.writing`."""

    def __init__(self, path: Path, descriptor: int, trail: AuditTrail) -> None:
        self.path = path
        self._descriptor = descriptor
        self._records = list(trail.records)
        self._end = trail.size
        self._size = trail.size + len(trail.unfinished)

    @property
    def records(self) -> tuple[AuditRecord, ...]:
        """All records, including those appended here."""
        return tuple(self._records)

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Append entries in one durable write; they are on disk when this returns."""
        new: list[AuditRecord] = []
        last = self._records[-1] if self._records else None
        for entry in entries:
            last = seal(entry, last.sequence + 1 if last else 1, last.hash if last else FIRST_PREVIOUS)
            new.append(last)
        content = "".join(f"{line_of(record)}\n" for record in new).encode()
        self._refuse_foreign_records()
        try:
            self._write(content)
        except OSError as error:
            self._forget_unfinished()
            raise _unwritable(self.path, error) from None
        self._records += new
        self._end += len(content)
        self._size = self._end

    def _refuse_foreign_records(self) -> None:
        """Raise PlannerError if another process has appended records despite the lock."""
        if (found := os.fstat(self._descriptor).st_size) != self._size:
            raise PlannerError(
                f"audit log {self.path} was written by another process as well: "
                f"expected {self._size:,} bytes, found {found:,}.\n"
                "Check it with `gpuplan audit verify`, and let one apply at a time use it."
            )

    def _forget_unfinished(self) -> None:
        """Cut off the rest of a failed write, so that it does not count as another process's record."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._end)
        with suppress(OSError):
            self._size = os.fstat(self._descriptor).st_size

    def _write(self, content: bytes) -> None:
        # Overwrite an unfinished line first and truncate afterwards, so that it never vanishes unrecorded.
        written = 0
        while written < len(content):
            # A write may be short, for example on a disk that is nearly full.
            written += os.pwrite(self._descriptor, content[written:], self._end + written)
        os.ftruncate(self._descriptor, self._end + len(content))
        os.fsync(self._descriptor)


def verify_log(path: str | Path) -> AuditTrail:
    """
    Verify the hash chain of an audit log.

    Raises
    ------
    TamperedError
        A line is not the record that was written there; the message names the line, found and expected.
    PlannerError
        The log cannot be read.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None
    return _verified(content, path)


def _content(descriptor: int, path: Path) -> bytes:
    """All bytes of an open log."""
    try:
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            return file.read()
    except OSError as error:
        raise _unreadable(path, error) from None


def _verified(content: bytes, path: str | Path) -> AuditTrail:
    *lines, tail = content.split(b"\n")
    records: list[AuditRecord] = []
    previous = FIRST_PREVIOUS
    for number, line in enumerate(lines, 1):
        record = _record(line, f"{path}:{number}", number, previous)
        records.append(record)
        previous = record.hash
    _refuse_edited_tail(tail, f"{path}:{len(lines) + 1}")
    return AuditTrail(tuple(records), tail, len(content) - len(tail))


def _record(line: bytes, place: str, number: int, previous: str) -> AuditRecord:
    document = _object(line)
    if document is None:
        _tampered(place, "the line is no record", _shown(line), "one JSON object")
    if canonical_json(document).encode() != line:
        _tampered(
            place, "the line is not written as gpuplan writes it", _shown(line), canonical_json(document)[:80]
        )
    version = str(document.get("format_version"))
    if version.partition(".")[0] != _MAJOR:
        _tampered(
            place, "the record was changed, or a newer gpuplan wrote it", f"format {version}", f"{_MAJOR}.x"
        )
    if document.get("sequence") != number:
        _tampered(
            place, "a record is missing or moved", f"record {document.get('sequence')}", f"record {number}"
        )
    if document.get("previous") != previous:
        _tampered(place, "the chain is broken", f"previous {document.get('previous')}", previous)
    if document.get("hash") != (expected := hash_of_record(document)):
        _tampered(place, "the record was changed", f"hash {document.get('hash')}", expected)
    try:
        return AuditRecord.model_validate(document | {"format_version": AUDIT_FORMAT})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        _tampered(place, "the record cannot be read", f"{first['loc']}: {first['input']!r}", first["msg"])


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object on a line; None if there is none or it has no canonical text."""
    try:
        document = json.loads(line.decode())
        canonical_json(document).encode()
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _refuse_edited_tail(tail: bytes, place: str) -> None:
    """Raise TamperedError unless the last line is the beginning of a record, or zero bytes."""
    if not b'{"'.startswith(tail.strip(b"\0")[:2]):
        _tampered(place, "the last line is no beginning of a record", _shown(tail), "a record")
    # The cut may be inside a UTF-8 character.
    text = tail.decode(errors="replace")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return
    if end != len(text):
        _tampered(place, "the last line goes on after its record", _shown(tail[-20:]), "the line's end")


def _recovery(unfinished: bytes, *, actor: str, at: datetime) -> AuditEntry:
    return AuditEntry(
        at=at,
        who=actor,
        kind=AuditKind.RECOVERED,
        detail=f"replaces {len(unfinished)} bytes of a record that was cut off while it was written: "
        f"{unfinished.decode(errors='backslashreplace')}",
    )


def _shown(line: bytes) -> str:
    text = line.decode(errors="backslashreplace")
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


def _tampered(place: str, what: str, found: str, expected: str) -> NoReturn:
    raise TamperedError(
        f"{place}: {what}: found {found}, expected {expected}.\n"
        "Keep the file for inspection; restore it from a copy, or move it away to begin a new log."
    )


def _unreadable(path: str | Path, error: OSError) -> PlannerError:
    return PlannerError(
        f"audit log {path} cannot be read: {error.strerror}.\n`gpuplan apply` writes it; "
        "give the path of an existing audit log."
    )


def _unwritable(path: Path, error: OSError) -> PlannerError:
    return PlannerError(
        f"audit log {path} cannot be written: {error.strerror}.\n"
        "Give a path in a directory that exists and may be written, on a disk with room."
    )
