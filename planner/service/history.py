"""
The history of periodic runs: one row per epoch in an SQLite file, written in one transaction.

Rows are never changed. The file is in WAL mode, so it can be read while a run writes it, and a killed run
leaves only complete rows.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import Field, ValidationError

from gpuplan.models.base import Noun, canonical_json
from gpuplan.models.errors import PlannerError
from gpuplan.models.units import Count, Timestamp
from gpuplan.planner.io.atomic_write import create_private
from gpuplan.planner.io.file_lock import exclusive_lock
from gpuplan.planner.io.sqlite import BUSY_SECONDS, DatabaseKind

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


# EpochRecord: the outcome of one epoch of a periodic run, as stored in the history.


class EpochOutcome(StrEnum):
    """Outcome of an epoch."""

    PLANNED = "planned"
    """The plan is saved; this run does not apply plans."""
    UNCHANGED = "unchanged"
    """The plan changes nothing."""
    AWAITS_APPROVAL = "awaits_approval"
    """The policy requires an operator's approval of this plan."""
    APPLIED = "applied"
    RESUMED = "resumed"
    """The rest of an earlier run's last plan is done."""
    STOPPED = "stopped"
    """The run was told to stop; the rest of an apply can be resumed."""
    STALE = "stale"
    """The cluster changed between snapshot and apply; nothing was done."""
    PARTLY_APPLIED = "partly_applied"
    """An action failed; the actions before it are done."""
    FAILED = "failed"
    """There is no plan, or no action of it could be done."""


TROUBLE = frozenset({EpochOutcome.STALE, EpochOutcome.PARTLY_APPLIED, EpochOutcome.FAILED})
"""Outcomes after which the next epoch is a retry with exponential backoff."""


class KnobChange(Noun):
    """A knob of the policy with a value that differs from the epoch before."""

    knob: str
    """Path, such as `disruption.preempt`."""
    old: Any
    new: Any


class EpochRecord(Noun):
    """One epoch; fields of steps that it did not reach are None, empty or 0."""

    number: Count
    """1, 2, 3, …, counted over all runs of one history."""
    began_at: Timestamp
    ended_at: Timestamp
    """By the planner's clock, as is `began_at`."""
    outcome: EpochOutcome
    error: str = ""
    """Error message, with the next step."""
    taken_at: Timestamp | None = None
    """Time of the snapshot, by the cluster's clock."""
    snapshot: str | None = None
    """Fingerprint of the snapshot."""
    policy: str | None = None
    """Fingerprint of the policy in force."""
    policy_changes: tuple[KnobChange, ...] = ()
    policy_error: str = ""
    """Why the policy file could not be read; the last good policy is then in force."""
    plan_id: str | None = None
    status: str | None = None
    solver: str | None = None
    objective: int | None = None
    bound: int | None = None
    gap: float | None = None
    seconds: float | None = None
    """Duration of planning."""
    actions: dict[str, Count] = Field(default_factory=dict)
    """Number of the plan's actions by type, including those that change nothing."""
    done: Count = 0
    """Steps of the plan that this epoch carried out; recording the promises is one step."""
    done_before: Count = 0
    """Steps that were carried out before this epoch."""
    undone: Count = 0
    """Steps that are not carried out."""
    skipped_ticks: Count = 0
    """Ticks that were skipped because this epoch took too long."""


# The file of the history.


# The number is "gpht" in ASCII.
_KIND: Final = DatabaseKind("history", application=0x67706874, version=1)

_TABLE: Final = """
CREATE TABLE epochs (
    number INTEGER PRIMARY KEY,
    began_at TEXT NOT NULL,
    ended_at TEXT NOT NULL,
    outcome TEXT NOT NULL,
    error TEXT NOT NULL,
    taken_at TEXT,
    snapshot TEXT,
    policy TEXT,
    policy_changes TEXT NOT NULL,  -- JSON: [{"knob", "old", "new"}]
    policy_error TEXT NOT NULL,
    plan_id TEXT,
    status TEXT,
    solver TEXT,
    objective INTEGER,
    bound INTEGER,
    gap REAL,
    seconds REAL,
    actions TEXT NOT NULL,  -- JSON: {type: number}
    done INTEGER NOT NULL,
    done_before INTEGER NOT NULL,
    undone INTEGER NOT NULL,
    skipped_ticks INTEGER NOT NULL
)
"""
_COLUMNS: Final = tuple(EpochRecord.model_fields)
_DOCUMENTS: Final = ("policy_changes", "actions")
"""Columns with JSON."""


class History:
    """The history of one cluster's runs, open for writing by this process only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = exclusive_lock(path, subject=f"history {path}")
        self._db: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        """Lock the history, and create its file if there is none."""
        self._lock.__enter__()
        try:
            _KIND.refuse_second_names(self.path)
            # Where no file can be made, SQLite says why.
            with suppress(OSError):
                create_private(self.path)
            with _KIND.translate_errors(self.path):
                self._db = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS)
                _prepare(self._db, self.path)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._db is not None:
            self._db.close()
        self._lock.__exit__(kind, error, trace)

    @property
    def next_number(self) -> int:
        """The number of the next epoch."""
        with _KIND.translate_errors(self.path):
            (last,) = self._open.execute("SELECT coalesce(max(number), 0) FROM epochs").fetchone()
        return int(last) + 1

    def add(self, record: EpochRecord) -> None:
        """Append one epoch; it is on disk when this returns."""
        document = record.model_dump(mode="json")
        values = [
            canonical_json(document[name]) if name in _DOCUMENTS else document[name] for name in _COLUMNS
        ]
        marks = ", ".join("?" * len(_COLUMNS))
        with _KIND.translate_errors(self.path):
            self._open.execute(
                f"INSERT INTO epochs ({', '.join(_COLUMNS)}) VALUES ({marks})",  # noqa: S608
                values,
            )

    def of_plan(self, plan_id: str) -> EpochRecord | None:
        """The last epoch with a plan of this id."""
        with _KIND.translate_errors(self.path):
            found = _select(self._open, self.path, "WHERE plan_id = ? ORDER BY number DESC LIMIT 1", plan_id)
        return found[0] if found else None

    @property
    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            raise sqlite3.ProgrammingError("the history is not open")
        return self._db


def read_history(path: Path, *, last: int | None = None) -> tuple[EpochRecord, ...]:
    """
    The `last` epochs, or all, in the order of their numbers.

    Raises
    ------
    PlannerError
        There is no history at the path.
    """
    if not path.is_file():
        raise PlannerError(
            f"there is no history at {path}; expected the file of one.\n"
            "`gpuplan run` writes it; `gpuplan history FILE` reads another file."
        )
    with (
        _KIND.translate_errors(path),
        closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as db,
    ):
        _KIND.refuse_others(db, path)
        found = _select(db, path, "ORDER BY number DESC LIMIT ?", -1 if last is None else last)
    return tuple(reversed(found))


def _select(db: sqlite3.Connection, path: Path, rest: str, *values: object) -> list[EpochRecord]:
    rows = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM epochs {rest}", values).fetchall()  # noqa: S608
    return [_record(dict(zip(_COLUMNS, row, strict=True)), path) for row in rows]


def _record(row: dict[str, Any], path: Path) -> EpochRecord:
    try:
        return EpochRecord.model_validate(row | {name: json.loads(row[name]) for name in _DOCUMENTS})
    except (ValidationError, ValueError, TypeError) as error:
        raise PlannerError(
            f"history {path} is damaged: epoch {row['number']} cannot be read: {error}.\n"
            "Restore the file from a copy, or move it away to begin a new history."
        ) from None


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the table in a new file; the empty file of a killed creation also counts as new."""
    # Outside of the transaction, in which the mode cannot be changed.
    db.execute("PRAGMA journal_mode = WAL")
    # Some builds of SQLite sync less in WAL mode, and a crash of the host then takes the last rows away.
    db.execute("PRAGMA synchronous = FULL")
    db.execute("BEGIN IMMEDIATE")
    if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        db.execute(_TABLE)
        _KIND.mark(db)
    db.execute("COMMIT")
    _KIND.refuse_others(db, path)
