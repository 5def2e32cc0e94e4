"""SQLite files of gpuplan: each is marked with its kind, and SQLite errors become readable errors."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUSY_SECONDS: Final = 30.0
"""Seconds that a process waits for another process's transaction."""


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """A kind of database file."""

    noun: str
    """Name in messages, such as `history`."""
    application: int
    """Mark of files of this kind (SQLite's application_id)."""
    version: int
    """Version of the tables (SQLite's user_version)."""

    def mark(self, db: sqlite3.Connection) -> None:
        """Mark a new file as of this kind."""
        db.execute(f"PRAGMA application_id = {self.application}")
        db.execute(f"PRAGMA user_version = {self.version}")

    def refuse_others(self, db: sqlite3.Connection, path: Path) -> None:
        """Raise PlannerError if the file is of another kind, or has tables of another version."""
        application, version = (
            int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version")
        )
        if (application, version) != (self.application, self.version):
            ours = application == self.application
            found = f"tables of version {version}" if ours else "the file of another application"
            raise PlannerError(
                f"{path} is no {self.noun} that this gpuplan reads: "
                f"expected tables of version {self.version}, found {found}.\n"
                f"Give the path of a {self.noun}, or make a new one at another path."
            )

    def refuse_second_names(self, path: Path) -> None:
        """
        Raise PlannerError if the file has more than one name.

        SQLite keeps its log next to the name by which a file is opened. Under two hard links it would keep
        two logs, and each would corrupt the file for the other. Symbolic links are safe.
        """
        if path.exists() and (names := path.stat().st_nlink) > 1:
            raise PlannerError(
                f"{self.noun} {path} has {names} names (hard links); expected 1: "
                "used under two names, the file is damaged.\n"
                "Remove the other names, or make a copy and use that."
            )

    @contextmanager
    def translate_errors(self, path: Path) -> Iterator[None]:
        """Turn SQLite's errors into readable errors."""
        try:
            yield
        except sqlite3.Error as error:
            raise PlannerError(
                f"{self.noun} {path} cannot be used: {error}.\n"
                f"Check that the file is a {self.noun}, may be written, and has room on its disk."
            ) from None
