"""What the queue of a host keeps of each job, and what becomes of it once an attempt is over."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from typing import Final

from gpuplan.models.base import Noun
from gpuplan.models.dependency import FinishedJob, JobOutcome
from gpuplan.models.job import Job, Progress
from gpuplan.models.placement import Replica, Running
from gpuplan.models.plan.actions import ActionKind
from gpuplan.models.units import Count, Timestamp
from gpuplan.planner.action_marks import JobSignal, MarkStage, kind_of, mark_of, with_mark, without_mark
from gpuplan.planner.executors.local.runs import Run, RunPhase

_ENDING: Final = (MarkStage.NOTIFIED, MarkStage.STOPPING, MarkStage.ABORTING)
"""Steps after which the end of an attempt is the plan's doing."""


class HostMark(Noun):
    """One action of one plan on a job."""

    key: str
    """Key of the action, as `ClusterWriter` has it."""
    step: MarkStage
    replica: Replica | None = None
    """Places that the job is to run on."""
    kill_at: Timestamp | None = None
    """Time at which the job is to be killed if it still runs."""
    until: float = 0
    """End of the time that a notified job has, in seconds since 1970."""
    reason: str = ""
    """Why it failed."""


class Attempt(Noun):
    """One run of a job, from the decision to start it until nothing of it is left."""

    number: Count
    replica: Replica
    """What it holds."""
    begun_by: tuple[int, int, str]
    """The process that has its supervisor begin it: id, start in ticks, boot."""
    kill_at: Timestamp | None = None
    asked_at: Timestamp


class Ended(Noun):
    """The end of a job."""

    outcome: JobOutcome
    at: Timestamp
    began: Timestamp | None = None
    reason: str = ""


class Record(Noun):
    """A job of the queue. Its command, environment and working folder are in a file of their own."""

    number: Count
    job: Job
    """As submitted, with its failures and preemptions; never with what it holds."""
    notice: JobSignal | None = None
    limit: Count | None = None
    """Seconds that one attempt may last."""
    attempts: Count = 0
    """Attempts so far."""
    attempt: Attempt | None = None
    """The present one; None while the job waits."""
    marks: tuple[HostMark, ...] = ()
    """Oldest first; one for each key."""
    cancelled: bool = False
    ended: Ended | None = None

    def mark(self, key: str) -> HostMark | None:
        """The mark of an action."""
        return mark_of(self.marks, key)

    def with_mark(self, mark: HostMark) -> Record:
        """With this mark as the newest."""
        return self.model_copy(update={"marks": with_mark(self.marks, mark)})

    def without_mark(self, key: str) -> Record:
        """Without the mark of an action."""
        return self.model_copy(update={"marks": without_mark(self.marks, key)})


def instant(seconds: float) -> datetime:
    """Whole second of a time in seconds since 1970."""
    return datetime.fromtimestamp(int(seconds), tz=UTC)


def settled(record: Record, run: Run | None, now: float) -> Record:
    """
    The record once what its attempt came to is taken into account; the same one if that is nothing new.

    `run` is the present attempt, None without one. A job that was stopped waits again, and so does one that
    never began, or that ran before the host was started anew. One that ended by itself has ended, or is
    tried again.
    """
    if record.ended is not None:
        return record
    if record.attempt is None or run is None:
        return _cancelled(record, now) if record.cancelled else record
    if run.phase not in (RunPhase.ENDED, RunPhase.LOST, RunPhase.NEVER):
        return record
    held = record.attempt
    over = record.model_copy(
        update={"attempt": None, "marks": tuple(_after_run(each, run) for each in record.marks)}
    )
    at = now if run.ended is None else run.ended
    stopping = next((each for each in record.marks if each.step in _ENDING), None)
    stopped = run.stopped or (stopping is not None and _ends_by_plan(record, run))
    if record.cancelled:
        return _cancelled(over, at, run.began)
    if stopped and stopping is not None and stopping.step is MarkStage.ABORTING:
        # It waits as before: what it did without its group counts for nothing.
        return over
    if run.phase is RunPhase.NEVER or stopped:
        changes: dict[str, object] = {"promise": None}
        if stopping is not None and kind_of(stopping.key) == ActionKind.PREEMPT:
            changes["preemptions"] = record.job.preemptions + 1
        if run.began is not None:
            changes["progress"] = _served(record.job, held, run.began, at)
        return over.model_copy(update={"job": record.job.model_copy(update=changes)})
    if run.code == 0 and not run.timed_out:
        return _ended(over, JobOutcome.SUCCEEDED, at, run.began, "")
    return _failed(over, run, at)


def _ends_by_plan(record: Record, run: Run) -> bool:
    """True if a job that a plan stops has ended by that: by the notice itself, or killed without a trace."""
    if run.phase is RunPhase.LOST:
        return True
    return record.notice is not None and run.code == -signal_number(record.notice.signal)


def signal_number(name: str) -> int:
    """Number of a signal such as `USR1` or `10`."""
    return int(name) if name.isdigit() else signal.Signals[f"SIG{name}"].value


def _after_run(mark: HostMark, run: Run) -> HostMark:
    """The mark of an action once an attempt is over: a start has landed if the job began, else it goes on."""
    if mark.step is MarkStage.ABORTING:
        return mark.model_copy(update={"step": MarkStage.FAILED})
    begins = mark.step.open and (mark.step is MarkStage.PLACING or kind_of(mark.key) == ActionKind.START)
    return mark.model_copy(update={"step": MarkStage.LANDED}) if begins and run.began is not None else mark


def _failed(over: Record, run: Run, at: float) -> Record:
    reason = (
        "its time was over"
        if run.timed_out
        else "its supervisor was killed, so its end is not known"
        if run.code is None
        else f"signal {-run.code}"
        if run.code < 0
        else f"exit code {run.code}"
    )
    failures = over.job.failures + 1
    retry = over.job.retry
    if run.timed_out or retry is None or retry.is_used_up(failures):
        return _ended(over, JobOutcome.FAILED, at, run.began, reason)
    again = over.job.model_copy(update={"failures": failures, "failed_at": instant(at)})
    return over.model_copy(update={"job": again})


def _cancelled(record: Record, at: float, began: float | None = None) -> Record:
    return _ended(record, JobOutcome.FAILED, at, began, "cancelled")


def _ended(record: Record, outcome: JobOutcome, at: float, began: float | None, reason: str) -> Record:
    end = Ended(
        outcome=outcome,
        at=instant(at),
        began=None if began is None else instant(min(began, at)),
        reason=reason,
    )
    return record.model_copy(update={"ended": end})


def _served(job: Job, held: Attempt, began: float, at: float) -> Progress:
    """Service so far; what a job saved of its work is not known here."""
    progress = job.progress or Progress()
    served = (progress.served_milli or 0) + held.replica.quota_milli * max(0, int(at) - int(began))
    return progress.model_copy(update={"served_milli": served})


def job_now(record: Record, run: Run | None, now: datetime) -> Job:
    """The job as a snapshot has it."""
    if record.attempt is None:
        return record.job
    began = record.attempt.asked_at if run is None or run.began is None else instant(run.began)
    running = Running(
        started_at=min(began, now), kill_at=record.attempt.kill_at, replicas=(record.attempt.replica,)
    )
    return record.job.model_copy(update={"running": running, "promise": None})


def finished_now(record: Record) -> FinishedJob | None:
    """The ended job as a snapshot has it; None if it never ran."""
    end = record.ended
    if end is None or end.began is None:
        return None
    return FinishedJob(
        name=record.job.name,
        queue=record.job.queue,
        user=record.job.user,
        outcome=end.outcome,
        started_at=end.began,
        ended_at=end.at,
    )
