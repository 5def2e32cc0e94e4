"""Reads and writes the rows of a simulated cluster as model objects; use it only inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import TypeAdapter

from gpuplan.models.base import canonical_json
from gpuplan.models.cluster import Cluster, Node
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.errors import PlannerError
from gpuplan.models.job import Job
from gpuplan.models.placement import Replica, node_names
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.units import Timestamp, print_timestamp
from gpuplan.planner.executors.simulated_file import (
    finished_row,
    insert_held_resources,
    job_row,
    join_documents,
    kill_time,
    node_row,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime
    from pathlib import Path

    from gpuplan.models.calendar import Reservation
    from gpuplan.models.cluster import NodePool
    from gpuplan.models.placement import Promise, Running

_FINISHED: Final = TypeAdapter(tuple[FinishedJob, ...])
_REPLICAS: Final = TypeAdapter(tuple[Replica, ...])
_MOST_FINISHED: Final = 10_000
"""Most recent finished jobs in a snapshot, in addition to those that other jobs depend on."""

_END: Final = "min(coalesce(ends_at, kill_at), coalesce(kill_at, ends_at))"
"""SQL: end of a running job, expected or by its kill time; NULL if neither is known."""

_RESERVED: Final = "reserved "
"""Beginning of the names of facts about starts that are reserved; the key of the start follows."""

_TIME: Final[TypeAdapter[datetime]] = TypeAdapter(Timestamp)


class Tables:
    """The tables of one cluster."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def fact(self, name: str) -> str:
        """A fact by its name; PlannerError if the cluster has none."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise PlannerError(
                f"simulated cluster {self._path} is damaged: expected its {name}, found none.\n"
                "Restore the file from a copy, or create the cluster again."
            )
        return str(row[0])

    def clock(self) -> datetime:
        """The cluster's present time."""
        return _TIME.validate_python(self.fact("clock"))

    def set_clock(self, now: datetime) -> None:
        """Set the clock only."""
        self._db.execute("UPDATE facts SET value = ? WHERE name = 'clock'", (print_timestamp(now),))

    def cluster(self) -> Cluster:
        """The cluster without its nodes."""
        return Cluster.model_validate_json(self.fact("cluster"))

    def pool(self, name: str) -> NodePool | None:
        """A pool by its name."""
        return next((pool for pool in self.cluster().pools if pool.name == name), None)

    def put_pool(self, pool: NodePool) -> None:
        """Update a pool."""
        whole = self.cluster()
        pools = tuple(pool if each.name == pool.name else each for each in whole.pools)
        self._put_cluster(whole.model_copy(update={"pools": pools}))

    def put_reservation(self, reservation: Reservation) -> None:
        """Add a reservation, in place of one of its name."""
        whole = self.cluster()
        others = (each for each in whole.reservations if each.name != reservation.name)
        self._put_cluster(whole.model_copy(update={"reservations": (*others, reservation)}))

    def _put_cluster(self, whole: Cluster) -> None:
        document = canonical_json(whole.document())
        self._db.execute("UPDATE facts SET value = ? WHERE name = 'cluster'", (document,))

    def snapshot(self) -> Snapshot:
        """Snapshot of the whole cluster, canonical."""
        nodes, queues, jobs = (
            join_documents(self._db.execute(f"SELECT document FROM {table} ORDER BY name"))  # noqa: S608
            for table in ("nodes", "queues", "jobs")
        )
        clock = canonical_json(self.fact("clock"))
        found = Snapshot.model_validate_json(
            f'{{"taken_at":{clock},"cluster":{{"nodes":{nodes}}},"queues":{queues},"jobs":{jobs}}}'
        )
        whole = self.cluster().model_copy(update={"nodes": found.cluster.nodes})
        finished = self._finished_jobs({each.job for job in found.jobs for each in job.depends_on})
        return found.model_copy(update={"cluster": whole, "finished": finished}).canonical()

    def node(self, name: str) -> Node | None:
        """A node by its name."""
        row = self._db.execute("SELECT document FROM nodes WHERE name = ?", (name,)).fetchone()
        return None if row is None else Node.model_validate_json(row[0])

    def nodes(self, names: Collection[str]) -> dict[str, Node]:
        """The existing nodes among the names, by name."""
        return {name: node for name in sorted(names) if (node := self.node(name)) is not None}

    def nodes_of(self, replicas: Iterable[Replica]) -> dict[str, Node]:
        """The existing nodes that some replicas are on, by name."""
        return self.nodes(node_names(replicas))

    def put_node(self, node: Node) -> None:
        """Insert or update a node."""
        self._db.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)", node_row(node))

    def delete_node(self, name: str) -> None:
        """Remove a node."""
        self._db.execute("DELETE FROM nodes WHERE name = ?", (name,))

    def count_nodes(self, pool: str) -> int:
        """Number of nodes of a pool."""
        (found,) = self._db.execute("SELECT count(*) FROM nodes WHERE pool = ?", (pool,)).fetchone()
        return int(found)

    def nodes_ready_by(self, now: datetime) -> list[Node]:
        """Nodes that are provisioned by a time."""
        query = "SELECT document FROM nodes WHERE ready_at <= ? ORDER BY name"
        rows = self._db.execute(query, (int(now.timestamp()),)).fetchall()
        return [Node.model_validate_json(document) for (document,) in rows]

    def job(self, name: str) -> Job | None:
        """A job by its name."""
        row = self._db.execute("SELECT document FROM jobs WHERE name = ?", (name,)).fetchone()
        return None if row is None else Job.model_validate_json(row[0])

    def group_of(self, job: Job) -> list[Job]:
        """The jobs of its `co_start` group; none if it has no group."""
        if job.co_start is None:
            return []
        query = "SELECT document FROM jobs WHERE instr(document, '\"co_start\":') ORDER BY name"
        found = (Job.model_validate_json(document) for (document,) in self._db.execute(query).fetchall())
        return [each for each in found if each.co_start == job.co_start]

    def add_job(self, job: Job) -> None:
        """Insert a new pending job."""
        self._db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?)", job_row(job, {}))

    def ends_at(self, name: str) -> int | None:
        """Expected end of a running job in seconds since 1970; None if it is unknown."""
        (found,) = self._db.execute("SELECT ends_at FROM jobs WHERE name = ?", (name,)).fetchone()
        return None if found is None else int(found)

    def put_running(self, job: Job, running: Running | None, *, ends_at: int | None) -> None:
        """Set a job's running state, or None if pending; frees what it held and clears its promise."""
        changed = job.model_copy(update={"running": running, "promise": None})
        document = canonical_json(changed.document())
        self._db.execute(
            "UPDATE jobs SET document = ?, ends_at = ?, kill_at = ? WHERE name = ?",
            (document, ends_at, kill_time(running), job.name),
        )
        self._db.execute("DELETE FROM held WHERE job = ?", (job.name,))
        insert_held_resources(self._db, changed, self.cluster())

    def put_waiting(self, job: Job) -> None:
        """Set a job's whole description, as a pending one; frees what it held or had reserved."""
        document = canonical_json(job.document())
        query = "UPDATE jobs SET document = ?, ends_at = NULL, kill_at = NULL WHERE name = ?"
        self._db.execute(query, (document, job.name))
        self._db.execute("DELETE FROM held WHERE job = ?", (job.name,))

    def put_reservation_of_start(self, key: str, job: Job, running: Running) -> None:
        """Let a pending job hold what it needs to run so, and keep its description from before."""
        document = canonical_json(job.document())
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (f"{_RESERVED}{key}", document))
        self._db.execute("DELETE FROM held WHERE job = ?", (job.name,))
        insert_held_resources(self._db, job.model_copy(update={"running": running}), self.cluster())

    def reserved_start(self, key: str) -> Job | None:
        """The job of a start that was reserved, as it was then; None if there is no such reservation."""
        query = "SELECT value FROM facts WHERE name = ?"
        row = self._db.execute(query, (f"{_RESERVED}{key}",)).fetchone()
        return None if row is None else Job.model_validate_json(row[0])

    def reserved_starts(self) -> tuple[str, ...]:
        """Keys of the starts that were reserved, sorted."""
        query = "SELECT name FROM facts WHERE substr(name, 1, ?) = ? ORDER BY name"
        rows = self._db.execute(query, (len(_RESERVED), _RESERVED)).fetchall()
        return tuple(name.removeprefix(_RESERVED) for (name,) in rows)

    def drop_reservation_of_start(self, key: str) -> None:
        """Forget that a start was reserved; what the job holds stays."""
        self._db.execute("DELETE FROM facts WHERE name = ?", (f"{_RESERVED}{key}",))

    def put_promises(self, promises: Mapping[str, Promise]) -> None:
        """Set these promises on pending jobs and clear all others; jobs that are not pending are skipped."""
        query = "SELECT name FROM jobs WHERE instr(document, '\"promise\":')"
        told = {name for (name,) in self._db.execute(query).fetchall()}
        for name in sorted(told | promises.keys()):
            job, promise = self.job(name), promises.get(name)
            if job is not None and job.running is None and job.promise != promise:
                changed = job.model_copy(update={"promise": promise})
                entry = (canonical_json(changed.document()), job.name)
                self._db.execute("UPDATE jobs SET document = ? WHERE name = ?", entry)

    def finish(self, job: FinishedJob) -> None:
        """Move a job to the finished jobs."""
        self._db.execute("INSERT INTO finished VALUES (?, ?, ?)", finished_row(job))
        self._db.execute("DELETE FROM jobs WHERE name = ?", (job.name,))

    def ending_by(self, now: datetime) -> list[tuple[Job, int, bool]]:
        """(job, end, whether it is killed then) of the jobs that end by a time, by end and name."""
        query = (
            f"SELECT document, {_END} AS at, ends_at IS NULL OR kill_at < ends_at FROM jobs "  # noqa: S608
            "WHERE at <= ? ORDER BY at, name"
        )
        rows = self._db.execute(query, (int(now.timestamp()),)).fetchall()
        return [(Job.model_validate_json(document), end, bool(killed)) for document, end, killed in rows]

    def finished(self) -> tuple[tuple[str, datetime], ...]:
        """Finished jobs with their end times, by time and name."""
        query = "SELECT name, finished_at FROM finished ORDER BY finished_at, name"
        return tuple((name, _TIME.validate_python(at)) for name, at in self._db.execute(query).fetchall())

    def _finished_jobs(self, wanted: Collection[str]) -> tuple[FinishedJob, ...]:
        """The most recent finished jobs, and the last finished job of each wanted name."""
        rows = self._db.execute(
            "SELECT document FROM finished ORDER BY finished_at DESC, rowid DESC LIMIT ?", (_MOST_FINISHED,)
        ).fetchall()
        found = _FINISHED.validate_json(join_documents(rows))
        if len(found) < _MOST_FINISHED:
            return found
        query = "SELECT document FROM finished WHERE name = ? ORDER BY finished_at DESC, rowid DESC LIMIT 1"
        older = sorted(set(wanted) - {job.name for job in found})
        rows = [row for name in older for row in self._db.execute(query, (name,)).fetchall()]
        return found + _FINISHED.validate_json(join_documents(rows))

    def held(self, nodes: Collection[str], *, but: str = "") -> dict[str, tuple[Replica, ...]]:
        """Charged replicas on some nodes, by node, without those of job `but`."""
        query = "SELECT replica FROM held WHERE node = ? AND job != ? ORDER BY rowid"
        return {
            name: _REPLICAS.validate_json(join_documents(self._db.execute(query, (name, but)).fetchall()))
            for name in sorted(nodes)
        }

    def jobs_on(self, node: str) -> tuple[str, ...]:
        """Names of the jobs that run on a node, sorted."""
        query = "SELECT DISTINCT job FROM held WHERE node = ? ORDER BY job"
        return tuple(name for (name,) in self._db.execute(query, (node,)).fetchall())

    def performed(self, key: str) -> bool:
        """True if an operation with this key is recorded."""
        return self._db.execute("SELECT 1 FROM operations WHERE key = ?", (key,)).fetchone() is not None

    def enter_operation(self, key: str, subject: str, at: datetime) -> None:
        """Record a performed operation."""
        self._db.execute("INSERT INTO operations VALUES (?, ?, ?)", (key, subject, print_timestamp(at)))

    def delete_operation(self, key: str) -> None:
        """Forget a performed operation."""
        self._db.execute("DELETE FROM operations WHERE key = ?", (key,))

    def operations(self) -> tuple[tuple[str, str], ...]:
        """Key and subject of all performed operations, in order."""
        return tuple(self._db.execute("SELECT key, subject FROM operations ORDER BY rowid").fetchall())
