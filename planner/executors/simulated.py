"""
The simulated cluster: durable, with a clock of its own that moves only when told.

It takes nothing from a plan on trust: it starts a job only where the job may run and everything it holds is
free. Several processes may use one cluster at a time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from planner.executors.admission import start_refusal
from planner.executors.interface import ExecutionError
from planner.executors.simulated_file import (
    clear_errors,
    create_file,
    documents,
    hold,
    job_row,
    lock_path,
    open_file,
    transaction,
)
from planner.locking import exclusive
from planner.models.base import canonical_json
from planner.models.cluster import Node
from planner.models.errors import PlannerError
from planner.models.job import Job, Running
from planner.models.placement import Replica
from planner.models.snapshot import Snapshot
from planner.models.units import Timestamp, print_timestamp

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager
    from typing import Self

    from planner.models.placement import Placement
    from planner.models.plan import Start

_REPLICAS: Final = TypeAdapter(tuple[Replica, ...])
_TIME: Final[TypeAdapter[datetime]] = TypeAdapter(Timestamp)

_LONGEST_ADVANCE: Final = 100 * 366 * 24 * 3600
"""100 years in seconds, the longest duration a document may name."""


class SimulatedCluster:
    """A cluster in a file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._db = open_file(self.path)
        with clear_errors(self.path):
            self._identity = self._fact("identity")

    @classmethod
    def create(cls, path: str | Path, snapshot: Snapshot) -> SimulatedCluster:
        """A new cluster that is as the snapshot shows it; an existing one is never overwritten."""
        create_file(Path(path), snapshot)
        return cls(path)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def identity(self) -> str:
        """Drawn when the cluster was created."""
        return self._identity

    def exclusively(self) -> AbstractContextManager[None]:
        """Keep every other apply away; programs that only read, or move the clock, go on."""
        return exclusive(lock_path(self.path), subject=f"simulated cluster {self.path}")

    def snapshot(self) -> Snapshot:
        """The cluster at its clock's now, canonical."""
        with transaction(self._db, self.path, write=False):
            nodes, queues, jobs = (
                documents(self._db.execute(f"SELECT document FROM {table} ORDER BY name"))  # noqa: S608
                for table in ("nodes", "queues", "jobs")
            )
            name = canonical_json(self._fact("cluster"))
            clock = canonical_json(self._fact("clock"))
            return Snapshot.model_validate_json(
                f'{{"taken_at":{clock},"cluster":{{"name":{name},"nodes":{nodes}}},"queues":{queues},"jobs":{jobs}}}'
            )

    def performed(self, key: str) -> bool:
        """True if the action of this key was done."""
        with transaction(self._db, self.path, write=False):
            return self._performed(key)

    def perform(self, action: Start, key: str) -> None:
        """Start the job from the clock's now on, all its replicas or none; once for each key."""
        with transaction(self._db, self.path, write=True):
            if self._performed(key):
                return
            now = self._clock()
            job = self._startable(action.job, action.after)
            started = job.model_copy(
                update={"running": Running(started_at=now, replicas=action.after.replicas)}
            )
            name, document, ends_at = job_row(started)
            self._db.execute(
                "UPDATE jobs SET document = ?, ends_at = ? WHERE name = ?", (document, ends_at, name)
            )
            hold(self._db, started)
            self._db.execute("INSERT INTO operations VALUES (?, ?, ?)", (key, name, print_timestamp(now)))

    def advance(self, seconds: int) -> datetime:
        """
        Move the clock forward and return its new time; jobs that end by then are finished and gone.

        A job ends `expected_duration` after its start, but not before the old time: it still ran then.
        """
        if not 0 <= seconds <= _LONGEST_ADVANCE:
            raise PlannerError(
                f"a cluster's clock moves forward only: expected 0 to {_LONGEST_ADVANCE} seconds, "
                f"found {seconds}."
            )
        with transaction(self._db, self.path, write=True):
            old = self._clock()
            new = old + timedelta(seconds=seconds)
            ending = self._db.execute(
                "SELECT name, document, ends_at FROM jobs WHERE ends_at <= ? ORDER BY ends_at, name",
                (int(new.timestamp()),),
            ).fetchall()
            for name, document, ends_at in ending:
                finished_at = max(old, datetime.fromtimestamp(ends_at, tz=UTC))
                self._db.execute(
                    "INSERT INTO finished VALUES (?, ?, ?)", (name, print_timestamp(finished_at), document)
                )
                self._db.execute("DELETE FROM jobs WHERE name = ?", (name,))
            self._db.execute("UPDATE facts SET value = ? WHERE name = 'clock'", (print_timestamp(new),))
        return new

    def finished(self) -> tuple[tuple[str, datetime], ...]:
        """Jobs that finished, with the time of each, by time and name."""
        with transaction(self._db, self.path, write=False):
            rows = self._db.execute(
                "SELECT name, finished_at FROM finished ORDER BY finished_at, name"
            ).fetchall()
        return tuple((name, _TIME.validate_python(at)) for name, at in rows)

    def operations(self) -> tuple[tuple[str, str], ...]:
        """Key and job of all that was performed, in order."""
        with transaction(self._db, self.path, write=False):
            return tuple(self._db.execute("SELECT key, job FROM operations ORDER BY rowid").fetchall())

    def _fact(self, name: str) -> str:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise PlannerError(
                f"simulated cluster {self.path} is damaged: expected its {name}, found none.\n"
                "Restore the file from a copy, or create the cluster again."
            )
        return str(row[0])

    def _clock(self) -> datetime:
        return _TIME.validate_python(self._fact("clock"))

    def _performed(self, key: str) -> bool:
        return self._db.execute("SELECT 1 FROM operations WHERE key = ?", (key,)).fetchone() is not None

    def _startable(self, name: str, placement: Placement) -> Job:
        """The waiting job, if it can start there."""
        row = self._db.execute("SELECT document FROM jobs WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise ExecutionError(f"job {name} cannot start: expected a waiting job, found no such job.")
        job = Job.model_validate_json(row[0])
        used = sorted({replica.node for replica in placement.replicas})
        why = start_refusal(job, placement.replicas, nodes=self._nodes(used), held=self._held(used))
        if why is not None:
            raise ExecutionError(f"job {name} cannot start: {why}.")
        return job

    def _nodes(self, names: Collection[str]) -> dict[str, Node]:
        rows = (
            self._db.execute("SELECT document FROM nodes WHERE name = ?", (name,)).fetchone()
            for name in names
        )
        nodes = [Node.model_validate_json(row[0]) for row in rows if row is not None]
        return {node.name: node for node in nodes}

    def _held(self, nodes: Collection[str]) -> dict[str, tuple[Replica, ...]]:
        query = "SELECT replica FROM held WHERE node = ? ORDER BY rowid"
        return {
            name: _REPLICAS.validate_json(documents(self._db.execute(query, (name,)).fetchall()))
            for name in nodes
        }
