"""
The queue of a host: a folder that only its owner can read, with a folder for each job.

    host.json             identity of the queue, promises, marks of MIG layouts
    jobs/7/record.json    what plans may see of job 7
    jobs/7/command.json   its command, environment and working folder, which plans never see
    jobs/7/output.txt     what it prints
    ended/7/              the same once it has ended, without command.json
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import MigSlice
from gpuplan.models.units import print_timestamp
from gpuplan.planner.executors.interface import UnreachableError
from gpuplan.planner.executors.local.private_files import read_json, write_private
from gpuplan.planner.executors.local.records import Record, instant, settled
from gpuplan.planner.executors.local.runs import Run, RunPhase, run_of, stop, withdraw
from gpuplan.planner.io.atomic_write import make_directory
from gpuplan.planner.io.processes import ProcessId
from gpuplan.planner.text_format import format_count, hostlist

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuplan.models.job import Job
    from gpuplan.planner.action_marks import JobSignal

_LATEST: Final = 1000
"""Ended jobs that snapshots tell of."""


class JobQueue:
    """The jobs of a host. What changes them holds the queue's lock for a moment."""

    def __init__(self, folder: Path) -> None:
        """
        Open the queue, or make an empty one.

        Raises
        ------
        PlannerError
            The folder belongs to another user, or others may change it.
        """
        self.folder = folder.absolute()
        try:
            if not folder.exists():
                make_directory(folder.parent)
                folder.mkdir(mode=0o700)
            found = folder.stat()
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise PlannerError(
                    f"{folder}: expected a folder of this user that others cannot read, found user "
                    f"{found.st_uid} and mode {found.st_mode & 0o777:o}.\n"
                    "Its jobs run as the user that applies plans; `chmod 700` it, or give another."
                )
            for part in ("jobs", "ended"):
                (folder / part).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise PlannerError(f"{folder} cannot be used: {error.strerror}.") from None
        with self._locked():
            if not (self.folder / "host.json").exists():
                write_private(self.folder / "host.json", {"identity": secrets.token_hex(8)})

    # --- facts of the host ---------------------------------------------------------------------------------

    @property
    def facts(self) -> dict[str, Any]:
        """Identity, promises and marks of the host."""
        found: dict[str, Any] = read_json(self.folder / "host.json")
        return found

    def change_facts(self, **changes: Any) -> None:
        """Set some of them, all or none."""
        with self._locked():
            write_private(self.folder / "host.json", self.facts | changes)

    # --- jobs ----------------------------------------------------------------------------------------------

    @contextmanager
    def jobs(self) -> Iterator[dict[str, Record]]:
        """The jobs that have not ended, by name, as they are now; nothing else changes them meanwhile."""
        with self._locked():
            found = {}
            for folder in list((self.folder / "jobs").iterdir()):
                record = self._read(folder)
                if record is None:  # its submission was killed on the way
                    shutil.rmtree(folder)
                elif (record := self._settle(record)).ended is None:
                    found[record.job.name] = record
            yield dict(sorted(found.items()))

    def save(self, record: Record) -> Record:
        """Make a record durable; the lock of `jobs` is held."""
        write_private(self.place(record) / "record.json", record.document())
        return record

    def place(self, record: Record) -> Path:
        """Folder of a job."""
        return self.folder / "jobs" / str(record.number)

    def run(self, record: Record) -> Run | None:
        """The present attempt of a job; None if it waits."""
        return None if record.attempt is None else run_of(self.place(record), record.attempt.number)

    def ended(self) -> list[Record]:
        """The jobs that ended last, oldest first."""
        numbers = sorted(int(each.name) for each in (self.folder / "ended").iterdir())
        found = (self._read(self.folder / "ended" / str(number)) for number in numbers[-_LATEST:])
        return [each for each in found if each is not None]

    def submit(
        self,
        job: Job,
        command: dict[str, Any],
        *,
        named: bool = True,
        notice: JobSignal | None = None,
        limit: int | None = None,
    ) -> Record:
        """
        Add a pending job; one that is not `named` is named after its number.

        Raises
        ------
        PlannerError
            A job of this name waits or runs.
        """
        with self.jobs() as known:
            numbers = [
                int(each.name) for part in ("jobs", "ended") for each in (self.folder / part).iterdir()
            ]
            number = max(numbers, default=0) + 1
            name = job.name if named else f"job-{number}"
            if name in known:
                raise PlannerError(
                    f"a job named {name} waits or runs already; expected a new name.\n"
                    f"Give another with --job-name, or end that job: `gpuplan local cancel {name}`."
                )
            record = Record(
                number=number, job=job.model_copy(update={"name": name}), notice=notice, limit=limit
            )
            self.place(record).mkdir(mode=0o700)
            write_private(self.place(record) / "command.json", command)
            return self.save(record)

    def cancel(self, name: str) -> bool:
        """
        End a job; True if it runs, and then ends soon.

        Raises
        ------
        PlannerError
            There is no such job.
        """
        with self.jobs() as known:
            if name not in known:
                raise PlannerError(
                    f"no job named {name} waits or runs.\n`gpuplan local list` prints those that do."
                )
            record = self._settle(self.save(known[name].model_copy(update={"cancelled": True})))
            if record.attempt is not None:
                stop(self.place(record), record.attempt.number)
            return record.ended is None

    def rows(self, latest: int = 10) -> list[dict[str, str]]:
        """The jobs that run and wait, and those that ended last, for people."""
        with self.jobs() as known:
            live = [_row(record, self.run(record)) for record in known.values()]
        return [*(_row(record, None) for record in self.ended()[-latest:]), *live]

    def _withdraw_orphan(self, record: Record) -> None:
        """Give up an attempt that no supervisor has begun, if what was to have it begun is killed."""
        attempt, run = record.attempt, self.run(record)
        if attempt is None or run is None or run.phase is not RunPhase.ABSENT:
            return
        beginner = ProcessId(*attempt.begun_by)
        # This process waits until a supervisor has begun, so what it finds absent later could not be begun.
        if beginner.pid == os.getpid() or not beginner.alive:
            withdraw(self.place(record), attempt.number)

    def _settle(self, record: Record) -> Record:
        """The record as it is now, durably."""
        self._withdraw_orphan(record)
        if record.cancelled and record.attempt is not None:
            stop(self.place(record), record.attempt.number)
        new = settled(record, self.run(record), time.time())
        if new is not record:
            self.save(new)
        if new.ended is not None:
            place = self.place(new)
            # With what killed processes were writing there: none of the job is left, so nothing writes now.
            for file in (place / "command.json", *place.glob(".*.tmp")):
                file.unlink(missing_ok=True)
            place.rename(self.folder / "ended" / place.name)
        return new

    def _read(self, folder: Path) -> Record | None:
        """The record of a job; None without one."""
        try:
            found = read_json(folder / "record.json")
            return None if found is None else Record.model_validate(found)
        except (ValidationError, ValueError) as error:
            raise PlannerError(
                f"{folder}/record.json is damaged: {str(error).splitlines()[0]}.\n"
                "Move the folder of this job elsewhere to go on without it."
            ) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self.reachable():
            descriptor = os.open(self.folder / "queue.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Turn errors of the disk into UnreachableError: what was being written may be there or not."""
        try:
            yield
        except OSError as error:
            raise UnreachableError(
                f"queue {self.folder} cannot be used: {error.strerror or error}.\n"
                "Check that its disk has room and may be written; what was begun can then go on."
            ) from None


def _row(record: Record, run: Run | None) -> dict[str, str]:
    request, end = record.job.request, record.ended
    asks = [format_count(request.gpus, "GPU")] * bool(request.gpus) + list(request.mig)
    held = record.attempt.replica.gpus if record.attempt else ()
    whole = [str(each.index) for each in held if not isinstance(each, MigSlice)]
    holds = [f"GPU{'s' if len(whole) > 1 else ''} {hostlist(whole).strip('[]')}"] if whole else []
    holds += [
        f"GPU {each.index} {each.profile} at {each.start}" for each in held if isinstance(each, MigSlice)
    ]
    began = None if run is None or run.began is None else instant(run.began)
    since = end.at if end else began or record.job.failed_at or record.job.submitted_at
    state = end.outcome.value if end else "waiting" if run is None else run.phase.name.lower()
    return {
        "job": record.job.name,
        "state": "begins" if state in ("absent", "starting") else state,
        "asks": ", ".join(asks) or "no GPUs",
        "holds": ", ".join(holds),
        "since": print_timestamp(since),
        "reason": end.reason if end else "",
    }
