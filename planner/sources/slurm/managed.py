"""
Jobs of a Slurm cluster that their users hand to gpuplan, by the first word of the job's comment.

`sbatch --hold --comment=gpuplan` hands a job over: it waits, held, until a plan places it. With
`--comment="gpuplan signal=B:USR1@60"` it gets this signal 60 seconds before a plan stops it, as with Slurm's
own `--signal`. Jobs of a user with the same `--comment="gpuplan co_start=NAME"` start together. An operator
hands a job over with `scontrol update JobId=… AdminComment=gpuplan`.

What gpuplan does with them is marked on them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.placement import Promise, Replica
from gpuplan.models.units import MILLI
from gpuplan.planner.action_marks import JobSignal, MarkStage, mark_of, with_mark, without_mark
from gpuplan.planner.sources.slurm.jobs import jobs_of
from gpuplan.planner.sources.slurm.values import flags, hosts, name_of, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.planner.sources.slurm.jobs import Around
    from gpuplan.planner.sources.slurm.values import Record


# Marks that gpuplan leaves on objects of a cluster: in the AdminComment of a job, the Comment of a node. Text
# that operators wrote there stays in front. Users can read both fields of their jobs and change neither.

_OPENING: Final = "gpuplan:{"


@dataclass(frozen=True, slots=True)
class Mark:
    """One action of one plan on an object."""

    key: str
    """Key of the action, as `ClusterWriter` has it."""
    step: MarkStage
    nodes: str = ""
    """Nodes that the job is to run on, separated by commas."""
    until: int = 0
    """End of the time that a notified job has, in seconds since 1970."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands in the field of one object."""

    theirs: str = ""
    """Text of the cluster's operators."""
    marks: tuple[Mark, ...] = ()
    """Oldest first; one for each key."""
    required: str | None = None
    """Nodes that the job's user requires, once gpuplan has written others in their place; None before."""
    submitted: int | None = None
    """Time of the submission, in seconds since 1970; Slurm's own is that of the last requeue or release."""
    promise: str = ""
    """Promised start with its nodes, as `START@NODES`."""
    promise_key: str = ""
    """Key of the step that recorded the promise."""
    begin: int | None = None
    """Earliest start that gpuplan wrote last, in seconds since 1970; None if it wrote none."""

    @classmethod
    def read(cls, text: str) -> Marks:
        """The marks in a field; a text that gpuplan did not write is all theirs."""
        text = "" if text in ("(null)", "N/A") else text
        theirs, opening, rest = text.rpartition(_OPENING)
        try:
            found: dict[str, Any] = json.loads("{" + rest) if opening else {}
            marks = tuple(
                Mark(
                    each["key"],
                    MarkStage(each["step"]),
                    *(each.get(name, default) for name, default in _FURTHER),
                )
                for each in found.get("marks", ())
            )
            return cls(
                theirs.rstrip() if opening else text,
                marks,
                found.get("required"),
                found.get("submitted"),
                found.get("promise", ""),
                found.get("promise_key", ""),
                found.get("begin"),
            )
        except (ValueError, LookupError, TypeError):
            return cls(text)

    def __str__(self) -> str:
        """The text of the field; empty if nothing is to be kept."""
        found: dict[str, Any] = {}
        if self.marks:
            found["marks"] = [_document(mark) for mark in self.marks]
        if self.required is not None:
            found["required"] = self.required
        if self.submitted is not None:
            found["submitted"] = self.submitted
        if self.begin is not None:
            found["begin"] = self.begin
        if self.promise:
            found |= {"promise": self.promise, "promise_key": self.promise_key}
        own = f"gpuplan:{json.dumps(found, separators=(',', ':'))}" if found else ""
        return " ".join(part for part in (self.theirs, own) if part)

    def of(self, key: str) -> Mark | None:
        """The mark of an action."""
        return mark_of(self.marks, key)

    def with_mark(self, mark: Mark) -> Marks:
        """With this mark as the newest."""
        return replace(self, marks=with_mark(self.marks, mark))

    def without(self, key: str) -> Marks:
        """Without the mark of an action."""
        return replace(self, marks=without_mark(self.marks, key))


_FURTHER: Final = (("nodes", ""), ("until", 0), ("reason", ""))


def _document(mark: Mark) -> dict[str, Any]:
    further = {name: getattr(mark, name) for name, default in _FURTHER if getattr(mark, name) != default}
    return {"key": mark.key, "step": mark.step.value, **further}


# Jobs that are handed over.

_WORD: Final = "gpuplan"
_LONGEST_DELAY: Final = 300
"""
Seconds from the requeue of a job to its earliest start. Slurm waits until the credential of the last start
has expired, by default two minutes (`cred_expire` in slurm.conf), and its clock may be ahead.
"""
_OUR_HOLDS: Final = ("JobHeldUser", "job_requeued_in_held_state")
"""Reasons of a job that waits for gpuplan; an operator's hold is JobHeldAdmin."""
_SLURMS_OWN: Final = "it is not handed to gpuplan: Slurm starts it"
_HETEROGENEOUS: Final = "Slurm cannot be told the nodes of a heterogeneous job"


class ManagedJobs:
    """Reads jobs for plans that gpuplan applies: those that are handed over, and the others as they are."""

    def __init__(self) -> None:
        """None read so far."""
        self.notices: dict[str, JobSignal | None] = {}
        """Signal before a stop, for each job that is handed over."""

    def jobs_of(self, record: Record, around: Around, note: Callable[[str, str], None]) -> Iterator[Job]:
        """The jobs of a record, like `jobs.jobs_of`; the others are Slurm's own to start."""
        if not is_managed(record):
            for job in jobs_of(record, around, note):
                found: dict[str, Any] = {"held": job.running is None, "preemptible": False}
                if job.running is None and not job.held:
                    note(f"job {job.name}", _SLURMS_OWN)
                    found["hold_reason"] = _SLURMS_OWN
                yield job.model_copy(update=found)
            return
        marks, (notice, strange) = _marks(record), notice_of(record)
        het = bool(number(record.get("het_job_id")))
        for job in jobs_of(_as_waiting(record, marks), around, note):
            if strange:
                note(f"job {job.name}", strange)
            if het:
                note(f"job {job.name}", _HETEROGENEOUS)
                reason = "" if job.running else job.hold_reason or _HETEROGENEOUS
                found = {"held": job.running is None, "hold_reason": reason, "preemptible": False}
                yield job.model_copy(update=found)
                continue
            if job.running is None and not _is_held(record):
                note(f"job {job.name}", "it is handed over, but not held: Slurm may start it first")
            self.notices[job.name] = notice
            saves = {} if notice is None else {"checkpoint_duration": notice.seconds}
            told = {**saves, "promise": _promise(job, marks), "co_start": _group_of(record, job)}
            yield job.model_copy(update=told)


def _group_of(record: Record, job: Job) -> str | None:
    """The group of jobs that its user wants to start together; the groups of each user are apart."""
    name = _word_of(record, "co_start")
    return f"{job.user}/{name_of(name)}" if name else None


def _word_of(record: Record, wanted: str) -> str | None:
    """The value of `wanted=VALUE` in the comment of a job that is handed over; None without one."""
    for part in str(record.get("comment") or "").split()[1:]:
        name, _, value = part.partition("=")
        if name == wanted:
            return value
    return None


def _is_held(record: Record) -> bool:
    return record.get("hold") is True or number(record.get("priority")) == 0


def _marks(record: Record) -> Marks:
    return Marks.read(str(record.get("admin_comment") or ""))


def _as_waiting(record: Record, marks: Marks) -> Record:
    """
    The record as if nothing but gpuplan held the job.

    The nodes that gpuplan named for an earlier start are not required by its user. The time of submission is
    that of the user. The two minutes that Slurm lets a requeued job wait are over once gpuplan releases it;
    an earliest start that the user sets later counts.
    """
    changed: Record = dict(record)
    if marks.required is not None:
        changed["required_nodes"] = marks.required
    if marks.submitted is not None:
        changed["submit_time"] = marks.submitted
    if "PENDING" in flags(record.get("job_state")) and str(record.get("state_reason")) in _OUR_HOLDS:
        changed |= {"state_reason": "None", "hold": False, "priority": 1}
        if marks.marks and not _begins_later(record, marks):
            changed["eligible_time"] = changed["submit_time"]
    return changed


def _begins_later(record: Record, marks: Marks) -> bool:
    """True if the earliest start is one that the user asked for: neither Slurm's nor gpuplan's."""
    theirs = max(number(record.get("submit_time")) or 0, marks.begin or 0)
    return (number(record.get("eligible_time")) or 0) > theirs + _LONGEST_DELAY


def _promise(job: Job, marks: Marks) -> Promise | None:
    """The promised start in the marks of a pending job; the indices of its GPUs are not fixed yet."""
    if not marks.promise or job.running is not None:
        return None
    start, _, nodes = marks.promise.partition("@")
    request = job.request
    holds: dict[str, Any] = {
        "gpus": [{"index": index, "milli": MILLI} for index in range(request.gpus)],
        "cpus": request.cpu_milli / MILLI,
        "memory_mib": request.memory_mib,
        "disk_mib": request.disk_mib,
        "resources": request.resources,
    }
    replicas = tuple(Replica.model_validate({**holds, "node": name_of(node)}) for node in hosts(nodes))
    return Promise(start=datetime.fromisoformat(start), replicas=replicas)


def is_managed(record: Record) -> bool:
    """True if the job of a record is handed to gpuplan."""
    marks = _marks(record)
    texts = (str(record.get("comment") or ""), marks.theirs)
    return bool(marks.marks) or any(text.split()[:1] == [_WORD] for text in texts)


def notice_of(record: Record) -> tuple[JobSignal | None, str]:
    """The signal that a job asks for, and what of its comment is not understood."""
    if (asked := _word_of(record, "signal")) is None:
        return None, ""
    if signal := JobSignal.read(asked):
        return signal, ""
    return None, f"its comment asks for signal={asked}; expected a signal such as B:USR1@60"
