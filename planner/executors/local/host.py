"""The host itself as an executor: the jobs of its queue run on exactly the GPUs that are planned."""

from __future__ import annotations

import math
import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import Promise
from gpuplan.models.plan.action_kinds import ActionKind
from gpuplan.models.plan.actions import Migrate, NodeAction, Repartition, Start
from gpuplan.models.queue import FOREIGN_QUEUE, Queue
from gpuplan.planner.action_marks import PROMISES, MarkStage, kind_of, subject_of
from gpuplan.planner.executors.interface import (
    GONE,
    LANDED,
    ActionPhase,
    ActionProgress,
    ExecutionError,
    Pin,
    UnreachableError,
)
from gpuplan.planner.executors.job_steps import Deed
from gpuplan.planner.executors.local import runs
from gpuplan.planner.executors.local.job_queue import JobQueue
from gpuplan.planner.executors.local.job_steps import next_step, refusal
from gpuplan.planner.executors.local.layouts import (
    begin_layout,
    devices_of,
    has_mig_in_use,
    observe_layout,
)
from gpuplan.planner.executors.local.records import (
    Attempt,
    HostMark,
    Record,
    finished_now,
    instant,
    job_now,
    signal_number,
)
from gpuplan.planner.io.file_lock import exclusive_lock
from gpuplan.planner.io.processes import process_id
from gpuplan.planner.sources.nvml import nvml
from gpuplan.planner.sources.nvml.merge import foreign_beside
from gpuplan.planner.text_format import action_subject

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from gpuplan.models.plan.actions import Change, JobChangeAction
    from gpuplan.models.snapshot import Snapshot

_CAN: Final = (ActionKind.RELEASE, ActionKind.START, ActionKind.MIGRATE, ActionKind.PREEMPT)
_KEPT_KEYS: Final = 50
"""Keys of promise steps that the host remembers."""
_PROMISE_LIST: Final = TypeAdapter(dict[str, Promise])


@dataclass(frozen=True, slots=True)
class HostState:
    """A snapshot of the host, with what is to be told beside it."""

    snapshot: Snapshot
    findings: tuple[str, ...]
    notes: tuple[str, ...]


class LocalHost:
    """The host that this process runs on, with the queue in a folder."""

    def __init__(self, folder: Path, *, allow_mig: bool = False) -> None:
        """
        Open the queue; with `allow_mig` the MIG layouts of idle GPUs may be changed.

        Raises
        ------
        PlannerError
            The folder cannot be used.
        """
        self.queue = JobQueue(folder)
        self._allow_mig = allow_mig

    @property
    def identity(self) -> str:
        """Random id, set when the queue was made."""
        return f"local {self.queue.facts['identity']}"

    @property
    def can(self) -> frozenset[ActionKind]:
        """Start, stop and move jobs; with leave also to change MIG layouts."""
        return frozenset(_CAN) | ({ActionKind.REPARTITION} if self._allow_mig else frozenset())

    @property
    def pins(self) -> frozenset[Pin]:
        """Everything: a job sees exactly the devices that are planned."""
        return frozenset(Pin)

    def exclusively(self) -> AbstractContextManager[None]:
        """Lock the queue against other applies; submitting and reading stay possible."""
        return exclusive_lock(self.queue.folder / "apply", subject=f"queue {self.queue.folder}")

    def looking(self) -> AbstractContextManager[None]:
        """See `ClusterWriter`: the same lock."""
        return self.exclusively()

    def snapshot(self) -> Snapshot:
        """The host now."""
        return self.read().snapshot

    def read(self) -> HostState:
        """
        The host now: its queue, and what NVML tells of its GPUs and of processes that are not of the queue.

        Raises
        ------
        PlannerError
            There is no driver, or the queue is damaged.
        """
        # The queue first: a process that NVML shows later belongs to what holds its GPU by then.
        with self.queue.jobs() as known:
            ran = {name: self.queue.run(record) for name, record in known.items()}
        with self.queue.reachable():
            ended = self.queue.ended()
        reading = nvml.read_host(nvml.this_host())
        host = reading.snapshot
        own = {name: job_now(record, ran[name], host.taken_at) for name, record in known.items()}
        promises = _PROMISE_LIST.validate_python(self.queue.facts.get("promised", {}))
        for name, promise in promises.items():
            if name in own and own[name].running is None:
                own[name] = own[name].model_copy(update={"promise": promise})
        held = [each for job in own.values() for each in job.running_replicas]
        foreign = foreign_beside(held, host)
        finished = tuple(filter(None, map(finished_now, ended)))
        names = {job.queue for job in own.values()} | {each.queue for each in finished}
        names |= {FOREIGN_QUEUE} if foreign else set()
        can = self.can
        if has_mig_in_use(host, held):
            # An idle GPU is asked for, and a plan cannot be told which one may be changed.
            can -= {ActionKind.REPARTITION}
        (node,) = host.cluster.nodes
        node = node.model_copy(update={"labels": {"gpuplan/local": "host"}})
        cluster = host.cluster.model_copy(
            update={"nodes": (node,), "can": tuple(kind for kind in ActionKind if kind in can)}
        )
        snapshot = host.model_copy(
            update={
                "cluster": cluster,
                "queues": tuple(Queue(name=name) for name in sorted(names)),
                "jobs": (*own.values(), *foreign),
                "finished": finished,
            }
        )
        return HostState(snapshot.canonical(), reading.findings, reading.notes)

    # --- the protocol --------------------------------------------------------------------------------------

    def begin(self, action: Change, key: str) -> ActionProgress:
        """See `ClusterWriter`."""
        if ActionKind(action.type) not in self.can:
            leave = " without --allow-mig" if isinstance(action, Repartition) else ""
            raise ExecutionError(f"{action_subject(action)}: this host cannot {action.type} it{leave}.")
        if isinstance(action, Repartition):
            return begin_layout(self.queue, self.snapshot(), action, key)
        if isinstance(action, NodeAction):
            raise ExecutionError(f"{action_subject(action)}: this host cannot {action.type} it.")
        return self._begin_job(action, key)

    def observe(self, keys: Collection[str]) -> dict[str, ActionProgress]:
        """See `ClusterWriter`; steps that are due are done."""
        facts = self.queue.facts
        return {key: self._observe(key, facts) for key in keys}

    def undo(self, key: str) -> None:
        """See `ClusterWriter`: a job that has not begun is pending again, one that still runs goes on."""
        with self.queue.jobs() as known:
            record = known.get(subject_of(key))
            mark = record.mark(key) if record else None
            if record is None or mark is None or not mark.step.open or mark.step is MarkStage.STOPPING:
                return
            begins = mark.step is MarkStage.PLACING or kind_of(mark.key) == ActionKind.START
            if begins and record.attempt is not None:
                if not runs.withdraw(self.queue.place(record), record.attempt.number):
                    return
                record = record.model_copy(update={"attempt": None})
            self.queue.save(record.without_mark(key))

    def reserve(self, action: Start, key: str) -> ActionProgress:
        """See `ClusterWriter`: the GPUs are reserved in the mark of the start."""
        host = self.snapshot()
        with self.queue.jobs() as known:
            record = known.get(action.job)
            if record is None:
                raise ExecutionError(f"job {action.job} is not in the queue any more.")
            mark = record.mark(key)
            if mark is None or mark.step is MarkStage.FAILED:
                mark = self._asked(action, record, key)
                if why := refusal(record, mark, host, known):
                    return ActionProgress(ActionPhase.ASKED, why)
                self._mark(record, mark, MarkStage.RESERVED)
        progress = self._observe(key, self.queue.facts)
        aborting = mark.step is MarkStage.ABORTING
        return ActionProgress(ActionPhase.ASKED, progress.reason) if aborting else progress

    def abort(self, key: str, reason: str) -> None:
        """See `ClusterWriter`; the reason stays in the mark."""
        with self.queue.jobs() as known:
            record = known.get(subject_of(key))
            mark = record.mark(key) if record else None
            if record is None or mark is None:
                return
            if mark.step not in (MarkStage.ABORTING, MarkStage.FAILED):
                self._mark(record, mark, MarkStage.ABORTING, reason=reason)
        self._advance(key)

    def keep_promises(self, promises: Mapping[str, Promise], key: str) -> None:
        """See `ClusterWriter`; all of them are in one file."""
        kept = self.queue.facts.get("promise_keys", [])
        if key in kept:
            return
        texts = {name: promise.document() for name, promise in promises.items()}
        self.queue.change_facts(promised=texts, promise_keys=[*kept, key][-_KEPT_KEYS:])

    # --- jobs ----------------------------------------------------------------------------------------------

    def _begin_job(self, action: JobChangeAction, key: str) -> ActionProgress:
        with self.queue.jobs() as known:
            record = known.get(action.job)
            if record is None:
                raise ExecutionError(f"job {action.job} is not in the queue any more.")
            mark = record.mark(key)
            if mark is None or mark.step in (MarkStage.RESERVED, MarkStage.FAILED):
                self.queue.save(record.with_mark(self._asked(action, record, key)))
        return self._observe(key, self.queue.facts)

    def _asked(self, action: JobChangeAction, record: Record, key: str) -> HostMark:
        """The first mark of an action; ExecutionError if it does not fit the job as it is now."""
        self._check(action, record)
        wanted: dict[str, Any] = {}
        if isinstance(action, Start | Migrate):
            (wanted["replica"],) = action.after.replicas
        if isinstance(action, Start):
            wanted["kill_at"] = action.kill_at
        if isinstance(action, Migrate) and record.attempt is not None:
            wanted["kill_at"] = record.attempt.kill_at
        return HostMark(key=key, step=MarkStage.ASKED, **wanted)

    @staticmethod
    def _check(action: JobChangeAction, record: Record) -> None:
        """Refuse what does not fit the job as it is now."""
        if isinstance(action, Start):
            if record.attempt is not None:
                raise ExecutionError(f"job {action.job} cannot start: expected it waiting, found it running.")
        elif record.attempt is None:
            raise ExecutionError(
                f"job {action.job} cannot {action.type}: expected it running, found it waiting."
            )
        if isinstance(action, Start | Migrate) and len(action.after.replicas) != 1:
            raise ExecutionError(
                f"job {action.job}: expected one replica on one host, found {len(action.after.replicas)}."
            )

    def _observe(self, key: str, facts: dict[str, Any]) -> ActionProgress:
        if kind_of(key) == PROMISES:
            return LANDED if key in facts.get("promise_keys", ()) else GONE
        if kind_of(key) == ActionKind.REPARTITION:
            return observe_layout(self.queue, key)
        try:
            return self._advance(key)
        except UnreachableError as error:
            return ActionProgress(ActionPhase.UNKNOWN, str(error))

    def _advance(self, key: str) -> ActionProgress:
        """Do the next step of an action if its time has come."""
        with self.queue.jobs() as known:
            record = known.get(subject_of(key))
            if record is None:
                return self._of_ended(key)
            mark = record.mark(key)
            grace = math.inf if record.notice is None else record.notice.seconds
            step = next_step(mark, self.queue.run(record), now=time.time(), grace=grace)
            if mark is None or step.deed is Deed.NOTHING:
                return step.progress
            match step.deed:
                case Deed.NOTIFY:
                    self._notify(record, mark)
                case Deed.STOP:
                    self._stop(record, mark)
                case Deed.LAND:
                    self._mark(record, mark, MarkStage.LANDED)
                case Deed.FAIL:
                    self._mark(record, mark, MarkStage.FAILED)
                case Deed.PLACE:
                    pass
        # NVML is asked and a supervisor begins without the lock, so that others need not wait.
        return self._place(key) if step.deed is Deed.PLACE else step.progress

    def _of_ended(self, key: str) -> ActionProgress:
        """An action on a job that has ended: it landed if the job began by it."""
        marks = (record.mark(key) for record in self.queue.ended() if record.job.name == subject_of(key))
        landed = any(mark is not None and mark.step is MarkStage.LANDED for mark in marks)
        return LANDED if landed else GONE

    def _mark(self, record: Record, mark: HostMark, step: MarkStage, **more: object) -> Record:
        return self.queue.save(record.with_mark(mark.model_copy(update={"step": step, **more})))

    def _notify(self, record: Record, mark: HostMark) -> None:
        """Send the signal that the job asked for; one that asked for none is stopped at once."""
        if record.notice is None or record.attempt is None:
            self._stop(record, mark)
            return
        runs.notify(
            self.queue.place(record),
            record.attempt.number,
            signal_number(record.notice.signal),
            first_only=record.notice.first_only,
        )
        self._mark(record, mark, MarkStage.NOTIFIED, until=time.time() + record.notice.seconds)

    def _stop(self, record: Record, mark: HostMark) -> None:
        if mark.step not in (MarkStage.STOPPING, MarkStage.ABORTING):
            self._mark(record, mark, MarkStage.STOPPING)
        if record.attempt is None:
            return
        place, number = self.queue.place(record), record.attempt.number
        if mark.step is not MarkStage.ABORTING or not runs.withdraw(place, number):
            runs.stop(place, number)

    def _place(self, key: str) -> ActionProgress:
        """Start a job on its planned places, if they are free of everything else."""
        host = self.snapshot()
        job = host.job_by_name.get(subject_of(key))
        with self.queue.jobs() as known:
            record = known.get(subject_of(key))
            mark = record.mark(key) if record else None
            if (
                job is None
                or record is None
                or mark is None
                or not mark.step.open
                or record.attempt is not None
            ):
                return ActionProgress(ActionPhase.UNDER_WAY)
            if mark.replica is None:
                return ActionProgress(ActionPhase.FAILED, "it has no places")
            if why := refusal(record, mark, host, known):
                return ActionProgress(ActionPhase.UNDER_WAY, why)
            devices = devices_of(mark.replica, host.cluster.nodes[0])
            myself = process_id(os.getpid())
            if myself is None:
                raise PlannerError("this process is not in /proc; expected Linux.")
            attempt = Attempt(
                number=record.attempts + 1,
                replica=mark.replica,
                begun_by=(myself.pid, myself.ticks, myself.boot),
                kill_at=mark.kill_at,
                asked_at=instant(time.time()),
            )
            step = MarkStage.PLACING if kind_of(mark.key) == ActionKind.MIGRATE else MarkStage.ASKED
            begun = record.model_copy(update={"attempt": attempt, "attempts": attempt.number})
            record = self._mark(begun, mark, step)
        kill_at = attempt.kill_at
        wanted = {
            "devices": devices,
            "kill_at": kill_at.timestamp() if kill_at else None,
            "limit": record.limit,
            "token": secrets.token_hex(16),
        }
        with self.queue.reachable():
            runs.start(self.queue.place(record), attempt.number, wanted)
        return self._advance(key)
