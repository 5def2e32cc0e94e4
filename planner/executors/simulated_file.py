"""The file of a simulated cluster: its tables, its creation, and transactions with readable errors."""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from gpuplan.models.base import canonical_json
from gpuplan.models.errors import PlannerError
from gpuplan.models.timing.progress import running_speed_milli, working_since
from gpuplan.models.units import MILLI, print_timestamp
from gpuplan.planner.executors.admission import charged_replica
from gpuplan.planner.io.atomic_write import create_private, sync_directory
from gpuplan.planner.io.file_lock import exclusive_lock, real_path
from gpuplan.planner.io.sqlite import BUSY_SECONDS, DatabaseKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gpuplan.models.cluster import Cluster, Node
    from gpuplan.models.dependency import FinishedJob
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Running
    from gpuplan.models.snapshot import Snapshot

# The number is "gpup" in ASCII.
_KIND: Final = DatabaseKind("simulated cluster", application=0x67707570, version=3)

_TABLES: Final = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE queues (name TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE nodes (
    name TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    pool TEXT,
    ready_at INTEGER  -- seconds since 1970, empty unless the node is being provisioned
);
CREATE INDEX nodes_by_pool ON nodes (pool);
CREATE TABLE jobs (
    name TEXT PRIMARY KEY,
    document TEXT NOT NULL,
    ends_at INTEGER,  -- expected end in seconds since 1970, empty while the job waits or if it is unknown
    kill_at INTEGER  -- kill time in seconds since 1970, empty if it has none
);
CREATE TABLE held (
    job TEXT NOT NULL REFERENCES jobs (name) ON DELETE CASCADE,
    node TEXT NOT NULL,
    replica TEXT NOT NULL  -- with the CPU and memory that it is charged under overcommit
);
CREATE INDEX held_by_node ON held (node);
CREATE INDEX held_by_job ON held (job);
CREATE TABLE finished (name TEXT NOT NULL, finished_at TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX finished_by_name ON finished (name);
CREATE INDEX finished_by_time ON finished (finished_at);
CREATE TABLE operations (key TEXT PRIMARY KEY, subject TEXT NOT NULL, performed_at TEXT NOT NULL);
"""


def create_file(path: Path, snapshot: Snapshot) -> None:
    """Create the file of a cluster atomically."""
    subject, path = f"simulated cluster {path}", real_path(path)
    with exclusive_lock(path, subject=subject):
        if path.exists():
            raise PlannerError(
                f"{subject} exists already; expected a path where nothing is.\n"
                "Give another path, or use the cluster that is there."
            )
        draft = path.with_name(f".{path.name}.draft")
        try:
            _make(draft, path, snapshot)
        except PlannerError:
            _remove(draft)
            raise
        except OSError as error:
            _remove(draft)
            raise PlannerError(
                f"{subject} cannot be created: {error.strerror}.\n"
                "Give a path in a directory that exists and may be written."
            ) from None


def _make(draft: Path, path: Path, snapshot: Snapshot) -> None:
    # Remove the draft of a killed creation, and the log of a deleted cluster: SQLite would replay that log.
    _remove(draft)
    _remove(path)
    create_private(draft)
    with translate_errors(path), closing(sqlite3.connect(draft, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN")
        for statement in _TABLES.split(";"):
            db.execute(statement)
        _fill(db, snapshot)
        _KIND.mark(db)
        db.execute("COMMIT")
        # The file stores this mode, so it also holds for later connections.
        db.execute("PRAGMA journal_mode = WAL")
    draft.rename(path)
    sync_directory(path.parent)


def _remove(path: Path) -> None:
    """Remove a database file and the files that SQLite keeps next to it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


def _fill(db: sqlite3.Connection, snapshot: Snapshot) -> None:
    whole = snapshot.cluster.model_copy(update={"nodes": ()})
    facts = {
        "identity": f"simulated {secrets.token_hex(8)}",
        "clock": print_timestamp(snapshot.taken_at),
        # Facts of the whole cluster: name, pools, overcommit, datasets and power caps.
        "cluster": canonical_json(whole.document()),
    }
    db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
    rows = ((queue.name, canonical_json(queue.document())) for queue in snapshot.queues)
    db.executemany("INSERT INTO queues VALUES (?, ?)", rows)
    db.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?)", map(node_row, snapshot.cluster.nodes))
    for job in snapshot.jobs:
        db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?)", job_row(job, snapshot.cluster.node_by_name))
        insert_held_resources(db, job, whole)
    db.executemany("INSERT INTO finished VALUES (?, ?, ?)", map(finished_row, snapshot.finished))


def node_row(node: Node) -> tuple[str, str, str | None, int | None]:
    """Row of a node in `nodes`."""
    ready_at = None if node.ready_at is None else int(node.ready_at.timestamp())
    return node.name, canonical_json(node.document()), node.pool, ready_at


def job_row(job: Job, nodes: Mapping[str, Node]) -> tuple[str, str, int | None, int | None]:
    """Row of a job in `jobs`; `nodes` are by name."""
    return job.name, canonical_json(job.document()), end_time(job, nodes), kill_time(job.running)


def end_time(job: Job, nodes: Mapping[str, Node]) -> int | None:
    """Expected end of a running job in seconds since 1970; None if it is unknown."""
    if job.running is None or job.expected_duration is None:
        return None
    completed = job.progress.completed_milli if job.progress else 0
    left = max(0, job.expected_duration * MILLI - completed)
    return int(working_since(job.running).timestamp()) - (-left // running_speed_milli(job, nodes))


def kill_time(running: Running | None) -> int | None:
    """Kill time of a job in seconds since 1970; None if it has none."""
    return None if running is None or running.kill_at is None else int(running.kill_at.timestamp())


def finished_row(job: FinishedJob) -> tuple[str, str, str]:
    """Row of a finished job in `finished`."""
    return job.name, print_timestamp(job.ended_at), canonical_json(job.document())


def insert_held_resources(db: sqlite3.Connection, job: Job, cluster: Cluster) -> None:
    """Insert what a running job holds."""
    replicas = job.running_replicas
    db.executemany(
        "INSERT INTO held VALUES (?, ?, ?)",
        (
            (job.name, replica.node, canonical_json(charged_replica(replica, job, cluster).document()))
            for replica in replicas
        ),
    )


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file of an existing cluster; PlannerError if there is none."""
    if not path.is_file():
        raise PlannerError(
            f"there is no simulated cluster at {path}; expected the file of one.\n"
            "`gpuplan simulated create SOURCE` makes one; another file of one is given with `--state`."
        )
    with translate_errors(path), ExitStack() as undo:
        db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_SECONDS)
        undo.callback(db.close)
        _KIND.refuse_others(db, path)
        _KIND.refuse_second_names(path)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        undo.pop_all()
    return db


@contextmanager
def transaction(db: sqlite3.Connection, path: Path, *, write: bool) -> Iterator[None]:
    """Run the block in one transaction; a block that only reads sees one consistent state."""
    with translate_errors(path):
        # To read first and write later fails if another process has written in between.
        db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors and invalid rows into readable errors."""
    try:
        with _KIND.translate_errors(path):
            yield
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise PlannerError(
            f"simulated cluster {path} is damaged: {place}: {problem['msg']}, found {problem['input']!r}.\n"
            "Restore the file from a copy, or create the cluster again."
        ) from None


def join_documents(rows: Iterable[tuple[str]]) -> str:
    """Rows of one document each, joined to one JSON list."""
    return f"[{','.join(document for (document,) in rows)}]"
